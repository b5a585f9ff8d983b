"""
What must not be said: the secrets that a run was given, taken out of all that it writes.

Rules of this file:

1.  Only what is free to say is searched: texts, and the strings in arguments, results, the state and metadata. What a
    log is held together by stays as it is: names of agents, tools and keys, ids, roles, kinds of errors. A new name
    with a secret in it is refused (SecretError) instead, and so are a state, an artifact and a memory.
2.  A secret of `SECRET_CHARS_MIN` characters or more is found anywhere in a text; a shorter one, where it is the whole
    text; one of `SECRET_DIGITS_MIN` digits or more also as a number.
3.  Nothing here fails a run: an exception that cannot be changed is left, and its secret is taken out where it is
    written.

A run that was given none pays nothing for it; one that was, a look at each event that it says. This is the last line of
defence: it does not find what was encoded in between, nor what the variables of somebody's frames hold, nor what was
written to the state before the secret was asked for.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from .._json import FrozenTuple, dumps, freeze
from .._values import Value, changed
from ..errors import SecretError
from ..events import READS_LEVEL, Event, EventActions, Replay
from ..flows._no_secrets import NoSecrets
from ..flows._questions import QUESTIONS
from ..sessions._state import NO_VALUES, Extend
from ..types import (
    CodeExecutionResult,
    Content,
    ExecutableCode,
    FileData,
    FunctionCall,
    FunctionResponse,
    Part,
    Transcription,
)

if TYPE_CHECKING:
    from ..credentials import AuthCredential

__all__ = ["HIDDEN", "SECRET_CHARS_MIN", "SECRET_DIGITS_MIN", "Secrets"]

HIDDEN = "[secret]"
"""What stands in the place of a secret."""

# Shorter ones are parts of ordinary words and numbers; what is worth keeping secret is longer.
SECRET_CHARS_MIN = 8
SECRET_DIGITS_MIN = 6

# These are no secrets, and are said for good reasons.
_TOLD = ("username", "client_id", "scope", "issuer")

# Where an OSError keeps what it says, beside its arguments.
_OF_OS_ERRORS = ("strerror", "filename", "filename2")

# The fields of values that are free to say; all others are names, ids, kinds and numbers, or are looked at one by one.
_FREE: Final[Mapping[type, tuple[str, ...]]] = {
    Event: (
        "content", "actions", "error_message", "output", "partial_output", "custom_metadata", "grounding_metadata",
        "citation_metadata", "input_transcription", "output_transcription", "unknown_fields",
    ),
    Transcription: ("text", "unknown_fields"),
    EventActions: (
        "state_delta",
        "state_ops",
        "replay",
        "requested_tool_confirmations",
        "agent_state",
        "route",
        "render_ui_widgets",
        "unknown_fields",
    ),
    Content: ("parts", "unknown_fields"),
    Part: (
        "text",
        "file_data",
        "function_call",
        "function_response",
        "executable_code",
        "code_execution_result",
        "unknown_fields",
    ),
    FileData: ("file_uri", "display_name", "unknown_fields"),
    FunctionCall: ("args", "args_text", "unknown_fields"),
    FunctionResponse: ("response", "parts", "unknown_fields"),
    ExecutableCode: ("code", "unknown_fields"),
    CodeExecutionResult: ("output", "unknown_fields"),
}
# In the questions of the framework itself: what says how they are to be answered, and by whom.
_FORM = frozenset({"response_schema", "functionCallId", "authConfig", "id", "name", "until"})
# In the record of an attempt of a node run: what says of which, and when the next one begins.
_OF_ATTEMPTS = frozenset({"run", "number", "due"})
# What is no text in what is stored beside events.
_NAMES = frozenset({"id", "author", "role", "session_id", "mime_type", "timestamp", "score"})


class Secrets(NoSecrets):
    """The secrets that a run was given. They are in no text made of this."""

    are_known = True

    __slots__ = ("_bytes", "_forms", "_numbers", "_texts", "_whole")

    def __init__(self) -> None:
        self._whole: frozenset[str] = frozenset()
        self._texts: tuple[str, ...] = ()  # the longest first, as one may be a part of another
        self._forms: tuple[str, ...] = ()  # these, also as JSON and Python write them
        self._bytes: tuple[bytes, ...] = ()
        self._numbers: frozenset[str] = frozenset()

    def know(self, credential: AuthCredential) -> None:
        """From here on, what *credential* holds is taken out."""
        found = {credential.reveal(name) for name in credential.names if name not in _TOLD} - self._whole
        if not found:
            return
        self._whole |= found
        self._texts = _longest_first(text for text in self._whole if len(text) >= SECRET_CHARS_MIN and text != HIDDEN)
        self._forms = _longest_first(form for text in self._texts for form in _forms(text))
        self._bytes = tuple(text.encode() for text in self._texts)
        self._numbers = frozenset(
            text for text in self._whole if len(text) >= SECRET_DIGITS_MIN and text.isascii() and text.isdigit()
        )

    # --- what is taken out

    @property
    def hide(self) -> Callable[[str], str]:  # type: ignore[override]  # a method in the place of an attribute
        """What takes them out of a text."""
        return self.out_of_text

    def out_of_text(self, value: str) -> str:
        """Return a text without them, however they are written in it."""
        if value in self._whole:
            return HIDDEN
        for form in self._forms:
            if form in value:
                value = value.replace(form, HIDDEN)
        return value

    def out_of_event(self, event: Event) -> Event:
        """Return *event* without them: the same object, if it has none."""
        found: Event = self.out_of(event)
        return found

    def out_of(self, value: Any) -> Any:
        """
        Return a JSON value, or one of this package's values, without them: the same object, if it has none.

        Its shape is as before: lists and objects have as many items, under the same keys.
        """
        if not self._whole:
            return value
        if isinstance(value, str):
            return self.out_of_text(value)
        if isinstance(value, int) and self._numbers and not isinstance(value, bool):
            return HIDDEN if _digits(value) in self._numbers else value
        if isinstance(value, dict):
            return self._out_of_items(value, value.items())
        if isinstance(value, (list, tuple)):
            items = [self.out_of(item) for item in value]
            if all(new is old for new, old in zip(items, value, strict=True)):
                return value
            return FrozenTuple(items) if isinstance(value, tuple) else freeze(items)
        return self._out_of_fields(value) if type(value) in _FREE else value

    def _out_of_items(self, value: Any, searched: Iterable[tuple[str, Any]]) -> Any:
        changes = {name: new for name, old in searched if (new := self.out_of(old)) is not old}
        return freeze({**value, **changes}) if changes else value

    def _out_of_fields(self, value: Value) -> Any:
        changes = {}
        for name in _FREE[type(value)]:
            old = getattr(value, name)
            if not old:
                continue
            if name == "replay":
                new = self._out_of_replay(old)
            elif name == "state_ops":  # a number that is added is none that is told
                new = self._out_of_items(old, [item for item in old.items() if "extend" in item[1]])
            elif name == "args" and isinstance(value, FunctionCall) and value.name in QUESTIONS:
                new = self._out_of_question(old)
            else:
                new = self.out_of(old)
            if new is not old:
                changes[name] = new
        return changed(value, **changes) if changes else value

    def _out_of_question(self, args: Any) -> Any:
        """What the framework asks: what says how it is to be answered stays."""
        changes = {}
        for name, old in args.items():
            if name in _FORM:
                continue
            new = self._out_of_question(old) if name == "originalFunctionCall" else self.out_of(old)
            if new is not old:
                changes[name] = new
        return freeze({**args, **changes}) if changes else args

    def _out_of_replay(self, replay: Replay) -> Replay:
        """What agents are served again: what they have read of the state, what a step or attempt has failed with."""
        changes: dict[str, Any] = {}
        failed = replay.failed
        if failed is not None and (args := self.out_of(failed.args)) is not failed.args:
            changes["failed"] = changed(failed, args=args)
        attempt = replay.attempt
        if attempt is not None:
            told = self._out_of_items(attempt, [item for item in attempt.items() if item[0] not in _OF_ATTEMPTS])
            if told is not attempt:
                changes["attempt"] = told
        reads = {
            reader: self._out_of_items(seen, [item for item in seen.items() if not item[0].startswith("temp:")])
            for reader, seen in replay.reads.items()
        }
        if any(seen is not replay.reads[reader] for reader, seen in reads.items()):
            changes["reads"] = freeze(reads, "reads", READS_LEVEL)
        return changed(replay, **changes) if changes else replay

    # --- what is refused

    def check_name(self, name: object, what: str) -> None:
        """
        Raise if one is in the name of something that is about to be made.

        Raises:
            SecretError: One is. The message, which begins with *what*, does not show it.
        """
        if self._whole and isinstance(name, str) and self._is_in(name):
            problem = "expected a name that everybody may see, found one with a secret in it; choose another"
            raise SecretError(what, problem)

    def check_value(self, value: Any, what: str) -> None:
        """
        Raise if one is in what is about to be stored.

        Raises:
            SecretError: One is, in a text, a key or bytes. The message, which begins with *what*, does not show it.
        """
        if self._whole:
            self.check_keys(value, what)
        if self._whole and any(self._is_in(text) for text in _texts_in(value)):
            raise SecretError(
                what, "expected what everybody may see, found a secret; let the code that needs it ask for it"
            )

    def check_write(self, key: object, value: Any) -> None:
        """Raise SecretError if one is in a key of the state, or in what is written under it."""
        if self._whole:
            self.check_name(key, "state key")
            held = value.items if type(value) is Extend else None if type(value) in NO_VALUES else value
            self.check_value(held, f"state[{key!r}]")

    def check_event(self, event: Event, *own_names: str | None) -> None:
        """Raise SecretError if *event* brings a name with a secret in it; *own_names* are those that there are."""
        if not self._whole:
            return
        if event.author not in own_names:
            self.check_name(event.author, "Event.author")
        for key in (*event.actions.state_delta, *event.actions.state_ops, *event.actions.state_removed):
            self.check_name(key, "state key")
        self.check_keys((event.output, event.custom_metadata, event.actions.state_delta), "Event")
        for name in event.actions.artifact_delta:
            self.check_name(name, "Event.actions.artifact_delta")

    def check_keys(self, value: Any, what: str) -> None:
        """
        Raise if one is a key somewhere in *value*, where it cannot be taken out.

        Raises:
            SecretError: One is. A secret of nothing but lower-case letters is let be: it may be an ordinary name.
        """
        texts = [text for text in self._texts if not (text.isalpha() and text.islower())]
        if texts and any(text in key for key in _keys(value) for text in texts):
            raise SecretError(what, "expected keys that everybody may see, found one with a secret in it")

    def _is_in(self, text: str | bytes | int) -> bool:
        if isinstance(text, bytes):
            return any(each in text for each in self._bytes)
        if isinstance(text, int):
            return _digits(text) in self._numbers
        return text in self._whole or any(form in text for form in self._forms)

    # --- exceptions

    def out_of_error(self, error: BaseException) -> None:
        """
        Take them out of what *error* says, and all that it came from: its arguments, attributes and notes.

        What refuses to be changed is left; `text_of` and `shown` are for who writes it. Raises nothing.
        """
        for one in _all_of(error) if self._whole else ():
            self._try_to_clean(one, "args", one.args)
            slots = (name for cls in type(one).__mro__ for name in _slots(cls))
            for name in (*_OF_OS_ERRORS, *list(vars(one)), *slots):
                try:
                    value = getattr(one, name, None)
                except Exception:
                    continue
                self._try_to_clean(one, name, value)

    def _try_to_clean(self, error: BaseException, name: str, value: Any) -> None:
        try:
            cleaned = self._out_of_any(value)
            if cleaned is not value:
                object.__setattr__(error, name, cleaned)  # of a frozen one, too
        except Exception:
            pass

    def _out_of_any(self, value: Any, depth: int = 0) -> Any:
        """What an exception holds, of whatever kinds; what cannot be looked into stays."""
        kind = type(value)
        if kind is str or kind is int:
            return self.out_of(value)
        if kind is bytes:
            for secret in self._bytes:
                value = value.replace(secret, HIDDEN.encode()) if secret in value else value
            return value
        if kind not in (tuple, list, dict) or depth > 20:
            return value
        if kind is dict:
            pairs = [self._out_of_any(pair, depth + 1) for pair in value.items()]
            is_same = all(new[0] is old[0] and new[1] is old[1] for new, old in zip(pairs, value.items(), strict=True))
            return value if is_same else dict(pairs)
        items = [self._out_of_any(each, depth + 1) for each in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else kind(items)

    def text_of(self, error: BaseException) -> str:
        """What *error* says, without them; empty if it cannot say anything."""
        return self.out_of_text(super().text_of(error))

    def shown(self, error: BaseException) -> BaseException:
        """
        Return what may be shown of *error*, with its traceback, in its place: itself, if nothing in it is secret.

        Else it is a stand-in of a class with the same name, with the same frames, and so is all that it came from.
        """
        if not self._whole:
            return error
        try:
            texts = str(error), "".join(traceback.format_exception(error))
            return self._stand_in(error, {}) if any(map(self._is_in, texts)) else error
        except Exception:  # it cannot even say what it is
            return self._stand_in(error, {})

    def _stand_in(self, error: BaseException, made: dict[int, BaseException]) -> BaseException:
        if id(error) in made:
            return made[id(error)]
        new: BaseException
        if isinstance(error, BaseExceptionGroup):
            members = [self._stand_in(each, made) for each in error.exceptions]
            new = BaseExceptionGroup(self.out_of_text(error.message), members)
        else:
            cls = type(error)
            names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
            new = type(cls.__name__, (Exception,), names)(self.text_of(error))
        made[id(error)] = new
        notes = getattr(error, "__notes__", ())
        for note in notes if isinstance(notes, (list, tuple)) else ():
            new.add_note(self.out_of_text(str(note)))
        new.__traceback__ = error.__traceback__
        new.__cause__ = None if error.__cause__ is None else self._stand_in(error.__cause__, made)
        new.__context__ = None if error.__context__ is None else self._stand_in(error.__context__, made)
        new.__suppress_context__ = error.__suppress_context__
        return new


def _longest_first(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(texts), key=lambda text: (-len(text), text)))


def _forms(text: str) -> Iterator[str]:
    """A text as it is, and as JSON, with other letters than ASCII or without, and Python write it in a text."""
    yield text
    yield dumps(text)[1:-1]
    yield json.dumps(text)[1:-1]
    yield repr(text)[1:-1]
    yield ascii(text)[1:-1]
    yield repr(text.encode())[2:-1]


def _digits(number: int) -> str:
    return str(number) if number.bit_length() < 1000 else ""  # CPython does not write the longest


def _slots(cls: type) -> tuple[str, ...]:
    slots = cls.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _all_of(error: BaseException) -> Iterator[BaseException]:
    """An exception, those in it, those that it came from, and those that they have as arguments."""
    found, seen = [error], set[int]()
    while found:
        one = found.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        if isinstance(one, BaseExceptionGroup):
            found += one.exceptions
        found += [other for other in (one.__cause__, one.__context__, *one.args) if isinstance(other, BaseException)]


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _keys(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _keys(item)


def _texts_in(value: Any) -> Iterator[str | bytes | int]:
    """All texts, numbers and bytes in a value that are no keys, names or ids."""
    if isinstance(value, (str, bytes, int)):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts_in(item)
    elif attrs.has(type(value)):
        for field in attrs.fields(type(value)):
            if field.name in _NAMES:
                continue
            yield from _texts_in(getattr(value, field.name))
