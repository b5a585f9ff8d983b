"""
What models, users and tools say to each other: `Content` made of `Part`s.

These are values: frozen, compared by content, safe to share between sessions, prompts and events. They carry the
names that `google.genai.types` gives them. Fields that a later version writes and this one does not know are kept in
`unknown_fields` and written back as they were.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeGuard, TypeVar

import attrs

from ._json import EMPTY_DICT, FrozenDict, check_text, freeze, shown
from .errors import InvalidValueError

__all__ = [
    "Blob",
    "CodeExecutionResult",
    "Content",
    "ExecutableCode",
    "FileData",
    "FunctionCall",
    "FunctionDeclaration",
    "FunctionResponse",
    "GenerateContentConfig",
    "Part",
    "UsageMetadata",
]

_T = TypeVar("_T")


# --- how fields are checked -------------------------------------------------------------------------------------------


def plain_text(value: object, path: str) -> str:
    """
    Return text that UTF-8 can write; a StrEnum, for example, as the plain string that will be read back.

    Raises:
        InvalidValueError: It is none; the message says that it was found at *path*.
    """
    if type(value) is str and value.isascii():
        return value
    if not isinstance(value, str):
        raise _wrong(path, "a string", value)
    return check_text(str.__str__(value), path)


def check_flag(value: object, path: str) -> None:
    """Raise InvalidValueError unless *value* is True, False or None."""
    if not (value is None or value is True or value is False):
        raise _wrong(path, "True, False or None", value)


def check_kind(value: object, path: str, *kinds: type) -> None:
    """Raise InvalidValueError unless *value* is one of *kinds*, or None."""
    if value is not None and not isinstance(value, kinds):
        raise _wrong(path, " or ".join(kind.__name__ for kind in kinds), value)


def frozen_object(value: object, path: str) -> FrozenDict:
    """Return a JSON object, frozen; raise InvalidValueError if it is none."""
    if not isinstance(value, dict):
        raise InvalidValueError(path, f"expected a dict, found {type(value).__name__}")
    frozen: FrozenDict = freeze(value, path)
    return frozen


def check_unknown(cls: Any, value: FrozenDict) -> None:
    """Raise InvalidValueError if one of the fields that *cls* shall not know is one that it has."""
    known = [one.name for one in attrs.fields(cls) if one.name in value and one.name != "unknown_fields"]
    if known:  # in JSON they would take the place of the fields themselves
        path = f"{cls.__name__}.unknown_fields"
        raise InvalidValueError(path, f"expected fields unknown to this version, found {', '.join(known)}")


def unknown_object(cls: Any, value: object) -> FrozenDict:
    """Return what a later version has written into a value of *cls*, frozen; raise InvalidValueError if it is wrong."""
    frozen = frozen_object(value, "unknown_fields")
    if frozen:
        check_unknown(cls, frozen)
    return frozen


def _wrong(path: str, expected: str, found: object) -> InvalidValueError:
    return InvalidValueError(path, f"expected {expected}, found {shown(found)}")


def _text(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is None and attribute.default is None:
        return
    plain = plain_text(value, f"{type(instance).__name__}.{attribute.name}")
    if plain is not value:
        object.__setattr__(instance, attribute.name, plain)


def text_field(**options: Any) -> Any:
    """A field that holds text that UTF-8 can write; None is accepted where the default is None."""
    return attrs.field(validator=_text, **options)


def object_field(name: str, **options: Any) -> Any:
    """A field that holds a JSON object, frozen."""
    if "default" not in options and "factory" not in options:
        options["default"] = EMPTY_DICT
    return attrs.field(converter=lambda value: frozen_object(value, name), metadata={"json": True}, **options)


def optional_object_field(name: str) -> Any:
    """A field that holds a JSON object, frozen, or None."""
    convert = attrs.converters.optional(lambda value: frozen_object(value, name))
    return attrs.field(default=None, converter=convert, metadata={"json": True})


def plain_int(value: object, path: str, least: int | None = None) -> int:
    """Return an integer that can be stored; raise InvalidValueError if it is none, or below *least*."""
    if isinstance(value, bool) or not isinstance(value, int) or (least is not None and value < least):
        raise _wrong(path, "an integer" if least is None else f"an integer of at least {least}", value)
    plain: int = freeze(value, path)
    return plain


def int_field(name: str, least: int | None = None) -> Any:
    """A field that holds an integer that can be stored, or None."""
    return attrs.field(default=None, converter=attrs.converters.optional(lambda value: plain_int(value, name, least)))


def _number(name: str, least: float | None, most: float | None) -> Any:
    bounds = [f"at {word} {bound}" for word, bound in (("least", least), ("most", most)) if bound is not None]
    expected = f"a finite number of {' and '.join(bounds)}" if bounds else "a finite number"
    low = -sys.float_info.max if least is None else least
    high = sys.float_info.max if most is None else most

    def convert(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise InvalidValueError(name, f"expected {expected}, found {shown(value)}")
        return float(value)

    return convert


def number_field(name: str, least: float | None = None, most: float | None = None) -> Any:
    """A field that holds a finite number within these bounds, as a float, or None."""
    return attrs.field(default=None, converter=attrs.converters.optional(_number(name, least, most)))


def _unknown(instance: object, attribute: attrs.Attribute[Any], value: FrozenDict) -> None:
    if value:
        check_unknown(type(instance), value)


def unknown_field() -> Any:
    """Where a value keeps the fields that a later version wrote into its JSON."""
    return attrs.field(
        default=EMPTY_DICT,
        repr=False,
        converter=lambda value: frozen_object(value, "unknown_fields"),
        validator=_unknown,
        metadata={"unknown": True},
    )


def unknown_field_written_out() -> Any:
    """The same in a class whose constructor is written out; in subclasses it has the other fields checked, too."""
    return attrs.field(default=EMPTY_DICT, repr=False, validator=check_in_subclass, metadata={"unknown": True})


def is_list(value: object) -> TypeGuard[Iterable[Any]]:
    """Whether *value* is a list of something, or can be made one; neither a text nor a dict is."""
    if type(value) is list or type(value) is tuple:
        return True
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, dict))


def changed(value: _T, /, **changes: Any) -> _T:
    """
    Return a copy of a value with some fields replaced by ones that are known to be valid.

    `attrs.evolve` checks every field again; this one is for fields that the runtime itself has made.
    """
    cls = type(value)
    copier = _COPIERS.get(cls) or (_copier_of(cls) if _is_ours(cls) else _copied)
    made: _T = copier(value, changes)
    return made


def _is_ours(cls: type) -> bool:
    return cls.__module__.startswith("minirun.")


_DRAFTS: dict[type, type] = {}
_COPIERS: dict[type, Callable[[Any, dict[str, Any]], Any]] = {}


def draft_of(cls: Any) -> type:
    """
    The draft of one of minirun's own frozen classes: another class of the same layout, whose instances may be changed.

    What is made as a draft becomes a value by `draft.__class__ = cls`. Until then its fields are set as ordinary
    attributes, which takes a tenth of the time of going around the guard of a frozen class, field by field.
    """
    made = _DRAFTS.get(cls)
    if made is None:
        bases, names = cls.__bases__, {"__slots__": cls.__slots__, "__module__": cls.__module__}
        if "__weakref__" in cls.__slots__:  # before Python 3.12 only a subclass has the same layout, then
            free = {"__setattr__": object.__setattr__, "__delattr__": object.__delattr__}
            bases, names = (cls,), {**names, "__slots__": (), **free}
        made = _DRAFTS[cls] = type(f"{cls.__name__}Draft", bases, names)
    return made


class _AroundTheGuard:
    """Sets the fields of a value whose class is somebody else's: of such a class no other one is made."""

    __slots__ = ("_value",)
    _value: object

    def __init__(self, value: object) -> None:
        object.__setattr__(self, "_value", value)

    def __setattr__(self, name: str, field: object) -> None:
        object.__setattr__(self._value, name, field)


def opened(value: object) -> Any:
    """
    Return what lets an `__init__`, which has checked the fields, set them one by one, and at last `__class__`: the same
    object as a draft.
    """
    cls = type(value)
    draft = _DRAFTS.get(cls)
    if draft is None:
        if not _is_ours(cls):
            return _AroundTheGuard(value)
        draft = draft_of(cls)
    object.__setattr__(value, "__class__", draft)
    return value


def check_in_subclass(instance: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    """
    The validator of one field of each class whose constructor is written out, and so runs no validators.

    A subclass whose constructor attrs makes does run it, when all fields are set: they become what the constructor
    that is written out makes of them, or it raises.
    """
    cls: Any = next(base for base in type(instance).__mro__ if _is_ours(base) and "__attrs_init__" in vars(base))
    names = [field.name for field in attrs.fields(cls)]
    checked = cls(**{name: getattr(instance, name) for name in names})
    for name in names:
        object.__setattr__(instance, name, getattr(checked, name))


def _copied(value: Any, changes: dict[str, Any]) -> Any:
    """Copy a value of somebody else's class, whose fields may stand in slots of several classes, or in a dict."""
    cls = type(value)
    copy = object.__new__(cls)
    for base in cls.__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__weakref__", "__dict__") and hasattr(value, name):
                object.__setattr__(copy, name, getattr(value, name))
    if hasattr(value, "__dict__"):
        copy.__dict__.update(value.__dict__)
    for name, field in changes.items():
        object.__setattr__(copy, name, field)
    return copy


def _copier_of(cls: Any) -> Callable[[Any, dict[str, Any]], Any]:
    """The function that copies a value of this class and changes some fields, compiled when it is first asked for."""
    names = [name for name in cls.__slots__ if name != "__weakref__"]  # attrs has put them there
    lines = [
        "def copy(value, changes):",
        "    made = new(Draft)",
        *(f"    made.{name} = value.{name}" for name in names),
        "    for name in changes:",
        "        setattr(made, name, changes[name])",
        "    made.__class__ = cls",
        "    return made",
    ]
    scope: dict[str, Any] = {"new": object.__new__, "Draft": draft_of(cls), "cls": cls}
    exec("\n".join(lines), scope)
    copier: Callable[[Any, dict[str, Any]], Any] = scope["copy"]
    _COPIERS[cls] = copier
    return copier


class _Makers(dict[Any, Any]):
    """
    By class: a function that makes a value of fields, given by name, that are known to be valid; compiled on first use.

    Fields that are left out have their defaults. What somebody else may have made goes through the class itself.
    """

    def __missing__(self, cls: Any) -> Any:
        defaults = {field.name: field.default for field in attrs.fields(cls)}
        lines = [
            f"def make({', '.join(f'{name}=defaults[{name!r}]' for name in defaults)}):",
            "    made = new(Draft)",
            *(f"    made.{name} = {name}" for name in defaults),
            "    made.__class__ = cls",
            "    return made",
        ]
        scope = {"new": object.__new__, "Draft": draft_of(cls), "cls": cls, "defaults": defaults}
        exec("\n".join(lines), scope)
        self[cls] = scope["make"]
        return scope["make"]


MAKE = _Makers()


# --- the values ----------------------------------------------------------------------------------------------------


def _bytes(value: object) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):  # JSON has no bytes: there they are base64
        try:
            return base64.b64decode(value, validate=True)
        except ValueError as error:
            raise InvalidValueError("data", f"expected base64, found {value!r:.40} ({error})") from None
    raise InvalidValueError("data", f"expected bytes, found {type(value).__name__}")


class Value:
    """The base of all values: shown without the fields that were not given; equal by content, and so not hashable."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # they hold dicts

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if other.__class__ is not self.__class__:
            return NotImplemented
        fields = attrs.fields(type(self))  # type: ignore[arg-type]  # every subclass is an attrs class
        return all(getattr(self, field.name) == getattr(other, field.name) for field in fields)

    def __repr__(self) -> str:
        fields = attrs.fields(type(self))  # type: ignore[arg-type]  # every subclass is an attrs class
        # None for what is not there yet: a value that is refused is shown half made by tracebacks with locals.
        given = ((field.name, getattr(self, field.name, None)) for field in fields if field.repr)
        shown = ", ".join(f"{name}={value!r}" for name, value in given if value is not None and value not in ((), {}))
        return f"{type(self).__name__}({shown})"


@attrs.frozen(kw_only=True, slots=True, weakref_slot=False, eq=False, repr=False)
class Blob(Value):
    """Bytes and what they are (`image/png`). In JSON the bytes are base64."""

    data: bytes = attrs.field(converter=_bytes, metadata={"bytes": True})
    mime_type: str = text_field()
    display_name: str | None = text_field(default=None)
    unknown_fields: Mapping[str, Any] = unknown_field()


@attrs.frozen(kw_only=True, slots=True, weakref_slot=False, eq=False, repr=False)
class FileData(Value):
    """A file that lies elsewhere, by its URI."""

    file_uri: str = text_field()
    mime_type: str | None = text_field(default=None)
    display_name: str | None = text_field(default=None)
    unknown_fields: Mapping[str, Any] = unknown_field()


@attrs.frozen(kw_only=True, slots=True, init=False, weakref_slot=False, eq=False, repr=False)
class FunctionCall(Value):
    """What a model asks for. `id` is None until the call is emitted; then it matches `[A-Za-z0-9_-]{1,40}`."""

    name: str
    args: Mapping[str, Any] = attrs.field(default=EMPTY_DICT, metadata={"json": True})
    id: str | None = None
    unknown_fields: Mapping[str, Any] = unknown_field_written_out()

    def __init__(
        self,
        *,
        name: str,
        args: Mapping[str, object] = EMPTY_DICT,
        id: str | None = None,
        unknown_fields: Mapping[str, object] = EMPTY_DICT,
    ) -> None:
        name = plain_text(name, "FunctionCall.name")
        if args is not EMPTY_DICT:
            args = frozen_object(args, "FunctionCall.args")
        if id is not None:
            id = plain_text(id, "FunctionCall.id")
        cls = type(self)
        if unknown_fields is not EMPTY_DICT:
            unknown_fields = unknown_object(cls, unknown_fields)
        draft = opened(self)
        draft.name = name
        draft.args = args
        draft.id = id
        draft.unknown_fields = unknown_fields
        draft.__class__ = cls


@attrs.frozen(kw_only=True, slots=True, init=False, weakref_slot=False, eq=False, repr=False)
class FunctionResponse(Value):
    """What a tool answered. `id` is that of the call; an answer that holds the key `error` is a failure."""

    name: str
    response: Mapping[str, Any] = attrs.field(default=EMPTY_DICT, metadata={"json": True})
    id: str | None = None
    unknown_fields: Mapping[str, Any] = unknown_field_written_out()

    def __init__(
        self,
        *,
        name: str,
        response: Mapping[str, object] = EMPTY_DICT,
        id: str | None = None,
        unknown_fields: Mapping[str, object] = EMPTY_DICT,
    ) -> None:
        name = plain_text(name, "FunctionResponse.name")
        if response is not EMPTY_DICT:
            response = frozen_object(response, "FunctionResponse.response")
        if id is not None:
            id = plain_text(id, "FunctionResponse.id")
        cls = type(self)
        if unknown_fields is not EMPTY_DICT:
            unknown_fields = unknown_object(cls, unknown_fields)
        draft = opened(self)
        draft.name = name
        draft.response = response
        draft.id = id
        draft.unknown_fields = unknown_fields
        draft.__class__ = cls


@attrs.frozen(kw_only=True, slots=True, weakref_slot=False, eq=False, repr=False)
class ExecutableCode(Value):
    """Code that a model wants to be run."""

    code: str = text_field()
    language: str | None = text_field(default=None)
    unknown_fields: Mapping[str, Any] = unknown_field()


@attrs.frozen(kw_only=True, slots=True, weakref_slot=False, eq=False, repr=False)
class CodeExecutionResult(Value):
    """What running the code gave."""

    outcome: str | None = text_field(default=None)
    output: str | None = text_field(default=None)
    unknown_fields: Mapping[str, Any] = unknown_field()


_PAYLOADS = (
    "text",
    "inline_data",
    "file_data",
    "function_call",
    "function_response",
    "executable_code",
    "code_execution_result",
)


@attrs.frozen(kw_only=True, slots=True, init=False, weakref_slot=False, eq=False, repr=False)
class Part(Value):
    """
    One piece of a message; it has exactly one payload.

    `thought` marks text that a model thought rather than said; `thought_signature` is the provider's seal on it.
    """

    text: str | None = None
    thought: bool | None = None
    thought_signature: bytes | None = attrs.field(default=None, metadata={"bytes": True})
    inline_data: Blob | None = None
    file_data: FileData | None = None
    function_call: FunctionCall | None = None
    function_response: FunctionResponse | None = None
    executable_code: ExecutableCode | None = None
    code_execution_result: CodeExecutionResult | None = None
    unknown_fields: Mapping[str, Any] = unknown_field_written_out()

    def __init__(
        self,
        *,
        text: str | None = None,
        thought: bool | None = None,
        thought_signature: bytes | str | None = None,
        inline_data: Blob | None = None,
        file_data: FileData | None = None,
        function_call: FunctionCall | None = None,
        function_response: FunctionResponse | None = None,
        executable_code: ExecutableCode | None = None,
        code_execution_result: CodeExecutionResult | None = None,
        unknown_fields: Mapping[str, object] = EMPTY_DICT,
    ) -> None:
        count = 0
        if text is not None:
            if type(text) is not str or not text.isascii():
                text = plain_text(text, "Part.text")
            count = 1
        if thought is not None:
            check_flag(thought, "Part.thought")
        if thought_signature is not None:
            thought_signature = _bytes(thought_signature)
        if inline_data is not None:
            check_kind(inline_data, "Part.inline_data", Blob)
            count += 1
        if file_data is not None:
            check_kind(file_data, "Part.file_data", FileData)
            count += 1
        if function_call is not None:
            check_kind(function_call, "Part.function_call", FunctionCall)
            count += 1
        if function_response is not None:
            check_kind(function_response, "Part.function_response", FunctionResponse)
            count += 1
        if executable_code is not None:
            check_kind(executable_code, "Part.executable_code", ExecutableCode)
            count += 1
        if code_execution_result is not None:
            check_kind(code_execution_result, "Part.code_execution_result", CodeExecutionResult)
            count += 1
        cls = type(self)
        if unknown_fields is not EMPTY_DICT:
            unknown_fields = unknown_object(cls, unknown_fields)
        draft = opened(self)
        draft.text = text
        draft.thought = thought
        draft.thought_signature = thought_signature
        draft.inline_data = inline_data
        draft.file_data = file_data
        draft.function_call = function_call
        draft.function_response = function_response
        draft.executable_code = executable_code
        draft.code_execution_result = code_execution_result
        draft.unknown_fields = unknown_fields
        draft.__class__ = cls
        if count != 1:
            self._check_payload()

    def _check_payload(self) -> None:
        found = [name for name in _PAYLOADS if getattr(self, name) is not None]
        if not found and (self.unknown_fields or self.thought_signature is not None):
            return
        problem = f"expected exactly one of {', '.join(_PAYLOADS)}, found {' and '.join(found) or 'none'}"
        raise InvalidValueError("Part", problem)


def _parts(value: Iterable[Part] | None) -> tuple[Part, ...]:
    if value is None:
        return ()
    if type(value) is not list and not is_list(value):
        problem = f"expected a list of Part, found {type(value).__name__}; write [Part(text=...)]"
        raise InvalidValueError("Content.parts", problem)
    parts = tuple(value)
    for index, part in enumerate(parts):
        if not isinstance(part, Part):
            raise InvalidValueError(f"Content.parts[{index}]", f"expected a Part, found {type(part).__name__}")
    return parts


@attrs.frozen(kw_only=True, slots=True, init=False, weakref_slot=False, eq=False, repr=False)
class Content(Value):
    """What one side said, as parts. `role` is `user` (also for tools' answers) or `model`."""

    parts: Sequence[Part] = ()
    role: str | None = None
    unknown_fields: Mapping[str, Any] = unknown_field_written_out()

    def __init__(
        self,
        *,
        parts: Iterable[Part] | None = (),
        role: str | None = None,
        unknown_fields: Mapping[str, object] = EMPTY_DICT,
    ) -> None:
        parts = _parts(parts)
        if role is not None and (type(role) is not str or not role.isascii()):
            role = plain_text(role, "Content.role")
        cls = type(self)
        if unknown_fields is not EMPTY_DICT:
            unknown_fields = unknown_object(cls, unknown_fields)
        draft = opened(self)
        draft.parts = parts
        draft.role = role
        draft.unknown_fields = unknown_fields
        draft.__class__ = cls

    @property
    def text(self) -> str:
        """The text parts joined, thoughts left out."""
        return "".join(part.text for part in self.parts if part.text and not part.thought)


@attrs.frozen(kw_only=True, slots=True, weakref_slot=False, eq=False, repr=False)
class UsageMetadata(Value):
    """Token counts as the provider reported them."""

    prompt_token_count: int | None = int_field("UsageMetadata.prompt_token_count")
    candidates_token_count: int | None = int_field("UsageMetadata.candidates_token_count")
    total_token_count: int | None = int_field("UsageMetadata.total_token_count")
    cached_content_token_count: int | None = int_field("UsageMetadata.cached_content_token_count")
    thoughts_token_count: int | None = int_field("UsageMetadata.thoughts_token_count")
    unknown_fields: Mapping[str, Any] = unknown_field()


@attrs.frozen(kw_only=True, slots=True, weakref_slot=False, eq=False, repr=False)
class FunctionDeclaration(Value):
    """A tool as a model sees it: `parameters` is a JSON schema of type object."""

    name: str = text_field()
    description: str = text_field(default="")
    parameters: Mapping[str, Any] = object_field("FunctionDeclaration.parameters")


def declarations(value: Iterable[FunctionDeclaration]) -> tuple[FunctionDeclaration, ...]:
    """Return what the field `tools` holds; raise InvalidValueError if it cannot."""
    path = "GenerateContentConfig.tools"
    if not is_list(value):
        raise InvalidValueError(path, f"expected a list of FunctionDeclaration, found {shown(value)}")
    tools = tuple(value)
    for index, tool in enumerate(tools):
        if not isinstance(tool, FunctionDeclaration):
            problem = f"expected a FunctionDeclaration, found {shown(tool)}; a tool has one, its `declaration`"
            raise InvalidValueError(f"{path}[{index}]", problem)
    return tools


def _stop_sequences(value: Sequence[str]) -> tuple[str, ...]:
    path = "GenerateContentConfig.stop_sequences"
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise InvalidValueError(path, f"expected a list of strings, found {shown(value)}")
    for index, text in enumerate(value):
        if not isinstance(text, str) or not text:
            raise InvalidValueError(f"{path}[{index}]", f"expected text that is not empty, found {shown(text)}")
    return tuple(freeze(text, f"{path}[{index}]") for index, text in enumerate(value))


@attrs.frozen(kw_only=True, slots=True, weakref_slot=False, eq=False, repr=False)
class GenerateContentConfig(Value):
    """
    What goes to a model beside the contents. None leaves the choice to the provider.

    Bounds are checked where they are the same for every provider; what a provider makes of the rest is its own.

    Args:
        system_instruction: What the model is told before the conversation.
        tools: What the model may call.
        temperature: How freely it chooses its words, from 0.
        top_p: It chooses among the likeliest tokens that together have this probability, 0 to 1.
        top_k: It chooses among this many of the likeliest tokens.
        max_output_tokens: Where the answer is cut off, in tokens, from 1.
        stop_sequences: Texts that end the answer where they would come next.
        presence_penalty: How much tokens that were used are avoided, at once.
        frequency_penalty: How much tokens that were used are avoided, with every use.
        seed: The same seed asks for the same answer to the same question; few providers promise it.
        response_mime_type: The format of the answer, such as `application/json`.
        response_schema: The JSON schema of the answer, a dict.
    """

    system_instruction: str | None = text_field(default=None)
    tools: Sequence[FunctionDeclaration] = attrs.field(default=(), converter=declarations)
    temperature: float | None = number_field("GenerateContentConfig.temperature", least=0)
    top_p: float | None = number_field("GenerateContentConfig.top_p", least=0, most=1)
    top_k: int | None = int_field("GenerateContentConfig.top_k")
    max_output_tokens: int | None = int_field("GenerateContentConfig.max_output_tokens", least=1)
    stop_sequences: Sequence[str] | None = attrs.field(
        default=None, converter=attrs.converters.optional(_stop_sequences)
    )
    presence_penalty: float | None = number_field("GenerateContentConfig.presence_penalty")
    frequency_penalty: float | None = number_field("GenerateContentConfig.frequency_penalty")
    seed: int | None = int_field("GenerateContentConfig.seed")
    response_mime_type: str | None = text_field(default=None)
    response_schema: Mapping[str, Any] | None = optional_object_field("GenerateContentConfig.response_schema")
