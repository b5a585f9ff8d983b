"""
Every exception that minirun raises on purpose.

`MinirunError` is the base. There is one type for each thing a caller may want to tell apart, and the message says
what was expected, what was found and what to do. Names that the ADK documents give also carry the base documented
there, so `except ValueError` keeps working. `assert` is for our own bugs.

What an error says about the store (promise P1): `StorageError` means *unknown until the session is reopened*, except
for its subclasses whose `stored` is False: there the transaction never began or was rolled back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ._lazy import names_of

if TYPE_CHECKING:  # what the table below names, for type checkers; each module lists its own
    from ._api_errors import *
    from ._guardrail_errors import *
    from ._live_errors import *
    from ._model_errors import *
    from ._state_schema_error import *
    from ._tool_server_errors import *
    from ._workflow_errors import *
else:
    _later = {
        "minirun._api_errors": "ApiConnectionError ApiError ApiTimeoutError AuthorizationError "
        "AuthorizationUnavailableError",
        "minirun._guardrail_errors": "GuardrailTripwireError",
        "minirun._live_errors": "IdleTimeoutError LiveQueueFullError",
        "minirun._model_errors": "CassetteError ContextTooLongError ModelAuthenticationError ModelConnectionError "
        "ModelError ModelOverloadedError ModelRateLimitedError ModelRefusedError ModelRequestError ModelTimeoutError",
        "minirun._state_schema_error": "StateSchemaError",
        "minirun._tool_server_errors": "McpAuthenticationError McpConnectionError McpError McpToolError",
        "minirun._workflow_errors": "NodeInputError NodeRejectedError NodeTimeoutError RouteError SecondOutputError "
        "StrayCancellationError WorkflowConfigurationError WorkflowError",
    }
    __getattr__, __dir__, _ = names_of(globals(), _later)

__path__: list[str] = []  # so that the modules are found that ADK has below `errors`: see `_adk`

__all__ = [
    "AlreadyExistsError", "ApiConnectionError", "ApiError", "ApiTimeoutError", "ArgumentError", "AuthorizationError",
    "AuthorizationUnavailableError", "CassetteError", "CleanupTimeoutError", "ConfigurationError",
    "ContextTooLongError", "CredentialRefusedError", "CredentialServiceError", "DeadlineExceededError", "FatalError",
    "GuardrailTripwireError", "IdleTimeoutError", "InvalidEventError", "InvalidMessageError", "InvalidValueError",
    "InvocationEndedError", "InvocationNotFoundError", "LiveQueueFullError", "LlmCallsLimitExceededError",
    "McpAuthenticationError", "McpConnectionError", "McpError", "McpToolError", "MinirunError", "MissingArtifactError",
    "MissingDepsError", "MissingStateKeyError", "ModelAuthenticationError", "ModelConnectionError",
    "ModelContractError", "ModelError", "ModelOverloadedError", "ModelRateLimitedError", "ModelRefusedError",
    "ModelRequestError", "ModelRetry", "ModelTimeoutError", "NodeInputError", "NodeRejectedError",
    "NodeRunsLimitExceededError", "NodeTimeoutError", "NotResumableError", "NotSupportedAttributeError",
    "NotSupportedError", "NotSupportedImportError", "OutputSchemaError", "ReplayError", "RetriesExceededError",
    "RouteError", "ScriptError", "SecondOutputError", "SecretError", "ServiceClosedError", "ServiceInUseError",
    "ServiceNotConfiguredError", "SessionBusyError", "SessionNotFoundError", "StaleSessionError", "StateSchemaError",
    "StorageBusyError", "StorageConnectionError", "StorageCorruptError", "StorageError", "StorageFormatError",
    "StorageFullError", "StorageMissingError", "StorageReadOnlyError", "StorageRolledBackError",
    "StorageUncertainError", "StrayCancellationError", "ThreadsExhaustedError", "TokensLimitExceededError",
    "ToolCallsLimitExceededError", "ToolTimeoutError", "TransfersLimitExceededError",
    "UnfinishedAgentError", "UnknownToolError", "WorkflowConfigurationError", "WorkflowError",
]


class MinirunError(Exception):
    """The base of every exception that minirun raises on purpose."""


# --- what the caller handed in --------------------------------------------------------------------------------------


class InvalidValueError(MinirunError, ValueError):
    """A value cannot be stored as JSON. `path` leads to it, for example `state_delta['a'][3].when`."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path


class SecretError(InvalidValueError):
    """A credential stands where something would be stored, sent or shown. The message does not have its secret."""


class InvalidEventError(MinirunError, ValueError):
    """An event breaks a rule of the log, such as a response to a call that is not open. Nothing was stored."""


class InvalidMessageError(MinirunError, ValueError):
    """The new message of a run is not one that a user can send. Nothing was stored."""


class ArgumentError(MinirunError, ValueError):
    """The arguments of a function call do not fit the tool's signature; the model is told so."""


class ModelRetry(ArgumentError):
    """
    To raise in a tool or an `output_validator`: the model is told this text, and tries again, so many times at most.

    It is none of the program's failures: no `RetryConfig` makes the same call again, and no traceback is logged.
    """


class ConfigurationError(MinirunError, ValueError):
    """Agents, tools, an App or a Runner were put together in a way that cannot work."""


class NotSupportedError(MinirunError, NotImplementedError):
    """A documented field or option that this version would ignore; it is refused by name instead."""


class NotSupportedImportError(ImportError, NotSupportedError):
    """An import of a name or a module of ADK that is not in this version; the message says what to use instead."""


class NotSupportedAttributeError(AttributeError, NotSupportedError):
    """An attribute that ADK has and this version has not; the message says what to use instead."""


class MissingStateKeyError(MinirunError, KeyError):
    """An instruction names a state key that does not exist. Write `{key?}` where it may be missing."""

    __str__ = Exception.__str__  # KeyError shows the repr of its argument; this message is a sentence


# --- sessions and invocations ---------------------------------------------------------------------------------------


class MissingArtifactError(MinirunError, LookupError):
    """An instruction names an artifact that is not there."""


class MissingDepsError(MinirunError, TypeError):
    """A tool, agent or callback needs dependencies that the run was not given. They are never stored."""


class SessionNotFoundError(MinirunError, ValueError):
    """There is no such session in this app for this user."""


class AlreadyExistsError(MinirunError, ValueError):
    """A session of this id exists already in this app for this user."""


class StaleSessionError(MinirunError, ValueError):
    """Somebody else has written to the session since it was read. Nothing was stored; read it again."""


class SessionBusyError(MinirunError):
    """Another invocation is writing the session and waiting is not wanted, or could never end."""


class InvocationNotFoundError(MinirunError, ValueError):
    """The session has no invocation of this id."""


class NotResumableError(MinirunError, ValueError):
    """The invocation has failed or was cancelled, and it is too late to go on with it. Nothing was stored."""


class InvocationEndedError(MinirunError):
    """The invocation has ended: what would still be emitted, written or sent there is refused. Nothing was stored."""


class UnknownToolError(MinirunError, LookupError):
    """A model has called a tool that its agent does not have."""


class UnfinishedAgentError(MinirunError):
    """An agent's generator was stopped inside a `yield`, so nobody knows whether it had done its work."""


# --- what ends a run, whatever a hook or a policy says ---------------------------------------------------------------


class FatalError(MinirunError):
    """An error that no hook, retry or tool policy may turn into something else: it ends the run."""


class ReplayError(FatalError):
    """
    An agent that was resumed did something else than what is recorded of it.

    Nothing of that was stored, and the invocation is as it was: it can be resumed when the agent is put right.
    """


class LlmCallsLimitExceededError(FatalError):
    """The invocation has asked models `RunConfig.max_llm_calls` times."""


class ToolCallsLimitExceededError(FatalError):
    """The invocation has called tools `RunConfig.max_tool_calls` times."""


class TransfersLimitExceededError(FatalError):
    """The invocation has handed over from agent to agent `RunConfig.max_transfers` times."""


class NodeRunsLimitExceededError(FatalError):
    """The invocation has run nodes of workflows, and by `ctx.run_node`, `RunConfig.max_node_runs` times."""


class TokensLimitExceededError(FatalError):
    """The models of the invocation have used `RunConfig.max_tokens` tokens, as far as they tell."""


class DeadlineExceededError(FatalError, TimeoutError):
    """The run took longer than `RunConfig.deadline_s` seconds, the time its caller held events included."""


class ScriptError(FatalError):
    """A scripted model was asked for more than its script holds, or left part of it unused, or got a bad request."""


class OutputSchemaError(MinirunError, ValueError):
    """A model's answer did not fit the agent's `output_schema`, nor did it after `output_retries` more tries."""


class CredentialRefusedError(MinirunError):
    """Somebody was asked for a credential, and has said no; in a tool, the model is told."""


class CleanupTimeoutError(MinirunError, TimeoutError):
    """A cleanup hook took longer than `Runner(cleanup_timeout_s=...)` after the run was cancelled."""


class ToolTimeoutError(MinirunError, TimeoutError):
    """An attempt of a tool call took longer than the tool's `timeout_s`; the model is told so."""


class ThreadsExhaustedError(MinirunError):
    """So many threads of tools were given up and still run that the runner begins no other; the model is told so."""


class RetriesExceededError(MinirunError):
    """A tool or a model has failed more often in a row than a plugin has it tried again."""


class ModelContractError(MinirunError):
    """A model broke the contract of `BaseLlm`, for example ended its stream without a complete response."""


# --- services and storage ---------------------------------------------------------------------------------------------


class ServiceNotConfiguredError(MinirunError, ValueError):
    """A method of a context needs a service that the Runner was not given."""


class CredentialServiceError(MinirunError):
    """
    The store of credentials failed. What was to be saved or deleted may be, or not; doing it again is harmless.

    The message says what kind of error it was, and nothing else of it: that might hold the secret.
    """


class ServiceClosedError(MinirunError):
    """The service was closed; open a new one."""


class ServiceInUseError(MinirunError, RuntimeError):
    """The object serves one `trio.run` after another, and another one is using it now."""


class StorageError(MinirunError):
    """
    The store failed. `stored` is None: only another look tells whether the event, or the artifact, is there.

    `is_transient` says whether the cause can end without a change to the store or to the program. A run that fails with
    such an error leaves its invocation interrupted, and a worker resumes it. With any other error it has failed.
    """

    stored: ClassVar[bool | None] = None
    is_transient: ClassVar[bool] = False


class StorageUncertainError(StorageError):
    """COMMIT, or the name of a file, failed. What is cached of a session is dropped and read again on the next use."""

    is_transient = True


class StorageBusyError(StorageError):
    """Another process kept the store locked for longer than the bound. Nothing was stored."""

    stored = False
    is_transient = True


class StorageConnectionError(StorageError):
    """The database cannot be reached, has refused to let us in, or was lost while it was read. Nothing was stored."""

    stored = False
    is_transient = True


class StorageFullError(StorageError):
    """There was no room on the disk, or the value is too large. Nothing was stored."""

    stored = False


class StorageReadOnlyError(StorageError):
    """The file or its folder cannot be written. Nothing was stored."""

    stored = False


class StorageCorruptError(StorageError):
    """The file is damaged. Nothing was stored."""

    stored = False


class StorageMissingError(StorageError):
    """The file in use was deleted, moved or replaced. Nothing was stored; put it back, or make a new service."""

    stored = False


class StorageRolledBackError(StorageError):
    """The disk failed before COMMIT, or SQLite refused otherwise. Nothing was stored."""

    stored = False


class StorageFormatError(StorageError):
    """The file cannot be opened as a minirun store: another program's, a newer version's, or its folder is missing."""

    stored = False
