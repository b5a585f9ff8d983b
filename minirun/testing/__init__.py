"""For the tests of applications: a model that follows a script, and contracts that an implementation must keep."""

from ..models import ScriptedLlm as ScriptedLlm
from ..models import call as call

__all__ = ["ScriptedLlm", "call"]
