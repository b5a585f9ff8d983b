"""For the tests of applications: models that follow a script, and checks for one's own model or session service."""

from typing import TYPE_CHECKING

from .._lazy import names_of

if TYPE_CHECKING:
    from ..models import RecordedLlm as RecordedLlm
    from ..models import ScriptedLlm as ScriptedLlm
    from ..models import call as call
    from ._live import *
    from ._llm_contract import check_llm as check_llm
    from ._session_service import check_session_service as check_session_service
else:
    __getattr__, __dir__, __all__ = names_of(
        globals(),
        {
            "..models": "RecordedLlm ScriptedLlm call",
            "._live": "LiveSent ScriptedLive cancel_calls drop error go_away handle hear interrupted pause say usage",
            "._llm_contract": "check_llm",
            "._session_service": "check_session_service",
        },
    )
