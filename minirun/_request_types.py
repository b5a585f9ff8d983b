"""
Settings of a request that few programs give: how tools are chosen, how the model thinks, what is blocked, time-outs.

`minirun.types` has these names; the module is loaded when one of them is asked for, or such a setting is given. Each
setting may also be given as a dict of its fields, as JSON has it. What a provider does not have, its adapter refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import attrs

from ._fields import EMPTY_LIST, FLAG, OBJECT, TEXT, checked, integer, is_list
from ._json import COUNT_MAX, FrozenTuple, brief, freeze, shown
from ._values import Value, check_in_subclass, constructed
from .errors import InvalidValueError

__all__ = [
    "CHECKS", "FunctionCallingConfig", "HttpOptions", "SafetySetting", "ThinkingConfig", "ToolConfig", "check_media",
]

MODES = ("AUTO", "ANY", "NONE", "VALIDATED")


def _value(cls: Any) -> Callable[[object, str], Any]:
    """The check of a field that holds one of *cls*: it takes a dict of its fields, too."""

    def check(value: object, path: str) -> Any:
        if isinstance(value, cls):
            return value
        names = [field.name for field in attrs.fields(cls)]
        if not isinstance(value, Mapping) or not value.keys() <= set(names):
            expected = f"expected a {cls.__name__}, or a dict of its fields {', '.join(names)}"
            raise InvalidValueError(path, f"{expected}, found {shown(value)}")
        try:
            return cls(**value)
        except TypeError:  # one that must be there is not
            problem = f"expected the fields {', '.join(names)}, found {shown(value)}"
            raise InvalidValueError(path, problem) from None

    return check


def _text(value: object, path: str) -> str:
    text: str = TEXT["check"](value, path)
    if not text.strip():
        raise InvalidValueError(path, f"expected text that is not empty, found {shown(value)}")
    return text


def _texts(value: object, path: str) -> tuple[str, ...]:
    if not is_list(value):
        raise InvalidValueError(path, f"expected a list of strings, found {shown(value)}")
    return FrozenTuple([_text(text, f"{path}[{index}]") for index, text in enumerate(value)])


def _mode(value: object, path: str) -> str:
    mode = str.__str__(value).upper() if isinstance(value, str) else value
    if mode not in MODES:
        raise InvalidValueError(path, f"expected one of {', '.join(MODES)}, found {shown(value)}")
    return str(mode)


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class FunctionCallingConfig(Value):
    """
    Whether a model has to call a tool.

    Args:
        mode: `"AUTO"`: it decides; `"ANY"`: it calls at least one; `"NONE"`: it calls none; `"VALIDATED"`: it decides,
            and its calls keep to the schemas of the tools.
        allowed_function_names: With `ANY` and `VALIDATED`: the tools that it may call; empty: all.
    """

    mode: Literal["AUTO", "ANY", "NONE", "VALIDATED"] = attrs.field(default="AUTO", metadata=checked(_mode))
    allowed_function_names: Sequence[str] = attrs.field(
        default=EMPTY_LIST, validator=check_in_subclass, metadata=checked(_texts)
    )

    def _check_whole(self) -> None:
        if self.allowed_function_names and self.mode not in ("ANY", "VALIDATED"):
            problem = f"expected none with mode {self.mode!r}, found {shown(list(self.allowed_function_names))}"
            raise InvalidValueError("FunctionCallingConfig.allowed_function_names", f"{problem}; set mode='ANY'")


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class ToolConfig(Value):
    """How a model is to use the tools of a request."""

    function_calling_config: FunctionCallingConfig | None = attrs.field(
        default=None, validator=check_in_subclass, metadata=checked(_value(FunctionCallingConfig))
    )


def _level(value: object, path: str) -> str:
    return _text(value, path).lower()


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class ThinkingConfig(Value):
    """
    How much a model thinks before it answers. None leaves it to the provider.

    Args:
        include_thoughts: Whether its thoughts come with the answer, as parts with `thought=True`.
        thinking_budget: At most so many tokens of thoughts; 0: none; -1: as many as the model finds right.
        thinking_level: The provider's word for it, such as `"minimal"`, `"low"`, `"medium"` or `"high"`.
    """

    include_thoughts: bool | None = attrs.field(default=None, metadata=FLAG)
    thinking_budget: int | None = attrs.field(default=None, metadata=integer(-1, COUNT_MAX))
    thinking_level: str | None = attrs.field(default=None, validator=check_in_subclass, metadata=checked(_level))


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class SafetySetting(Value):
    """From which threshold a provider blocks one category of harm, both by the provider's words."""

    category: str = attrs.field(metadata=checked(_text))
    threshold: str = attrs.field(validator=check_in_subclass, metadata=checked(_text))


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class HttpOptions(Value):
    """
    How one request is sent.

    Args:
        timeout: How long the provider may take, until its answer begins and between two pieces of it, in milliseconds.

    Raises:
        NotSupportedError: Another option of ADK's, which is a setting of the model object here.
    """

    timeout: int | None = attrs.field(
        default=None, validator=check_in_subclass, metadata=integer(least=1, most=COUNT_MAX)
    )


def _safety_settings(value: object, path: str) -> tuple[SafetySetting, ...]:
    if not is_list(value):
        raise InvalidValueError(path, f"expected a list of SafetySetting, found {shown(value)}")
    return FrozenTuple([_value(SafetySetting)(each, f"{path}[{index}]") for index, each in enumerate(value)])


def _http_options(value: object, path: str) -> HttpOptions:
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return HttpOptions(**value)  # an option of ADK is refused with its advice
    made: HttpOptions = _value(HttpOptions)(value, path)
    return made


def _labels(value: object, path: str) -> Mapping[str, str]:
    labels: Mapping[str, str] = OBJECT["check"](value, path)
    for key, label in labels.items():
        TEXT["check"](label, f"{path}[{key!r}]")
    return labels


def _stop_sequences(value: object, path: str) -> tuple[str, ...]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise InvalidValueError(path, f"expected a list of strings, found {shown(value)}")
    for index, text in enumerate(value):
        if not isinstance(text, str) or not text:
            raise InvalidValueError(f"{path}[{index}]", f"expected text that is not empty, found {shown(text)}")
    return FrozenTuple([freeze(text, f"{path}[{index}]") for index, text in enumerate(value)])


def check_media(parts: Sequence[Any], path: str) -> None:
    """Raise InvalidValueError unless all *parts*, those of a FunctionResponse, are media."""
    for index, part in enumerate(parts):
        if part.inline_data is None and part.file_data is None:
            problem = f"expected a part with inline_data or file_data, found {brief(part)}; texts stand in the response"
            raise InvalidValueError(f"{path}[{index}]", problem)


CHECKS: Mapping[str, Callable[[Any, str], Any]] = {
    "cached_content": _text,
    "extra_body": OBJECT["check"],
    "http_options": _http_options,
    "labels": _labels,
    "safety_settings": _safety_settings,
    "stop_sequences": _stop_sequences,
    "thinking_config": _value(ThinkingConfig),
    "tool_config": _value(ToolConfig),
}
"""By the name of a field of GenerateContentConfig: what returns what it holds, or raises InvalidValueError."""
