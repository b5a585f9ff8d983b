"""Files in the user's message: kept as artifacts, not in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._json import FrozenTuple, dumps
from .._values import changed
from ..artifacts._values import USER_PREFIX, check_filename
from ..errors import InvalidValueError
from ..flows._words import check_words
from ..types import Blob, Content, Part
from ._base import BasePlugin

if TYPE_CHECKING:
    from ..runtime import InvocationContext

__all__ = ["SaveFilesAsArtifactsPlugin"]

PLACEHOLDER = '[The user has uploaded the file "{filename}", version {version}: {mime_type}, {size} bytes.]'


class SaveFilesAsArtifactsPlugin(BasePlugin):
    """
    Saves the files (`inline_data`) in the user's message as artifacts of the session, and puts a text in their place.

    The event of the message names their versions in its `artifact_delta`. An artifact has the file's `display_name` if
    that can be its name; else, and for a second file of one name in the message, `upload_<invocation id>_<number>`,
    where the number is that of the part, from 0. A name that begins with `user:` is not taken: whose file it is, is not
    for the message to say.

    A plugin that returns a message of its own hides the message from those after it, so this one is to be listed before
    whichever rewrites the texts of messages, and that one sees nothing if there was a file: let it rewrite them in
    `on_event_callback`, or look for files itself.

    Files are saved before the message is stored. If it is not, because another plugin fails, say, an artifact service
    that shares the session's file drops them; others keep versions that no event names.

    Args:
        name: The name of the plugin.
        placeholder: The text in the place of a file; `{filename}`, `{version}`, `{mime_type}` and `{size}` (in bytes)
            are filled in, the texts as between the quotes of a JSON string: a name is data, of any origin.

    Raises:
        ConfigurationError: The placeholder is no such text.

    A Runner without an artifact service refuses it (ServiceNotConfiguredError).
    """

    needs_service = "artifact_service"

    def __init__(self, name: str = "save_files_as_artifacts", *, placeholder: str = PLACEHOLDER) -> None:
        super().__init__(name)
        check_words(placeholder, ("filename", "version", "mime_type", "size"), "placeholder")
        self._placeholder = placeholder

    async def on_user_message_callback(
        self, *, invocation_context: InvocationContext, user_message: Content
    ) -> Content | None:
        """Save the files of the message, and return it without them."""
        parts: list[Part] = []
        names: set[str] = set()
        for index, part in enumerate(user_message.parts):
            blob = part.inline_data
            if blob is None:
                parts.append(part)
                continue
            filename = _display_name(blob)
            if filename is None or filename in names:
                filename = f"upload_{invocation_context.invocation_id}_{index}"
            names.add(filename)
            version = await invocation_context.save_artifact(filename, part)
            text = self._placeholder.format(
                filename=_quoted(filename), version=version, mime_type=_quoted(blob.mime_type), size=len(blob.data)
            )
            parts.append(Part(text=text))
        return changed(user_message, parts=FrozenTuple(parts)) if names else None


def _quoted(text: str) -> str:
    return dumps(text)[1:-1]


def _display_name(blob: Blob) -> str | None:
    """What the file is called, if an artifact of the session can be called so."""
    name = blob.display_name
    if not name or name.startswith(USER_PREFIX):
        return None
    try:
        return check_filename(name)
    except InvalidValueError:
        return None
