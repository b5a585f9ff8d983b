"""
Branches: where in the tree of agents something is said, as dotted paths that grow where agents set out side by side.

None is the root. A part with an `@` (`helper@<call id>`) is the inside of a call, of an agent that is used as a tool;
one with a `~` (`helper~1`) that of a node that was run by `ctx.run_node`.
"""

from __future__ import annotations

__all__ = ["calls_around", "is_around", "is_visible", "is_within"]


def calls_around(branch: str | None) -> list[str]:
    """Return the ids of the calls that something in *branch* is inside of, the outermost first."""
    return [step.rpartition("@")[2] for step in (branch or "").split(".") if "@" in step]


def is_within(branch: str | None, outer: str | None) -> bool:
    """Whether *branch* is *outer*, or a branch of it, inside of calls or not."""
    return outer is None or branch == outer or (branch is not None and branch.startswith(f"{outer}."))


def is_around(outer: str | None, branch: str | None) -> bool:
    """Whether *branch* is *outer*, or a branch of it, but not inside of a call there."""
    return is_within(branch, outer) and "@" not in (branch or "")[len(outer or "") :]


def is_visible(branch: str | None, mine: str | None) -> bool:
    """Whether what is said in *branch* is shown in the branch *mine*; None is the root, before all branches."""
    theirs, own = branch or "", mine or ""
    if len(theirs) < len(own):
        shorter, longer = theirs, own
    else:
        shorter, longer = own, theirs
    if shorter and longer != shorter and not longer.startswith(f"{shorter}."):
        return False  # beside each other
    inside = longer[len(shorter) :]
    return "@" not in inside and "~" not in inside
