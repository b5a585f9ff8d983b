"""
The actions that a context has collected for its next event, and the versions of artifacts that it has saved.

What a program may set here is checked when it is set: an event takes it over as it is. A flag, of whatever type, is a
field of `ActionsDraft` with its check and its rule, by which the calls of one turn are answered together; whatever is
done with all flags (to take them, to merge them, to hand them to an event) follows from these fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, Self

import attrs

from .._fields import FLAG, OBJECT, TEXT, Check, integer
from .._json import EMPTY_DICT, freeze
from .._values import changed
from ..errors import NotSupportedError
from ..events import EventActions

__all__ = ["ActionsDraft", "PendingValues", "over_turn"]


def _versions(value: object, path: str) -> Mapping[str, int]:
    found: Mapping[str, int] = OBJECT["check"](value, path)
    for filename, number in found.items():
        integer(0)["check"](number, f"{path}[{filename!r}]")
    return found


def _checked(name: str, check: Check, default: Any = None, over_turn: Callable[[list[Any]], Any] | None = None) -> Any:
    """A field that is checked whenever it is set; a flag, if it is known what becomes of it *over_turn*."""

    def convert(value: object) -> Any:
        return value if value is default else check(value, f"actions.{name}")

    set_by_name = [_while_open, attrs.setters.convert]
    return attrs.field(default=default, converter=convert, on_setattr=set_by_name, metadata={"over_turn": over_turn})


def _while_open(draft: ActionsDraft, field: attrs.Attribute[Any], value: Any) -> Any:
    if draft._check is not None:
        draft._check()
    return value


def _all(values: list[bool | None]) -> bool | None:
    return all(values) or None


def _any(values: list[bool | None]) -> bool | None:
    return any(values) or None


def _last(values: list[str | None]) -> str | None:
    return next((value for value in reversed(values) if value is not None), None)


class PendingValues(MutableMapping[str, Any]):
    """The type of `ActionsDraft.state_delta`: as a dict, also for `|=`."""

    __slots__ = ()

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Return the key's value; if there is none, write *default* and return it as it is stored, frozen."""
        if key not in self:
            self[key] = default
        return self[key]

    def __ior__(self, values: Mapping[str, Any]) -> Self:
        self.update(values)
        return self

    def __repr__(self) -> str:
        return repr(dict(self))


@attrs.define
class ActionsDraft:
    """
    Actions to go with the next event of this context.

    `state_delta`: the values that the context has written to `ctx.state` and no event has carried yet. A write to it is
    a write to `ctx.state`.

    `skip_summarization`: the tool's answer is shown as it is, and the model is not asked again. `escalate`: the
    enclosing loop is to end. `transfer_to_agent`: the name of the agent that takes over when this one has ended.
    `artifact_delta`: the versions of artifacts that the event names; `save_artifact` puts its own there.

    What is assigned is checked at once, or raises InvalidValueError; `artifact_delta` is frozen by it. Once the
    invocation or the call of the context has ended it raises InvocationEndedError, as no event would have it.
    """

    skip_summarization: bool | None = _checked("skip_summarization", FLAG["check"], over_turn=_all)
    escalate: bool | None = _checked("escalate", FLAG["check"], over_turn=_any)
    transfer_to_agent: str | None = _checked("transfer_to_agent", TEXT["check"], over_turn=_last)
    artifact_delta: Mapping[str, int] = _checked("artifact_delta", _versions, EMPTY_DICT)
    _saved: Mapping[str, frozenset[int]] = EMPTY_DICT  # all versions that were saved, by name
    _saves: Mapping[str, int] = EMPTY_DICT  # by the id of the save: a tool that is run again does not save again
    _below: ActionsDraft | None = None  # that of the call, for one of its attempts
    _delta: PendingValues | None = attrs.field(default=None, eq=False)
    _check: Callable[[], None] | None = attrs.field(default=None, eq=False, repr=False)  # raises if it is too late

    @property
    def state_delta(self) -> PendingValues:
        """A dict that is assigned takes the place of what is in it; if it is refused, nothing in it is lost."""
        assert self._delta is not None, "each context gives its draft one"
        return self._delta

    @state_delta.setter
    def state_delta(self, values: Mapping[str, Any]) -> None:
        delta = self.state_delta
        if values is delta:  # by `actions.state_delta |= ...`
            return
        given = dict(values) if isinstance(values, Mapping) else values
        new: Mapping[str, Any] = OBJECT["check"](given, "actions.state_delta")
        delta.update(new)
        for key in [key for key in delta if key not in new]:
            del delta[key]

    def on_top(self, delta: PendingValues, check: Callable[[], None]) -> ActionsDraft:
        """Return a copy for an attempt: once an event of the attempt has carried it, this one is carried, too."""
        return changed(self, _below=self, _delta=delta, _check=check)

    def taken_over(self, delta: PendingValues, check: Callable[[], None]) -> ActionsDraft:
        """Return a copy for the call, of whose attempts this one stands."""
        return changed(self, _delta=delta, _check=check)

    def take(self) -> ActionsDraft:
        """Return what is set, for an event that is on its way to the store, and start again."""
        taken = changed(self, _below=self._below and self._below.take())
        self.forget_flags()
        self.forget_artifacts()
        return taken

    def put_back(self, taken: ActionsDraft) -> None:
        """Set again what was *taken* for an event that is not stored; what was set meanwhile stands."""
        for name, value in taken.flags().items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        self.merge_artifacts(taken)
        self._saves = {**taken._saves, **self._saves}
        if self._below is not None and taken._below is not None:
            self._below.put_back(taken._below)

    def forget_flags(self) -> None:
        """Start again with the flags."""
        for name in self.flags():
            self.forget(name)

    def forget(self, name: str) -> None:
        """Start again with one of the flags, also where nobody may set it any more."""
        object.__setattr__(self, name, None)

    def forget_artifacts(self) -> None:
        """Start again with the artifacts: an event has named them."""
        object.__setattr__(self, "artifact_delta", EMPTY_DICT)
        self._saved = self._saves = EMPTY_DICT

    def merge_artifacts(self, other: ActionsDraft) -> None:
        """Take over what *other* names; of each name the newest version."""
        newest = {
            name: max(number, self.artifact_delta.get(name, number)) for name, number in other.artifact_delta.items()
        }
        object.__setattr__(self, "artifact_delta", freeze({**self.artifact_delta, **newest}))
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
        return not (self.flags() or self.artifact_delta or self._saved)

    def changes_to(self, actions: EventActions) -> dict[str, Any]:
        """Return the fields of *actions*, those of an event, that are others with this draft."""
        return {} if self.is_empty() else {**self.flags(), **self.artifact_changes_to(actions)}

    def artifact_changes_to(self, actions: EventActions) -> dict[str, Any]:
        """Return the fields of *actions* about artifacts that are others: versions that the event names itself win."""
        if not (self.artifact_delta or self._saved):
            return {}
        delta = {**self.artifact_delta, **actions.artifact_delta}
        others = {name: sorted(numbers - {delta.get(name)}) for name, numbers in self._saved.items()}
        versions = {**{name: numbers for name, numbers in others.items() if numbers}, **actions.artifact_versions}
        return {"artifact_delta": freeze(delta), "artifact_versions": freeze(versions)}

    def flags(self) -> dict[str, Any]:
        """Return the flags that are set."""
        return {name: value for name in _OVER_TURN if (value := getattr(self, name)) is not None}

    def merge_flags(self, others: Iterable[ActionsDraft]) -> None:
        """Set the flags to what those of the calls of one turn, in their order, come to."""
        for name, value in over_turn(list(others)).items():
            setattr(self, name, value)

    def check_no_flags(self, of: str, instead: str) -> None:
        """
        Raise if a flag is set, where nothing would come of it.

        Raises:
            NotSupportedError: One is.
        """
        if found := self.flags():
            names = " and ".join(f"actions.{name}" for name in found)
            raise NotSupportedError(f"expected no flags in the actions of {of}, found {names}; {instead}")


# What becomes of each flag over the calls of a turn.
_OVER_TURN: Mapping[str, Callable[[list[Any]], Any]] = {
    field.name: field.metadata["over_turn"]
    for field in attrs.fields(ActionsDraft)
    if field.metadata.get("over_turn") is not None
}


def over_turn(actions: Sequence[ActionsDraft | EventActions]) -> dict[str, Any]:
    """Return what the flags in *actions*, each of a call or of some calls of one turn, come to together."""
    return {name: merged([getattr(each, name) for each in actions]) for name, merged in _OVER_TURN.items()}
