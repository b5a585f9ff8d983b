"""
Permissions that somebody has given for more than one call: `question.reply(True, remember="session" | "user")`.

Each is a key of the state, of the session's own or of the user's, which the answer's event sets. So it is there for
calls that come later, in this and in other processes, and forks and rewinds do with it what they do with state. Nobody
else sets such a key; anybody may delete one.

What is remembered is an agent, the tool that it calls, and the arguments that were allowed; without arguments any are.
Equal are arguments that are the same JSON: 1 is not 1.0, and the order of keys does not matter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal

import attrs

from .._record import Record
from ._state import MISSING, RESERVED_PREFIX, USER_PREFIX

if TYPE_CHECKING:
    from ._state import Values

__all__ = ["RememberedAnswer", "entry_of", "is_remembered", "key_of", "remembered_in"]

_NAME = f"{RESERVED_PREFIX}remembered:"
_SCOPES: dict[Literal["session", "user"], str] = {"session": _NAME, "user": USER_PREFIX + _NAME}


@attrs.frozen(kw_only=True, eq=False, repr=False)
class RememberedAnswer(Record):
    """
    A permission that was given for later calls, too.

    Calls of the `tool` by the `agent` need no permission if they have these `args`; None: whatever they have. `scope`
    says where: in the session in which it was given, or in all sessions of its user. `key` names it.
    """

    scope: Literal["session", "user"]
    agent: str
    tool: str
    args: Mapping[str, Any] | None
    key: str


def key_of(scope: Literal["session", "user"], agent: str, tool: str, args: Mapping[str, Any] | None) -> str:
    """The key of the state that has the permission."""
    what = json.dumps([agent, tool, args], sort_keys=True, ensure_ascii=True)
    return _SCOPES[scope] + blake2b(what.encode(), digest_size=12).hexdigest()


def entry_of(agent: str, tool: str, args: Mapping[str, Any] | None) -> dict[str, Any]:
    """The value of that key, for people."""
    return {"agent": agent, "tool": tool, "args": args}


def is_remembered(values: Values, agent: str, tool: str, args: Mapping[str, Any]) -> bool:
    """Whether a call may be made without asking."""
    keys = (key_of(scope, agent, tool, given) for scope in _SCOPES for given in (args, None))
    return any(values.get(key) is not MISSING for key in keys)


def remembered_in(state: Mapping[str, Any]) -> list[RememberedAnswer]:
    """All permissions in a state, those of the session first."""
    found = []
    for scope, prefix in _SCOPES.items():
        for key in sorted(key for key in state if key.startswith(prefix)):
            entry = state[key]
            found.append(
                RememberedAnswer(
                    scope=scope, agent=entry["agent"], tool=entry["tool"], args=entry["args"], key=key
                )
            )
    return found
