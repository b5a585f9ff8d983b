"""What ADK's `McpToolset` and its parameters take beside what is taken here: what to write instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..._json import brief
from ...errors import NotSupportedError

__all__ = ["SERVER", "TOOLSET", "refuse"]

_SIGN_IN = "write a function headers=, which may `await context.request_credential(AuthConfig(...))`"

TOOLSET: Mapping[str, str] = {
    "auth_credential": _SIGN_IN,
    "auth_scheme": _SIGN_IN,
    "credential_key": _SIGN_IN,
    "elicitation_callback": "what a server asks is a question of the run; answer run.pending",
    "errlog": "the last words of a server are in the message of the McpConnectionError",
    "header_provider": "write it as headers=, a function of the context and of refresh",
    "progress_callback": "progress is a partial event of the run, in event.custom_metadata['progress']",
    "propagate_grounding_metadata": "results of tools have no such data here",
    "sampling_callback": "write sampling=True: the server is answered by the model of the agent that calls it",
    "sampling_capabilities": "write sampling=True",
    "tool_list_cache_ttl_seconds": "a list is kept as long as the server says, and until it tells of a change",
    "use_mcp_resources": "write resources=True",
}
"""By the names of arguments."""

SERVER: Mapping[str, str] = {
    "httpx_client_factory": "the client is minirun's; write headers= of McpToolset for what each request needs",
    "sse_read_timeout": "write timeout_s= of McpToolset, which holds for a call",
    "terminate_on_close": "a session is always ended when its toolset is left",
}


def refuse(what: str, others: Iterable[str], advice: Mapping[str, str]) -> None:
    """
    Refuse arguments that *what* does not take.

    Raises:
        NotSupportedError: ADK has it; the message says what to write.
        TypeError: Nobody has it.
    """
    for name in others:
        if name in advice:
            raise NotSupportedError(f"{what}({name}=...) has no effect in this version of minirun; {advice[name]}")
        raise TypeError(f"{what}() got an unexpected keyword argument {brief(name)}")
