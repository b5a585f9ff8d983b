"""The fields of an LlmAgent that few agents have, and how they are checked."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from .._json import brief
from ..errors import ConfigurationError, InvalidValueError
from ..planners import BuiltInPlanner
from ..sessions._reserved import check_own_key
from ..sessions._state import check_key
from ..tools import BaseTool, BaseToolset, RetryConfig
from ..types import Content, GenerateContentConfig
from ._base import SET_MODEL_RESPONSE, TRANSFER_TO_AGENT, BaseAgent, misfit
from ._guardrails import Guardrail, guardrails_of

if TYPE_CHECKING:
    from ._llm import LlmAgent

__all__ = [
    "CHECKS", "check_mode_outside", "input_guardrails", "output_guardrails", "refuse_names", "static_text",
    "toolset_of",
]


def static_text(value: object) -> str:
    """Return the text of a `static_instruction`, which may be a Content."""
    if isinstance(value, str):
        return value
    if isinstance(value, Content) and value.parts and all(part.text is not None for part in value.parts):
        return "\n\n".join(part.text for part in value.parts if part.text)
    raise ConfigurationError(f"expected static_instruction to be a text or a Content of texts, found {brief(value)}")


def input_guardrails(value: object) -> Sequence[Guardrail]:
    """Return the guardrails of this field."""
    return guardrails_of(value, "input_guardrails")


def output_guardrails(value: object) -> Sequence[Guardrail]:
    """Return the guardrails of this field."""
    return guardrails_of(value, "output_guardrails")


def toolset_of(value: object) -> BaseToolset | None:
    """Return what was given as a tool and is no function, if it is a toolset; raise if it is a known mistake."""
    if isinstance(value, BaseToolset):
        return value
    if isinstance(value, type) and issubclass(value, (BaseTool, BaseToolset)):
        name = value.__name__
        raise ConfigurationError(f"expected tools, found the class {name}; make one: {name}(...)")
    if isinstance(value, BaseAgent):
        found = f"found the agent {value.name!r}; write AgentTool({value.name}), or put it in sub_agents"
        raise ConfigurationError(f"expected tools, {found}")
    return None


def refuse_names(names: Sequence[str]) -> NoReturn:
    """Raise for tools of which two have one name, or one has a name that minirun's own have."""
    for name in names:
        if names.count(name) > 1:
            msg = f"expected tools with different names, found two named {name!r}; use FunctionTool(f, name=...)"
            raise ConfigurationError(msg)
    taken = next(name for name in names if name in (SET_MODEL_RESPONSE, TRANSFER_TO_AGENT))
    msg = f"expected tools with names of their own, found {taken!r}, which minirun adds itself; rename it"
    raise ConfigurationError(msg)


def _check_config(agent: LlmAgent, name: str, config: object) -> None:
    if not isinstance(config, GenerateContentConfig):
        msg = f"expected generate_content_config to be a GenerateContentConfig, found {brief(config)}"
        raise ConfigurationError(msg)
    elsewhere = {"tools": "tools", "system_instruction": "instruction", "response_schema": "output_schema"}
    for field, argument in elsewhere.items():
        if getattr(config, field):
            msg = f"generate_content_config.{field} would be replaced; write LlmAgent({argument}=...) instead"
            raise ConfigurationError(msg)


def _check_schema(agent: LlmAgent, name: str, schema: object) -> None:
    from ..flows._output import OutputSchema  # few agents have a schema

    OutputSchema.of(schema, name)
    config = agent.generate_content_config
    if name == "output_schema" and isinstance(config, GenerateContentConfig) and config.response_mime_type:
        msg = "generate_content_config.response_mime_type would be replaced by that of output_schema; leave one out"
        raise ConfigurationError(msg)


def _check_key(agent: LlmAgent, name: str, key: object) -> None:
    try:
        check_own_key(check_key(key, name), name)
    except InvalidValueError as error:
        raise ConfigurationError(str(error)) from None
    if not str(key).strip():
        raise ConfigurationError(f"expected output_key to be the key of a state, or None, found {key!r}")


def _check_planner(agent: LlmAgent, name: str, planner: object) -> None:
    if not isinstance(planner, BuiltInPlanner):
        msg = "expected planner to be a BuiltInPlanner(thinking_config=...) or None"
        raise ConfigurationError(f"{msg}, found {brief(planner)}")
    config = agent.generate_content_config
    if isinstance(config, GenerateContentConfig) and config.thinking_config:
        msg = "generate_content_config.thinking_config would be replaced by that of the planner; leave one out"
        raise ConfigurationError(msg)


def _check_retry(agent: LlmAgent, name: str, retry: object) -> None:
    if retry is not None and not isinstance(retry, RetryConfig) and retry != "standard":
        raise ConfigurationError(f"expected model_retry to be a RetryConfig, 'standard' or None, found {brief(retry)}")


def _check_mode(agent: LlmAgent, name: str, mode: object) -> None:
    if mode not in ("single_turn", "task", "chat"):
        raise ConfigurationError(f"expected mode to be 'single_turn', 'task', 'chat' or None, found {brief(mode)}")


def check_mode_outside(agent: LlmAgent) -> None:
    """Refuse a mode that only nodes of workflows have, of an agent that is none."""
    if agent.mode in ("single_turn", "task"):
        msg = f"agent {agent.name!r}: expected an agent of mode {agent.mode!r} to be a node of a workflow, found it"
        advice = f"make it Workflow(edges=[(START, {agent.name})]), which may be a sub-agent, or a tool by AgentTool"
        raise ConfigurationError(f"{msg} elsewhere, where that has no effect; {advice}")


def _check_validator(agent: LlmAgent, name: str, validator: object) -> None:
    expected = "expected output_validator to be a function of the context and the answer, or None"
    if not callable(validator):
        raise ConfigurationError(f"{expected}, found {brief(validator)}")
    if (error := misfit(validator, None, None)) is not None:
        raise ConfigurationError(f"{expected}, found {brief(validator)}: {error}")


def _check_contents(agent: LlmAgent, name: str, value: object) -> None:
    if name == "include_contents" and value == "none":
        return
    other = "'default', 'none' or " if name == "include_contents" else "None or "
    if not callable(value) or inspect.iscoroutinefunction(value):
        msg = f"expected {name} to be {other}a function, not async, of a context and events, found {brief(value)}"
        raise ConfigurationError(msg)


CHECKS: Mapping[str, Callable[[LlmAgent, str, Any], None]] = {
    "generate_content_config": _check_config,
    "include_contents": _check_contents,
    "input_schema": _check_schema,
    "mode": _check_mode,
    "model_retry": _check_retry,
    "output_key": _check_key,
    "output_schema": _check_schema,
    "output_validator": _check_validator,
    "planner": _check_planner,
    "transfer_input_filter": _check_contents,
}
"""By the name of a field: what raises ConfigurationError for a value other than its default that cannot be one."""
