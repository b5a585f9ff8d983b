"""Logic that is run again in the same process, as an attempt after one that has failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..runtime._base_context import ContextBase

__all__ = ["begin_again"]


def begin_again(attempt: ContextBase) -> None:
    """
    An *attempt* has failed: another one comes to the same steps and questions, and takes a step again that has failed.

    The ids that it has claimed are free again, and what its logic runs is counted anew.
    """
    ids, emitter, path = attempt._invocation.ids, attempt._invocation.emitter, attempt._path
    for claimed in attempt._claims:
        event = emitter.find(attempt, claimed)
        if event is not None and event.error_code is not None:
            ids.failed_steps |= {claimed}
    ids.release(attempt._claims)
    for each in [each for each in ids.counts if each.startswith(f"{path}/") and "@" not in each[len(path) :]]:
        del ids.counts[each]
