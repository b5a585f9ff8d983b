"""For the tests of applications: models that follow a script, and contracts that an implementation must keep."""

from typing import TYPE_CHECKING

from .._lazy import names_of

if TYPE_CHECKING:
    from ..models import RecordedLlm as RecordedLlm
    from ..models import ScriptedLlm as ScriptedLlm
    from ..models import call as call
    from ._artifact_contract import artifact_service_checks as artifact_service_checks
    from ._artifact_contract import check_artifact_service as check_artifact_service
    from ._credential_contract import check_credential_service as check_credential_service
    from ._credential_contract import credential_service_checks as credential_service_checks
    from ._live import *
    from ._llm_contract import check_llm as check_llm
    from ._llm_contract import llm_checks as llm_checks
    from ._memory_contract import check_memory_service as check_memory_service
    from ._memory_contract import memory_service_checks as memory_service_checks
    from ._session_contract import check_session_service as check_session_service
    from ._session_contract import session_service_checks as session_service_checks
    from ._store_contract import check_key_value_store as check_key_value_store
else:
    __getattr__, __dir__, __all__ = names_of(
        globals(),
        {
            "..models": "RecordedLlm ScriptedLlm call",
            "._artifact_contract": "artifact_service_checks check_artifact_service",
            "._credential_contract": "check_credential_service credential_service_checks",
            "._live": "LiveSent ScriptedLive cancel_calls drop error go_away handle hear interrupted pause say usage",
            "._llm_contract": "check_llm llm_checks",
            "._memory_contract": "check_memory_service memory_service_checks",
            "._session_contract": "check_session_service session_service_checks",
            "._store_contract": "check_key_value_store",
        },
    )
