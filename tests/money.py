"""Tools that ask before they send money, and what they have sent."""

from __future__ import annotations

import pytest

from minirun import FunctionTool
from minirun.tools import ToolContext

__all__ = ["ASKING", "SENT", "nothing_sent", "send", "send_if_allowed"]

SENT: list[tuple[str, int]] = []
"""What was sent."""


@pytest.fixture(autouse=True)
def nothing_sent() -> None:
    """Each test begins with nothing sent."""
    SENT.clear()


def send(to: str, amount: int = 1) -> str:
    """Send money."""
    SENT.append((to, amount))
    return f"{amount} to {to}"


def send_if_allowed(to: str, tool_context: ToolContext, amount: int = 1) -> str | None:
    """Send money; the tool asks itself."""
    if tool_context.tool_confirmation is None:
        tool_context.request_confirmation(hint="really?")
        return None
    return send(to, amount)


ASKING = {
    "required": FunctionTool(send, require_confirmation=True),
    "asked by the tool": FunctionTool(send_if_allowed, name="send"),
}
"""A tool that must be confirmed, and one that asks by itself."""
