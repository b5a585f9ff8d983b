"""
What a client carries from a question to its answer: which invocation waits, and where.

The client cannot read it or change it: it is encrypted and authenticated (AES-256-GCM, by the official package), with a
key that all workers share. It is good for one user, one tool and one message only, and for a bounded time. It is no
secret that would open anything by itself: it opens for the user alone for whom it was made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import attrs
from mcp.server.request_state import AESGCMRequestStateCodec, InvalidRequestState

from ..env import Env

__all__ = ["Seal", "State", "StateRefusedError"]

VERSION = 1

# Clocks of several machines differ a little.
AHEAD_S_MAX = 60.0


class StateRefusedError(Exception):
    """A state is not ours, too old, or for somebody or something else. The message is for the log, not for clients."""


@attrs.frozen
class State:
    """An invocation that waits, and what for: the ids of its questions."""

    app_name: str
    tool: str
    user_id: str
    session_id: str
    invocation_id: str
    asked: Sequence[str]
    request: str
    """The digest of the arguments of the call, which is to be made again with the same."""

    @staticmethod
    def digest(arguments: Mapping[str, Any]) -> str:
        """What two calls have in common that have the same arguments."""
        return sha256(json.dumps(dict(arguments), sort_keys=True).encode()).hexdigest()


class Seal:
    """
    Seals states, and opens those that it, or another with one of its keys, has sealed.

    Args:
        keys: Secrets of 32 bytes and more. The first one seals, all of them open.
        age_s_max: How old a state may be, in seconds.
        env: Where the time comes from.
    """

    def __init__(self, keys: Sequence[bytes], age_s_max: float, env: Env) -> None:
        self._codec = AESGCMRequestStateCodec(keys)
        self._age_s_max = age_s_max
        self._env = env

    def sealed(self, state: State) -> str:
        """Return *state* as a text that only `opened` can read."""
        payload = {"v": VERSION, "at": self._env.now(), **attrs.asdict(state)}
        return self._codec.seal(json.dumps(payload).encode())

    def opened(self, text: str, *, app_name: str, tool: str, user_id: str, arguments: Mapping[str, Any]) -> State:
        """
        Return the state that *text* holds, if it was made for this call of this user.

        Raises:
            StateRefusedError: It was not, or it is too old, or was never sealed here.
        """
        try:
            payload = json.loads(self._codec.unseal(text))
        except InvalidRequestState as error:
            raise StateRefusedError(str(error)) from None
        except ValueError:  # another program has the key, too
            payload = None
        if not isinstance(payload, dict) or payload.pop("v", None) != VERSION:
            raise StateRefusedError("another version")
        age_s = self._env.now() - payload.pop("at")
        if not -AHEAD_S_MAX <= age_s <= self._age_s_max:
            raise StateRefusedError("too old")
        state = State(**payload)
        if (state.app_name, state.tool) != (app_name, tool):
            raise StateRefusedError("another tool")
        if state.user_id != user_id:
            raise StateRefusedError("another user")
        if state.request != State.digest(arguments):
            raise StateRefusedError("other arguments")
        return state
