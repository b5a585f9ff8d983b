"""
What a tool, a resource or a prompt of a server has come to, as what a tool here may return.

    text, embedded text     a text
    image, audio, blob      a `Blob`, which goes with the response as media
    a link                  what the server says of it, as JSON in a text: nobody follows it by itself
    structured content      the value; the texts beside it, which repeat it, are left out
    isError                 McpToolError, with the texts
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Any

import mcp_types

from ..._json import dumps, freeze
from ...errors import InvalidValueError, McpError, McpToolError
from ...types import Blob
from ._text import LABEL_CHARS_MAX, cleaned, line

__all__ = ["resource_value", "text_of", "tool_value"]

_MIME_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+(?:\s*;[ -~]*)?", re.ASCII)

# Of an error that a model is told: what is wrong stands at the beginning.
ERROR_CHARS_MAX = 4_000


def tool_value(result: mcp_types.CallToolResult, label: str, bytes_max: int) -> Any:
    """
    Return what a tool is to return for *result*.

    Raises:
        McpToolError: The server says that the tool has failed.
        McpError: The result has more than *bytes_max*, or media that are none.
    """
    if result.is_error:  # what it says comes through, whatever stands beside it
        said = "\n".join(_texts(result.content, label))
        raise McpToolError(cleaned(said, ERROR_CHARS_MAX) or "the tool has failed, and does not say why")
    items = [_item(block, label) for block in result.content]
    texts = [item for item in items if isinstance(item, str)]
    media = [item for item in items if isinstance(item, Blob)]
    structured = result.structured_content
    if structured is not None:
        told = structured["result"] if isinstance(structured, dict) and structured.keys() == {"result"} else structured
        try:
            freeze(told, "its result")
        except InvalidValueError as error:
            raise McpError(f"the result of the MCP server {label!r} cannot be stored: {line(str(error))}") from None
        _check_size([dumps(told)], media, label, bytes_max)
        return [dumps(told), *media] if media else {"result": told}
    _check_size(texts, media, label, bytes_max)
    return items if media else {"result": "\n".join(texts)}


def resource_value(result: mcp_types.ReadResourceResult, label: str, bytes_max: int) -> Any:
    """Return what `load_mcp_resource` returns for *result*; raises as `tool_value` does."""
    items = [_contents(each, label) for each in result.contents]
    media = [item for item in items if isinstance(item, Blob)]
    texts = [item for item in items if isinstance(item, str)]
    _check_size(texts, media, label, bytes_max)
    return items if media else {"result": "\n".join(texts)}


def text_of(messages: Iterable[mcp_types.PromptMessage], label: str, chars_max: int) -> str:
    """
    Return the texts of a prompt.

    Raises:
        McpError: There are none, or too many.
    """
    items = [_item(message.content, label) for message in messages]
    text = "\n\n".join(item for item in items if isinstance(item, str))
    if not text or len(text) > chars_max:
        found = "none" if not text else f"{len(text)} characters"
        msg = f"expected the prompt of the MCP server {label!r} to have a text of up to {chars_max} characters"
        raise McpError(f"{msg}, found {found}")
    return text


def _texts(blocks: Iterable[mcp_types.ContentBlock], label: str) -> list[str]:
    """The texts among the blocks; media are not looked at."""
    return [str(_item(block, label)) for block in blocks if not _is_media(block)]


def _is_media(block: mcp_types.ContentBlock) -> bool:
    if isinstance(block, mcp_types.EmbeddedResource):
        return isinstance(block.resource, mcp_types.BlobResourceContents)
    return isinstance(block, (mcp_types.ImageContent, mcp_types.AudioContent))


def _item(block: mcp_types.ContentBlock, label: str) -> str | Blob:
    if isinstance(block, mcp_types.TextContent):
        return block.text
    if isinstance(block, (mcp_types.ImageContent, mcp_types.AudioContent)):
        return _blob(block.data, block.mime_type, label)
    if isinstance(block, mcp_types.EmbeddedResource):
        return _contents(block.resource, label)
    about = {
        "uri": block.uri,
        "name": block.name,
        "title": block.title,
        "description": block.description,
        "mimeType": block.mime_type,
        "size": block.size,
    }
    known = {key: line(each, LABEL_CHARS_MAX) if isinstance(each, str) else each for key, each in about.items() if each}
    return dumps({"resource_link": known})


def _contents(resource: mcp_types.TextResourceContents | mcp_types.BlobResourceContents, label: str) -> str | Blob:
    if isinstance(resource, mcp_types.TextResourceContents):
        return resource.text
    return _blob(resource.blob, resource.mime_type or "application/octet-stream", label)


def _blob(data: str, mime_type: str, label: str) -> Blob:
    try:
        plain = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise McpError(f"expected media of the MCP server {label!r} in base64, found something else") from None
    if len(mime_type) > 200 or not _MIME_TYPE.fullmatch(mime_type):
        raise McpError(f"expected media of the MCP server {label!r} with a MIME type, found {line(mime_type, 80)!r}")
    return Blob(data=plain, mime_type=mime_type)


def _check_size(texts: Iterable[str], media: Iterable[Blob], label: str, bytes_max: int) -> None:
    size = sum(len(text.encode("utf-8", "replace")) for text in texts) + sum(len(blob.data) for blob in media)
    if size > bytes_max:
        msg = f"expected up to {bytes_max} bytes (result_bytes_max) from the MCP server {label!r}, found {size}"
        raise McpError(f"{msg}; ask for less at once")
