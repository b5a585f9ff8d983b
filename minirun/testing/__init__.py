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
    from ._live_contract import LiveBench as LiveBench
    from ._live_contract import check_live_connection as check_live_connection
    from ._live_contract import live_connection_checks as live_connection_checks
    from ._live_steps import LiveSent as LiveSent
    from ._live_steps import cancel_calls as cancel_calls
    from ._live_steps import drop as drop
    from ._live_steps import error as error
    from ._live_steps import go_away as go_away
    from ._live_steps import handle as handle
    from ._live_steps import hear as hear
    from ._live_steps import interrupted as interrupted
    from ._live_steps import pause as pause
    from ._live_steps import say as say
    from ._live_steps import usage as usage
    from ._llm_contract import check_llm as check_llm
    from ._llm_contract import llm_checks as llm_checks
    from ._memory_contract import check_memory_service as check_memory_service
    from ._memory_contract import memory_service_checks as memory_service_checks
    from ._scripted_live import ScriptedLive as ScriptedLive
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
            "._live_contract": "LiveBench check_live_connection live_connection_checks",
            "._live_steps": "LiveSent cancel_calls drop error go_away handle hear interrupted pause say usage",
            "._llm_contract": "check_llm llm_checks",
            "._memory_contract": "check_memory_service memory_service_checks",
            "._scripted_live": "ScriptedLive",
            "._session_contract": "check_session_service session_service_checks",
            "._store_contract": "check_key_value_store",
        },
    )
