"""
What a run fails with when a guardrail has tripped. `minirun.errors` has the name; it is loaded when it is asked for.
"""

from __future__ import annotations

from typing import Any

from .errors import FatalError

__all__ = ["GuardrailTripwireError"]


class GuardrailTripwireError(FatalError):
    """
    To raise in a guardrail: what it was shown is refused, and the run ends with this.

    What was refused is neither shown nor stored as an answer. `guardrail` is the name of the guardrail that has raised
    it; minirun fills it in.

    Args:
        info: What the program that catches this is told. It is stored with the verdict, so it has to be JSON; it
            should not repeat what was refused.
    """

    def __init__(self, info: Any = None, *, guardrail: str | None = None) -> None:
        super().__init__(f"guardrail {guardrail!r} has tripped" if guardrail else "a guardrail has tripped")
        self.info = info
        self.guardrail = guardrail
