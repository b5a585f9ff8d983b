"""
What happens in an invocation, in a file of its own: one line of JSON for each thing.

    run_begin         app_name, user_id, session_id, resumed, message (the event that the run begins with)
    agent_begin       agent, branch
    model_request     agent, branch, model, contents, contents_before, config; changed if it is told again
    model_response    agent, branch, response, duration_s
    model_error       agent, branch, error_type, error_message, duration_s
    tool_call         agent, branch, tool, call_id, args
    tool_result       agent, branch, tool, call_id, result, duration_s
    tool_error        agent, branch, tool, call_id, error_type, error_message, duration_s
    event             event (as it is stored), wait_s, store_s, unread
    agent_error       agent, branch, error_type, error_message
    agent_end         agent, branch
    run_error         error_type, error_message, traceback (a list of lines)
    run_end           status, duration_s

Each has `time` (seconds since the epoch), `kind` and `invocation_id`. Durations are in seconds of trio's clock.

A conversation is not written again and again: `contents_before` says how many contents a request has in common with the
agent's last one in the run; `contents` are those that follow. A request is told as it is when this plugin is asked, and
once more, with `changed`, if other plugins or callbacks have changed it after that. Fragments of streams are left out:
the whole answer repeats them. An event is told when `emit` returns.
"""

from __future__ import annotations

import json
import logging
import os
import traceback
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from .._json import brief, is_count
from ..errors import ConfigurationError, InvalidValueError
from ._lines import LineFiles
from ._observer import Observer, OpenRun, OpenRuns, agent_of, error_of, model_step
from ._redaction import SECRETS, Redactor

if TYPE_CHECKING:
    from ..models import LlmRequest, LlmRequestDraft, LlmResponse
    from ..runtime import CallbackContext, InvocationContext, ReadonlyContext
    from ..types import Content

__all__ = ["DebugLoggingPlugin"]

_logger = logging.getLogger("minirun")


@attrs.define
class _Run(OpenRun):
    """A run, and what models were asked in it."""

    asked: dict[Hashable, _Asked] = attrs.field(factory=dict)
    contents: dict[Hashable, Sequence[Content]] = attrs.field(factory=dict)


@attrs.frozen
class _Asked:
    """A question that is open: what may still be changed, and what was told of it."""

    draft: LlmRequestDraft
    told: LlmRequest | None


class DebugLoggingPlugin(Observer):
    """
    Writes what happens in each invocation to a file of its own, and changes nothing.

    The file is `<folder>/<invocation id>.jsonl`, with what a file name cannot have escaped. A run that resumes the
    invocation appends to it. It is closed at the end of each run.

    What cannot be written, because the disk is full, for example, fails no run: it is told once, as a warning of the
    logger "minirun", and later lines are tried again.

    Args:
        folder: Where the files are; it is made when the first line is written, for its owner only (0700).
        name: The name of the plugin.
        secrets: What is redacted: the values of keys with one of these in their name, in arguments, results, state and
            metadata, at any depth, also in JSON inside of a text, and as pairs of a name and a value; case, accents and
            punctuation do not count, and a name of at most four letters has to be a word of the key. Of texts the
            passwords in addresses are, no more: what somebody says in a message, or an exception, is written.
        max_text: How many characters are written of each text; None: all. Of bytes the size and the SHA-256 are.

    Raises:
        ConfigurationError: A setting is none, or the folder is a file.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        name: str = "debug_logging",
        secrets: Iterable[str] = SECRETS,
        max_text: int | None = None,
    ) -> None:
        super().__init__(name)
        path = os.fspath(folder) if isinstance(folder, (str, os.PathLike)) else None
        if not isinstance(path, str) or not path or "\0" in path or (os.path.exists(path) and not os.path.isdir(path)):
            raise ConfigurationError(f"expected the path of a folder, found {brief(folder)}")
        names = None if isinstance(secrets, str) or not isinstance(secrets, Iterable) else list(secrets)
        if names is None or not all(isinstance(each, str) and any(map(str.isalnum, each)) for each in names):
            raise ConfigurationError(f"expected secrets to be a list of parts of names, found {brief(secrets)}")
        if max_text is not None and not is_count(max_text):
            raise ConfigurationError(f"expected max_text to be an integer from 0 up, or None, found {brief(max_text)}")
        self._files = LineFiles(path, ".jsonl")
        self._redactor = Redactor(names, max_text)
        self._runs: OpenRuns[_Run] = OpenRuns()
        self._has_warned = False

    # --- the run

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Tell for whom the run is, and what it begins with."""
        context = invocation_context
        forgotten = self._runs.begin(context.invocation_id, _Run())
        if forgotten is not None:
            self._files.close(forgotten[0])
        context.watch_commits(lambda event: self._tell("event", context, {"event": event}))
        fields = {
            "app_name": context.app_name,
            "user_id": context.user_id,
            "session_id": context.session.id,
            "resumed": context.is_resumed,
            "message": next((event for event in reversed(context.session.events) if event.author == "user"), None),
        }
        self._tell("run_begin", context, fields)

    async def on_run_error_callback(self, *, invocation_context: InvocationContext, error: Exception) -> None:
        """Tell what the run fails with."""
        trace = "".join(traceback.format_exception(invocation_context._invocation.secrets.shown(error))).splitlines()
        self._tell("run_error", invocation_context, {**error_of(error), "traceback": trace})

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Tell how the run ends, and close its file."""
        duration_s = self._runs.duration_s(invocation_context)
        self._tell("run_end", invocation_context, {"status": str(invocation_context.status), "duration_s": duration_s})
        self._runs.pop(invocation_context.invocation_id, None)
        self._files.close(invocation_context.invocation_id)

    # --- models

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequestDraft) -> None:
        """Tell what the model is asked."""
        run, step = self._runs.get(callback_context.invocation_id), model_step(callback_context)
        request = _frozen(llm_request)
        if run is not None:
            run.asked[step] = _Asked(llm_request, request)
        self._runs.begin_step(callback_context, step)
        self._tell_request(callback_context, run, llm_request if request is None else request)

    async def after_model_callback(self, *, callback_context: CallbackContext, llm_response: LlmResponse) -> None:
        """Tell what the model has answered."""
        self._tell_changes(callback_context)
        if not llm_response.partial:
            duration_s = self._runs.end_step(callback_context, model_step(callback_context))
            fields = {**agent_of(callback_context), "response": llm_response, "duration_s": duration_s}
            self._tell("model_response", callback_context, fields)

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> None:
        """Tell what the model has raised."""
        self._tell_changes(callback_context)
        duration_s = self._runs.end_step(callback_context, model_step(callback_context))
        fields = {**agent_of(callback_context), **error_of(error), "duration_s": duration_s}
        self._tell("model_error", callback_context, fields)

    async def close(self) -> None:
        """Close the files."""
        self._files.close_all()

    # --- how

    def _tell_request(
        self, context: ReadonlyContext, run: _Run | None, request: LlmRequest | LlmRequestDraft, **more: Any
    ) -> None:
        before = () if run is None else run.contents.get(model_step(context), ())
        shared = _shared_prefix(before, request.contents)
        if run is not None:
            run.contents[model_step(context)] = request.contents
        fields = {
            **agent_of(context),
            "model": request.model,
            "contents_before": shared,
            "contents": request.contents[shared:],
            "config": request.config,
        }
        self._tell("model_request", context, {**fields, **more})

    def _tell_changes(self, context: ReadonlyContext) -> None:
        """Tell a request again that was changed after this plugin had seen it."""
        run = self._runs.get(context.invocation_id)
        asked = None if run is None else run.asked.pop(model_step(context), None)
        request = None if asked is None else _frozen(asked.draft)
        if asked is None or request is None:
            return
        told = asked.told
        is_same = told is not None and _is_same(told.contents, request.contents)
        if told is None or not is_same or (told.config, told.model) != (request.config, request.model):
            self._tell_request(context, run, request, changed=True)

    def _tell(
        self, kind: str, context: ReadonlyContext, fields: dict[str, Any], trace_of: Exception | None = None
    ) -> None:
        """Write a line; what goes wrong is told once, and fails nothing."""
        invocation_id, hide = context.invocation_id, context._invocation.secrets.hide
        try:
            told = {"time": context._invocation.env.now(), "kind": kind, "invocation_id": invocation_id}
            for name, value in fields.items():
                is_name = isinstance(value, str) and name != "error_message"
                told[name] = self._redactor.redacted(value, hide=None if is_name else hide)
            line = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
            self._files.write(invocation_id, line.encode("utf-8", "backslashreplace"))
            if invocation_id not in self._runs:  # what is stored after the end of the run
                self._files.close(invocation_id)
        except Exception as error:  # whatever it is: looking on must not fail a run
            if not self._has_warned:
                self._has_warned = True
                where, what = self._files.path(invocation_id), f"{type(error).__name__}: {error}"
                _logger.warning("plugin %r cannot write to %s (%s); this is told once", self.name, where, what)


def _frozen(draft: LlmRequestDraft) -> LlmRequest | None:
    """The request that a draft makes now; None if it makes none, which is not for this plugin to say."""
    try:
        return draft.frozen()
    except InvalidValueError:
        return None


def _is_same(one: Sequence[Content], other: Sequence[Content]) -> bool:
    return one is other or (len(one) == len(other) and _shared_prefix(one, other) == len(one))


def _shared_prefix(before: Sequence[Any], now: Sequence[Any]) -> int:
    """How many objects *now* begins with that *before* begins with, too."""
    count = 0
    for one, other in zip(before, now, strict=False):
        if one is not other:
            break
        count += 1
    return count
