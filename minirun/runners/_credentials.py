"""Credentials that open questions ask for: looked for when a question is answered, and saved for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._service import given
from ..credentials._quiet import Quiet
from ..credentials._values import AuthCredential, unusable
from ..errors import InvalidMessageError
from ..sessions._pending import PendingCall

if TYPE_CHECKING:
    from ..credentials import BaseCredentialService
    from ..types import Content

__all__ = ["check_credential", "provide_credential", "quiet_answer"]


async def check_credential(credentials: BaseCredentialService | None, question: PendingCall, now: float) -> None:
    """
    Check that the credential that an answer says is kept is, and can be used *now*.

    Raises:
        InvalidMessageError: It is not, or cannot.
        ServiceNotConfiguredError: There is no credential service.
        CredentialServiceError: The service has failed.
    """
    service, config = given(credentials, "credential"), question.auth_config
    if config is None:
        msg = f"expected {question.call_id!r} to say which credential it asks for, found that it does not"
        raise InvalidMessageError(f"{msg}; answer it with False")
    credential = await service.load_credential(
        app_name=question.app_name, user_id=question.user_id, credential_key=config.credential_key
    )
    problem = unusable(config, credential, now)
    if problem:
        msg = f"expected the credential {config.credential_key!r} of the user to be kept, but {problem}; save it"
        raise InvalidMessageError(f"{msg} first: `await runner.provide_credential(pending, credential)` does")
    if config.state:  # it was given in another way than by signing in here
        from ..credentials._sign_in import forget_sign_in  # few programs have anybody sign in

        names = {"app_name": question.app_name, "user_id": question.user_id}
        await forget_sign_in(service, names, question.call_id)


def quiet_answer(answer: AuthCredential | str) -> AuthCredential | str:
    """What somebody has answered; tracebacks that show variables show nothing of it."""
    return Quiet(answer) if isinstance(answer, str) else answer


async def provide_credential(
    credentials: BaseCredentialService | None, pending: PendingCall, credential: AuthCredential | str, now: float
) -> Content:
    """Save what an open question asks for; see `Runner.provide_credential`."""
    service = given(credentials, "credential")
    config = pending.auth_config if isinstance(pending, PendingCall) else None
    if config is None:
        msg = "expected an open question of the kind 'credential', found another one; pending.reply(...) answers it"
        raise InvalidMessageError(msg)
    names = {"app_name": pending.app_name, "user_id": pending.user_id, "credential_key": config.credential_key}
    if isinstance(credential, str) and config.state:
        from ..credentials._sign_in import finish_sign_in  # few programs have anybody sign in

        return pending.reply(await finish_sign_in(service, names, config, pending.call_id, credential))
    if isinstance(credential, AuthCredential) and unusable(config, credential, now):
        found = f"{credential.scheme!r}, {'expired' if credential.has_expired(now) else 'not expired'}"
        msg = f"expected a credential of the scheme {config.scheme!r} that has not expired, found one of {found}"
        raise InvalidMessageError(msg)
    await service.save_credential(**names, credential=credential)  # type: ignore[arg-type]  # refused if it is none
    return pending.reply(True)
