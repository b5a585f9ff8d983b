"""The actions that a context has collected for its next event, and the versions of artifacts that it has saved."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs

from .._json import freeze
from .._values import changed
from ..events import EventActions

__all__ = ["ActionsDraft"]

_EMPTY: Mapping[str, Any] = MappingProxyType({})


@attrs.define
class ActionsDraft:
    """
    Actions to go with the next event of this context. For state write to `ctx.state`.

    `skip_summarization`: the tool's answer is shown as it is, and the model is not asked again. `escalate`: the
    enclosing loop is to end. `transfer_to_agent`: the name of the agent that takes over when this one has ended.
    `artifact_delta`: the versions of artifacts that the event names; `save_artifact` puts its own there.
    """

    skip_summarization: bool | None = None
    escalate: bool | None = None
    transfer_to_agent: str | None = None
    artifact_delta: Mapping[str, int] = _EMPTY
    _saved: Mapping[str, frozenset[int]] = _EMPTY  # all versions that were saved, by name
    _saves: Mapping[str, int] = _EMPTY  # the same, by the id of the save: a tool that is run again does not save again
    _below: ActionsDraft | None = None  # that of the call, for one of its attempts

    def on_top(self) -> ActionsDraft:
        """Return a copy for an attempt: once an event of the attempt has carried it, this one is carried, too."""
        return changed(self, _below=self)

    def clear(self) -> None:
        """Start again: an event has carried them."""
        self.skip_summarization = self.escalate = self.transfer_to_agent = None
        self.forget_artifacts()
        if self._below is not None:
            self._below.clear()

    def forget_artifacts(self) -> None:
        """Start again with the artifacts: an event has named them."""
        self.artifact_delta = self._saved = self._saves = _EMPTY

    def merge_artifacts(self, other: ActionsDraft) -> None:
        """Take over what *other* names; of each name the newest version."""
        newest = {
            name: max(number, self.artifact_delta.get(name, number)) for name, number in other.artifact_delta.items()
        }
        self.artifact_delta = {**self.artifact_delta, **newest}
        self.keep_saved(other)

    def keep_saved(self, other: ActionsDraft) -> None:
        """Name all that *other* has saved, as versions that are not the newest."""
        more = {name: numbers | self._saved.get(name, frozenset()) for name, numbers in other._saved.items()}
        self._saved = {**self._saved, **more}

    def add_saved(self, filename: str, number: int, save_id: str | None) -> None:
        """Note that a version was saved, the newest of its name."""
        self._saved = {**self._saved, filename: self._saved.get(filename, frozenset()) | {number}}
        newest = max(number, self.artifact_delta.get(filename, number))
        self.artifact_delta = {**self.artifact_delta, filename: newest}
        if save_id is not None:
            self._saves = {**self._saves, save_id: number}

    def discard_deleted(self, filename: str) -> None:
        """Forget the versions of an artifact that was deleted."""
        self.artifact_delta = {name: number for name, number in self.artifact_delta.items() if name != filename}
        self._saved = {name: numbers for name, numbers in self._saved.items() if name != filename}

    def saved_since(self, earlier: ActionsDraft) -> dict[str, frozenset[int]]:
        """Return what was saved since this was the same as *earlier*."""
        return {name: numbers - earlier._saved.get(name, frozenset()) for name, numbers in self._saved.items()}

    @property
    def saves(self) -> Mapping[str, int]:
        """The numbers of the versions that a tool has saved, by the id of the save."""
        return self._saves

    def is_empty(self) -> bool:
        """Whether nothing has been set."""
        has_no_flag = self.skip_summarization is None and self.escalate is None and self.transfer_to_agent is None
        return has_no_flag and not (self.artifact_delta or self._saved)

    def changes_to(self, actions: EventActions) -> dict[str, Any]:
        """Return the fields of *actions*, those of an event, that are others with this draft."""
        return {} if self.is_empty() else {**self._flags(), **self.artifact_changes_to(actions)}

    def artifact_changes_to(self, actions: EventActions) -> dict[str, Any]:
        """Return the fields of *actions* about artifacts that are others: versions that the event names itself win."""
        if not (self.artifact_delta or self._saved):
            return {}
        delta = {**self.artifact_delta, **actions.artifact_delta}
        others = {name: sorted(numbers - {delta.get(name)}) for name, numbers in self._saved.items()}
        versions = {**{name: numbers for name, numbers in others.items() if numbers}, **actions.artifact_versions}
        return {"artifact_delta": freeze(delta), "artifact_versions": freeze(versions)}

    def _flags(self) -> dict[str, Any]:
        flags = {
            "skip_summarization": self.skip_summarization,
            "escalate": self.escalate,
            "transfer_to_agent": self.transfer_to_agent,
        }
        return {name: value for name, value in flags.items() if value is not None}
