"""
What becomes of a tool that has failed: the answer that the model gets, and a record of the logger `minirun`.

There is one record for each call that is answered with an error, at the level ERROR and with the traceback. An attempt
that is followed by another one, and an error that a hook has an answer for, are told at the level INFO. A call that
could not be made as the model wanted it is a mistake of the model, told as a WARNING without a traceback. A traceback
begins at the first frame outside of minirun. Arguments are in no record, nor what an error of the latter kind says, as
it shows them. A program that sets up no logging sees Python's default: warnings and errors on stderr.
"""

from __future__ import annotations

import logging
import os
import sysconfig
import traceback
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .._json import brief
from ..errors import ArgumentError, FatalError, ModelRetry, UnknownToolError
from ..runtime import ToolContext
from ..runtime._failure import first_failure, leaves
from ._again import begin_again
from ._outcome import Failure, result_of

if TYPE_CHECKING:
    from ._call import ToolCall

__all__ = ["end_failed", "failure_of", "first_of", "give_up", "numbered", "tell_failed", "tell_handled", "tell_retried"]

_logger = logging.getLogger("minirun")

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_FOLDERS = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
_OF_OTHERS = (*(folder + os.sep for folder in _FOLDERS), "<")


# --- what the model is told -------------------------------------------------------------------------------------------


def failure_of(context: ToolContext, error: Exception, made: int) -> Failure:
    """Return what *error* means for a call of which so many attempts were *made*; raises what ends the run."""
    first, invocation = first_of(context, error), context._invocation
    invocation.secrets.out_of_error(error)
    for leaf in leaves(error):
        invocation.failures.forget_origin(leaf)
    message = invocation.secrets.text_of(first) or type(first).__name__
    return numbered(Failure(type(first).__name__, message, first), made)


def first_of(context: ToolContext, error: Exception) -> Exception:
    """Return the exception that *error* is, or the first in a group; raise one that is fatal, or a hook's."""
    hooks = context._invocation.failures.of_hooks
    for leaf in leaves(error):
        if isinstance(leaf, FatalError) or any(leaf is failure for failure in hooks):
            raise leaf
    first = first_failure(error)
    assert isinstance(first, Exception), "what is in a group that is an Exception is one, too"
    return first


def numbered(failure: Failure, made: int) -> Failure:
    """Return the failure with the number of attempts, if it was more than one."""
    return failure if made == 1 else failure._replace(message=f"{failure.message} ({made} attempts were made)")


def give_up(attempt: ToolContext, above: ToolContext) -> None:
    """
    An *attempt*, of the call *above*, has failed. What was saved is dropped; where everybody has seen it already, the
    event of the call names it, as a version that is not the newest.
    """
    invocation = attempt._invocation
    begin_again(attempt)
    saved = attempt.actions.saved_since(above.actions)
    if saved:
        invocation.artifacts.drop(saved)
        if not invocation.artifacts.is_staged:
            above.actions.keep_saved(attempt.actions)


def end_failed(call: ToolCall, error: Exception) -> None:
    """A *call* has failed for good: tell the logger, and look whether the model may try again if the tool says so."""
    tell_failed(call.context, call.call.name, error)
    if isinstance(error, ModelRetry):
        from ._model_retries import check_retries

        check_retries(call, error)


# --- what the logger is told ------------------------------------------------------------------------------------------


def tell_failed(context: ToolContext, name: str, error: Exception) -> None:
    """Tell that the tool *name* has failed in the call of *context*, and note where, to be shown with the answer."""
    if isinstance(error, (ArgumentError, UnknownToolError)):
        why = "there is no such tool" if isinstance(error, UnknownToolError) else "its arguments do not fit"
        if isinstance(error, ModelRetry):
            _tell(logging.WARNING, context, f"the tool {brief(name)} has the model try again")
            return
        _tell(logging.WARNING, context, f"the call of the tool {brief(name)} was not made: {why}")
        return
    _tell(logging.ERROR, context, f"the tool {brief(name)} has failed", error)
    frame = _frame_of(error)
    if frame is not None:
        said = f"{type(error).__name__}: {context._invocation.secrets.text_of(error)}"
        context._invocation.failures.of_tools[context.function_call_id] = f"{_shown(frame)}: {said}"


async def ask_about(call: ToolCall, args: dict[str, Any], error: Exception) -> None:
    """Ask the hooks about a tool that has failed; what they answer is its result."""
    value = await call.ask_hooks("on_tool_error_callback", args, error=error)
    if value is not None:
        tell_handled(call.context, call.call.name, error)
        call.outcome = result_of(value, call.call.name)


def tell_handled(context: ToolContext, name: str, error: Exception) -> None:
    """Tell that the tool *name* has failed, and that a hook has answered in its place."""
    _tell(logging.INFO, context, f"the tool {brief(name)} has failed, and a hook has answered in its place", error)


def tell_retried(context: ToolContext, name: str, error: Exception, attempt: int) -> None:
    """Tell that an attempt of the tool *name* has failed, and that there will be another one."""
    _tell(logging.INFO, context, f"attempt {attempt} of the tool {brief(name)} has failed; it is made again", error)


def _tell(level: int, context: ToolContext, what: str, error: Exception | None = None) -> None:
    if not _logger.isEnabledFor(level):
        return
    trace = None if error is None else (type(error), error, _outside(error.__traceback__))
    place = f"call {context.function_call_id}, agent {context.agent_name!r}, invocation {context.invocation_id}"
    hide = context._invocation.secrets.hide
    said = f"{what} ({place})"
    if trace is not None and hide is not None:  # a traceback may show what an exception would not let be changed
        said, trace = hide(f"{said}\n{''.join(traceback.format_exception(*trace)).rstrip()}"), None
    _logger.log(level, "%s", said, exc_info=trace)


def _outside(trace: TracebackType | None) -> TracebackType | None:
    """*trace* from the first frame that is not minirun's own; all of it, if there is none."""
    first = trace
    while first is not None and first.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        first = first.tb_next
    return first or trace


def _frame_of(error: Exception) -> traceback.FrameSummary | None:
    """Where in the application's own code *error* came from; else the innermost place outside of minirun."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_PACKAGE)]
    own = [frame for frame in frames if not frame.filename.startswith(_OF_OTHERS)]
    return next(reversed(own or frames), None)


def _shown(frame: traceback.FrameSummary) -> str:
    return f"{frame.filename}:{frame.lineno} in {frame.name}"
