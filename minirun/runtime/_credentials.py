"""
Secrets that agents and tools ask for, and how they stay out of the log.

What `ctx.request_credential` returns is never recorded: logic that is run again asks the service again. Recorded are
the questions, and what was answered: that there is one now, or that there will be none. So that the same place comes to
the same questions, whatever the service has by then:

*   A place that asks has a row of questions, `q-...`, `q-...` again and so on. Each run goes through those that are
    answered, in their order. One that was answered with no ends it, for ever: CredentialRefusedError.
*   Behind them the service is asked. What it has, and is of use, is returned. If not, the next question is posed, and
    the invocation pauses. It is answered only when the service has what is of use; so no run asks twice.
*   A run may have to ask where an earlier one had what it needed, and went on: it has expired since, or was deleted.
    What that run has said is still ahead then. Such an early question stands beside the logic: it is no step in the
    order of what agents say, nothing is refused because of it, and what is ahead is come to when it is answered.

What was returned is known to the run, which takes it out of whatever is said; see `_secrets`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._json import dumps, freeze, shown
from .._values import changed
from ..credentials import AuthConfig, AuthCredential
from ..credentials._values import unusable
from ..errors import CredentialRefusedError, InvalidValueError
from ..events import Event, EventActions, Replay
from ..flows._questions import REQUEST_CREDENTIAL
from ..types import Content, FunctionCall, Part
from ._core import derived_id
from ._durable import answer_to, check_can_wait, come_to
from ._failure import Pause
from ._services import given

if TYPE_CHECKING:
    from ._context import _WritingContext

__all__ = ["load_credential", "request_credential", "save_credential"]


async def load_credential(context: _WritingContext, config: AuthConfig) -> AuthCredential | None:
    """See `InvocationContext.load_credential`."""
    config, core = _checked(config), context._core
    service = given(core.services.credential, "credential")
    key = core.live.key
    credential = await service.load_credential(
        app_name=key.app_name, user_id=key.user_id, credential_key=config.credential_key
    )
    if unusable(config, credential, core.env.now()):
        return None
    assert credential is not None
    core.secrets.know(credential)
    return credential


async def save_credential(context: _WritingContext, config: AuthConfig, credential: AuthCredential) -> None:
    """See `InvocationContext.save_credential`."""
    config, core = _checked(config), context._core
    service = given(core.services.credential, "credential")
    problem = unusable(config, credential, core.env.now()) if isinstance(credential, AuthCredential) else ""
    if problem:
        raise InvalidValueError("credential", f"expected what {config.credential_key!r} asks for, but {problem}")
    key = core.live.key
    await service.save_credential(
        app_name=key.app_name, user_id=key.user_id, credential_key=config.credential_key, credential=credential
    )
    core.secrets.know(credential)


async def request_credential(context: _WritingContext, config: AuthConfig) -> AuthCredential:
    """See `InvocationContext.request_credential`."""
    config, core = _checked(config), context._core
    given(core.services.credential, "credential")
    args = freeze(config.to_dict())
    place = context._claim(f"{context._path}!{REQUEST_CREDENTIAL} {dumps(args)}")
    asked, call_id = 0, f"q-{place}"
    while (response := answer_to(context, call_id)) is not None:
        await _come_to(context, call_id)
        if response.get("result") is not True:
            msg = f"there will be no credential {config.credential_key!r}: whoever was asked for it has refused"
            raise CredentialRefusedError(msg)
        asked += 1
        call_id = f"q-{derived_id(place, asked)}"
    if call_id not in core.live.open_calls:
        credential = await load_credential(context, config)
        if credential is not None:
            return credential
    await _pose(context, call_id, args)
    raise Pause(f"for the credential {config.credential_key}")


def _checked(config: object) -> AuthConfig:
    if not isinstance(config, AuthConfig):
        raise InvalidValueError("auth_config", f"expected an AuthConfig, found {shown(config)}")
    return config


async def _come_to(context: _WritingContext, call_id: str) -> None:
    """The question and its answer are behind the one who asked; an early one stands beside all that."""
    journal = context._core.journal
    asked = None if journal is None else journal.find(f"{call_id}-asked")
    is_early = asked is not None and bool(asked.actions.replay.early)
    await come_to(context, call_id, beside=is_early)


async def _pose(context: _WritingContext, call_id: str, args: dict[str, Any]) -> None:
    """Say, once, that this waits; the tool that asks, if it is one, stays open as long."""
    check_can_wait(context)
    core, tool = context._core, context._call_id()
    journal, replay = core.journal, Replay(asked_by=context._path)
    if journal is not None and tool is None and journal.first_ahead(context.branch) is not None:
        replay = changed(replay, early=True, was_paused=journal.was_paused)
        context = context._beside()
    question = {"functionCallId": tool or call_id, "authConfig": args}
    part = Part(function_call=FunctionCall(id=call_id, name=REQUEST_CREDENTIAL, args=question))
    actions = EventActions(
        suspended_calls=() if tool is None else (tool,),
        requested_auth_configs={tool or call_id: args},
        replay=replay,
    )
    content = Content(role="model", parts=[part])
    await context._emit(Event(id=f"{call_id}-asked", content=content, long_running_tool_ids=[call_id], actions=actions))
