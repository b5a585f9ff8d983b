"""Sessions: conversations and the state that belongs to them, and the services that keep them."""

from typing import TYPE_CHECKING

from .._lazy import names_of

if TYPE_CHECKING:
    from ._calls import OpenCall as OpenCall
    from ._calls import Pending as Pending
    from ._in_memory import InMemorySessionService as InMemorySessionService
    from ._integrity._verify import Damage as Damage
    from ._integrity._verify import verify as verify
    from ._invocation import Invocation as Invocation
    from ._invocation import InvocationStatus as InvocationStatus
    from ._key import SessionKey as SessionKey
    from ._live import LiveSession as LiveSession
    from ._node_runs import NodeRunInfo as NodeRunInfo
    from ._node_runs import NodeRunStatus as NodeRunStatus
    from ._pending import PendingCall as PendingCall
    from ._postgres._service import DatabaseSessionService as DatabaseSessionService
    from ._read_only import ReadOnlyState as ReadOnlyState
    from ._remembered import RememberedAnswer as RememberedAnswer
    from ._service import BaseSessionService as BaseSessionService
    from ._session import GetSessionConfig as GetSessionConfig
    from ._session import ListSessionsResponse as ListSessionsResponse
    from ._session import Session as Session
    from ._sqlite._service import SqliteSessionService as SqliteSessionService
    from ._state import State as State
    from ._store import SessionWriter as SessionWriter
else:
    __getattr__, __dir__, __all__ = names_of(
        globals(),
        {
            "._calls": "OpenCall Pending",
            "._in_memory": "InMemorySessionService",
            "._invocation": "Invocation InvocationStatus",
            "._key": "SessionKey",
            "._live": "LiveSession",
            "._node_runs": "NodeRunInfo NodeRunStatus",
            "._pending": "PendingCall",
            "._remembered": "RememberedAnswer",
            "._postgres._service": "DatabaseSessionService",
            "._service": "BaseSessionService",
            "._session": "GetSessionConfig ListSessionsResponse Session",
            "._store": "SessionWriter",
            "._sqlite._service": "SqliteSessionService",
            "._read_only": "ReadOnlyState",
            "._state": "State",
            "._integrity._verify": "Damage verify",
        },
    )
