"""A credential as contexts ask for one: what is kept if it is of use, renewed where the application says how."""

from __future__ import annotations

from collections.abc import Mapping

from .._json import shown
from ..errors import CredentialRefusedError, InvalidValueError
from ._service import BaseCredentialService
from ._values import AuthConfig, AuthCredential, credential_key, unusable

__all__ = ["current_credential", "question_of", "refusal_of"]


async def current_credential(
    service: BaseCredentialService,
    names: Mapping[str, str],
    config: AuthConfig,
    rejected: AuthCredential | None = None,
) -> AuthCredential | None:
    """
    Return the credential that is kept under *names* and is of use; None if somebody has to be asked.

    One that the other side has *rejected* is renewed, or forgotten.

    Raises:
        InvalidValueError: *rejected* is no credential.
        AuthorizationError: Renewing has failed, for another reason than that access has ended.
        CredentialServiceError: The service has failed.
    """
    if rejected is not None and not isinstance(rejected, AuthCredential):
        raise InvalidValueError("rejected", f"expected an AuthCredential, found {shown(type(rejected))}")
    credential = await service.load_credential(**names)
    if config.auth_scheme is not None:
        from ._tokens import renewed_credential  # few programs have anybody sign in

        return await renewed_credential(service, names, config, credential, rejected)
    if credential is None or unusable(config, credential, service.env.now()):
        return None
    if credential != rejected:
        return credential
    async with service._exclusive(credential_key(**names)):
        if await service.load_credential(**names) == rejected:  # else somebody has given another one meanwhile
            await service.delete_credential(**names)
    return None


async def question_of(
    service: BaseCredentialService, names: Mapping[str, str], config: AuthConfig, question_id: str
) -> AuthConfig:
    """
    Return what the question of this id says: *config*, or where to sign in.

    Raises:
        AuthorizationError: Nobody can sign in there, or the application has no way to get in by itself.
    """
    if config.auth_scheme is None:
        return config
    from ._sign_in import sign_in_question  # few programs have anybody sign in

    return await sign_in_question(service, names, config, question_id)


async def refusal_of(
    service: BaseCredentialService, names: Mapping[str, str], config: AuthConfig, question_id: str
) -> CredentialRefusedError:
    """Return what to raise for a question that was refused; what was kept for it is forgotten."""
    if config.auth_scheme is not None:
        from ._sign_in import forget_sign_in  # few programs have anybody sign in

        await forget_sign_in(service, names, question_id)
    msg = f"there will be no credential {config.credential_key!r}: the person who was asked for it has refused"
    return CredentialRefusedError(msg)
