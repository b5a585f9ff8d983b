"""
A request that may still be changed: what `before_model` hooks get.

A draft is made from a request, and a request from the draft when the hooks are done. What is assigned is copied, and
refused at once where it is of the wrong kind; the whole is checked when the request is made. The contents are those
that the draft was made from until somebody changes them, so a hook that only looks costs nothing, however long the
history is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableSequence, Sequence
from typing import Any, overload

import attrs

from .._json import shown
from .._window import Extended, Window, inserted
from ..errors import InvalidValueError
from ..types import (
    Content,
    FunctionDeclaration,
    GenerateContentConfig,
    HttpOptions,
    SafetySetting,
    ThinkingConfig,
    ToolConfig,
)
from ._base import LlmRequest
from ._cache_config import ContextCacheConfig

__all__ = ["GenerateContentConfigDraft", "LlmRequestDraft"]


class _Contents(MutableSequence[Content]):
    """
    A list of contents that shares those of a request until it is changed; what is added near its end is its own then,
    and what stands before that is still shared.
    """

    __slots__ = ("_is_mine", "_items")
    __hash__ = None  # type: ignore[assignment]  # it changes, like a list

    def __init__(self, items: Sequence[Content], *, is_mine: bool = False) -> None:
        self._items = items
        self._is_mine = is_mine  # whether it is a list that nobody else has

    def _mine(self) -> list[Content]:
        if not self._is_mine:
            self._items, self._is_mine = list(self._items), True
        assert isinstance(self._items, list)
        return self._items

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> Content: ...
    @overload
    def __getitem__(self, index: slice) -> MutableSequence[Content]: ...
    def __getitem__(self, index: int | slice) -> Content | MutableSequence[Content]:
        return list(self._items[index]) if isinstance(index, slice) else self._items[index]

    def __iter__(self) -> Iterator[Content]:
        return iter(self._items)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._mine()[index] = value

    def __delitem__(self, index: int | slice) -> None:
        del self._mine()[index]

    def insert(self, index: int, value: Content) -> None:
        if isinstance(self._items, (Window, Extended)):
            count = len(self._items)
            place = max(count + index, 0) if index < 0 else min(index, count)
            self._items = inserted(self._items, place, value)
        else:
            self._mine().insert(index, value)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Sequence) and not isinstance(other, (str, bytes)):
            return len(self) == len(other) and all(mine == its for mine, its in zip(self, other, strict=True))
        return NotImplemented

    def __repr__(self) -> str:
        return repr(list(self))

    def frozen(self) -> Sequence[Content]:
        """The contents as they are now, checked; where nothing was changed, the very object they were made from."""
        if not self._items:
            problem = "expected at least one content, found none; keep the last one"
            raise InvalidValueError("LlmRequest.contents", problem)
        if isinstance(self._items, Extended):
            shared = len(self._items.shared)
            for index, content in enumerate(self._items.own):
                _checked_content(content, shared + index)
        if not self._is_mine:
            return self._items
        return tuple(_checked_content(content, index) for index, content in enumerate(self._items))


def _checked_content(value: object, index: int) -> Content:
    if not isinstance(value, Content):
        problem = f"expected a Content, found {shown(value)}; write `Content(role=..., parts=[...])`"
        raise InvalidValueError(f"LlmRequest.contents[{index}]", problem)
    return value


def _contents(value: Sequence[Content]) -> MutableSequence[Content]:
    if isinstance(value, _Contents):  # also what `draft.contents += ...` assigns
        return value
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise InvalidValueError("LlmRequest.contents", f"expected a list of Content, found {shown(value)}")
    return _Contents(list(value), is_mine=True)


def _checked_assignment(draft: object, attribute: attrs.Attribute[Any], value: Any) -> Any:
    """What a field of a config's draft becomes when *value* is assigned."""
    return _thawed(getattr(GenerateContentConfig(**{attribute.name: value}), attribute.name))


def _thawed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@attrs.define(kw_only=True, on_setattr=_checked_assignment)
class GenerateContentConfigDraft:
    """A `GenerateContentConfig` that may be changed: the same fields; what is a sequence there is a list."""

    system_instruction: str | None = None
    tools: list[FunctionDeclaration] = attrs.field(factory=list)
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_output_tokens: int | None = None
    stop_sequences: list[str] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    response_mime_type: str | None = None
    response_schema: Mapping[str, Any] | None = None
    tool_config: ToolConfig | None = None
    thinking_config: ThinkingConfig | None = None
    safety_settings: list[SafetySetting] | None = None
    http_options: HttpOptions | None = None
    labels: Mapping[str, str] | None = None
    cached_content: str | None = None
    extra_body: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, config: GenerateContentConfig) -> GenerateContentConfigDraft:
        """Return a draft that says what *config* says."""
        return cls(**{name: _thawed(getattr(config, name)) for name in _CONFIG_FIELDS})

    def frozen(self) -> GenerateContentConfig:
        """
        Return the config as it is now.

        Raises:
            InvalidValueError: A field is wrong, or two tools have one name.
        """
        config = GenerateContentConfig(**{name: getattr(self, name) for name in _CONFIG_FIELDS})
        names: set[str] = set()
        for tool in config.tools:
            if tool.name in names:
                problem = f"expected tools with different names, found two named {tool.name!r}; leave one out"
                raise InvalidValueError("GenerateContentConfig.tools", problem)
            names.add(tool.name)
        return config


_CONFIG_FIELDS = tuple(field.name for field in attrs.fields(GenerateContentConfig))


def _as_draft(value: GenerateContentConfig | GenerateContentConfigDraft) -> GenerateContentConfigDraft:
    if isinstance(value, GenerateContentConfig):
        return GenerateContentConfigDraft.of(value)
    if not isinstance(value, GenerateContentConfigDraft):
        raise InvalidValueError("LlmRequest.config", f"expected a GenerateContentConfig, found {shown(value)}")
    return value


def _text(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if not (value is None or isinstance(value, str)):
        raise InvalidValueError(f"LlmRequest.{attribute.name}", f"expected a name or None, found {shown(value)}")


def _caching(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if not (value is None or isinstance(value, ContextCacheConfig)):
        problem = f"expected a ContextCacheConfig or None, found {shown(value)}"
        raise InvalidValueError("LlmRequest.cache_config", problem)


def _metadata(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if not (value is None or isinstance(value, Mapping)):
        raise InvalidValueError("LlmRequest.cache_metadata", f"expected an object or None, found {shown(value)}")


@attrs.define(kw_only=True)
class LlmRequestDraft:
    """
    A request to a model, before it is made: change what it holds, or assign something else.

    Args:
        contents: The conversation, as a list. A content itself cannot change: put another one in its place.
        config: What goes with it: the system instruction, the tools and how to answer.
        model: What the request calls the model. The same model is asked, whatever stands here.
        cache_config: How the provider is to cache what the request begins with; None: as it does by itself.
        cache_key: The same for all requests that share a beginning.
        cache_metadata: What the log has of the provider's cache, a JSON object.
    """

    contents: MutableSequence[Content] = attrs.field(converter=_contents)
    config: GenerateContentConfigDraft = attrs.field(factory=GenerateContentConfigDraft, converter=_as_draft)
    model: str | None = attrs.field(default=None, validator=_text)
    cache_config: ContextCacheConfig | None = attrs.field(default=None, validator=_caching)
    cache_key: str | None = attrs.field(default=None, validator=_text)
    cache_metadata: Mapping[str, Any] | None = attrs.field(default=None, validator=_metadata)

    @classmethod
    def of(cls, request: LlmRequest) -> LlmRequestDraft:
        """Return a draft that says what *request* says."""
        return cls(
            contents=_Contents(request.contents),
            config=request.config,
            model=request.model,
            cache_config=request.cache_config,
            cache_key=request.cache_key,
            cache_metadata=request.cache_metadata,
        )

    def append_instructions(self, texts: Sequence[str]) -> None:
        """
        Add texts to the system instruction, after what is there, with a blank line before each.

        Raises:
            InvalidValueError: They are no list of strings.
        """
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
            problem = f"expected a list of strings, found {shown(texts)}; write `append_instructions([text])`"
            raise InvalidValueError("append_instructions", problem)
        told = [text for text in (self.config.system_instruction, *texts) if text]
        self.config.system_instruction = "\n\n".join(told) or None

    def append_tools(self, declarations: Sequence[FunctionDeclaration]) -> None:
        """
        Show the model more tools, after those that are there. A call of one that the agent does not have fails.

        Raises:
            InvalidValueError: They are no list of declarations.
        """
        self.config.tools.extend(GenerateContentConfig(tools=declarations).tools)

    def frozen(self) -> LlmRequest:
        """
        Return the request as it is now. Its contents, if they were not changed, are the object it was made from.

        Raises:
            InvalidValueError: It cannot be asked; the message begins with the path to what is wrong.
        """
        assert isinstance(self.contents, _Contents)  # whatever was assigned has become one
        return LlmRequest(
            contents=self.contents.frozen(),
            config=self.config.frozen(),
            model=self.model,
            cache_config=self.cache_config,
            cache_key=self.cache_key,
            cache_metadata=self.cache_metadata,
        )
