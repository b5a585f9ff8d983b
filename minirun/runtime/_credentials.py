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
*   A request that says that a credential was rejected goes on in the row of the one before, which returned it.

What was returned is known to the run, which takes it out of what is said; see `_secrets`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from .._json import dumps, freeze, shown
from .._service import given
from .._values import changed
from ..credentials import AuthConfig, AuthCredential, BaseCredentialService
from ..credentials._current import current_credential, question_of, refusal_of
from ..credentials._values import unusable
from ..env import derived_id
from ..errors import InvalidValueError
from ..events import Replay
from ..flows._questions import REQUEST_CREDENTIAL
from ..sessions._asking import Question
from ._failure import Pause
from ._questions import pose, replayed_answer

if TYPE_CHECKING:
    from ._base_context import ContextBase

__all__ = ["load_credential", "request_credential", "save_credential"]

Maybe: TypeAlias = AuthCredential | None


async def load_credential(context: ContextBase, config: AuthConfig, rejected: Maybe = None) -> Maybe:
    """See `InvocationContext.load_credential`."""
    service, names = _service_for(context, config)
    credential = await current_credential(service, names, config, rejected)
    if credential is not None:
        context._invocation.know_secret(credential)
    return credential


async def save_credential(context: ContextBase, config: AuthConfig, credential: AuthCredential) -> None:
    """See `InvocationContext.save_credential`."""
    invocation, (service, names) = context._invocation, _service_for(context, config)
    problem = unusable(config, credential, invocation.env.now()) if isinstance(credential, AuthCredential) else ""
    if problem:
        raise InvalidValueError("credential", f"expected what {config.credential_key!r} asks for, but {problem}")
    await service.save_credential(**names, credential=credential)
    invocation.know_secret(credential)


async def request_credential(context: ContextBase, config: AuthConfig, rejected: Maybe, beside: bool) -> AuthCredential:
    """See `InvocationContext.request_credential`. *beside*: no run has to come to the question, as to an early one."""
    invocation, (service, names) = context._invocation, _service_for(context, config)
    args = freeze(config.to_dict())
    path = f"{context._path}!{REQUEST_CREDENTIAL} {dumps(args)}"
    if rejected is not None:
        claimed = invocation.ids.claimed
        invocation.ids.release([each for each in context._claims if claimed.get(each, ("",))[0] == path][-1:])
    place = context._claim(path)
    asked, asked_id = 0, f"q-{place}"
    while (response := await replayed_answer(context, asked_id)) is not None:
        if response.get("result") is not True:
            raise await refusal_of(service, names, config, asked_id)
        asked += 1
        asked_id = f"q-{derived_id(place, asked)}"
    if asked_id not in invocation.live.open_calls:
        if (credential := await load_credential(context, config, rejected)) is not None:
            return credential
        args = freeze((await question_of(service, names, config, asked_id)).to_dict())
    await _pose(context, asked_id, args, beside)
    raise Pause(f"for the credential {config.credential_key}")


def _service_for(context: ContextBase, config: AuthConfig) -> tuple[BaseCredentialService, dict[str, str]]:
    """The service that keeps what *config* asks for, and under which names."""
    if not isinstance(config, AuthConfig):
        raise InvalidValueError("auth_config", f"expected an AuthConfig, found {shown(config)}")
    service = given(context._invocation.program.services.credential, "credential")
    names = {"app_name": context.app_name, "user_id": context.user_id, "credential_key": config.credential_key}
    return service, names


async def _pose(context: ContextBase, asked_id: str, args: dict[str, Any], beside: bool) -> None:
    """Ask for it, also where an earlier run had what it needed and has gone on: beside the logic, then."""
    tool, replayer = context._call_id, context._invocation.replayer
    about = tool or asked_id
    asked = {"functionCallId": about, "authConfig": args}
    question = Question(asked_id, REQUEST_CREDENTIAL, asked, auth_configs={about: args})
    notes = Replay(asked_by=context._path)
    context._check_can_wait()
    if beside or (replayer is not None and tool is None and replayer.record.next_in(context.branch) is not None):
        context = context._detached(context._state.layer())
        notes = changed(notes, early=True, was_paused=replayer is not None and replayer.record.was_paused)
    await pose(context, question, replay=notes)
