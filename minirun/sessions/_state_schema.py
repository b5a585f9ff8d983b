"""
The schemas around a writer of the state, and what they say of its writes.

Rules of this file:

1.  Only the session's own keys are looked at: those without `app:`, `user:` and `temp:`. `a:b` and `session:x` are the
    session's own.
2.  A key has to be a field of one of the schemas around, and its value has to fit each of them that has it. So a
    workflow inside of another may write the fields of both, and loosens nothing.
3.  A value is looked at where it is written. What an operation (`add`, `extend`) leads to is known when its event is
    stored, in its turn: there it is looked at for good. An event that closes something is stored in any case, without
    what does not fit. Where it is written it is refused if neither what it adds nor
    what it leads to fits: logic that is run again adds once more to what it has added already.
4.  A key that the session has, and no schema knows, is left alone: it can be read and deleted, and not written. A
    session that is older than its schema, or has been in a workflow that knows more, goes on.

`State.schemas` is None where there is no schema, and this file is not loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NoReturn

from .._json import brief
from .._state_schema_error import StateSchemaError
from .._values import changed
from ._state import (
    MISSING,
    NO_VALUES,
    REMOVED,
    RESERVED_PREFIX,
    Add,
    Scope,
    State,
    Values,
    Write,
    apply_write,
    apply_writes,
    scope_of,
    with_writes,
)

if TYPE_CHECKING:
    from ..events import Event
    from ..flows._state_schema import StateSchema

__all__ = ["StateSchemas", "constrain"]

# So many fields are named in a message.
FIELDS_SHOWN_MAX = 20


class StateSchemas:
    """Schemas that a writer has around it, the outermost first. It never changes."""

    __slots__ = ("_schemas", "fields")

    def __init__(self, *schemas: StateSchema) -> None:
        self._schemas = tuple(dict.fromkeys(schemas))
        self.fields = tuple(dict.fromkeys(key for schema in schemas for key in schema.fields))
        """The keys that they know."""

    def within(self, schema: StateSchema) -> StateSchemas:
        """Return these schemas, and *schema* inside of them."""
        return self if schema in self._schemas else StateSchemas(*self._schemas, schema)

    def check_write(self, state: State, key: str, write: Write) -> None:
        """Raise StateSchemaError if what is about to be written to *state* is not allowed; see rule 3."""
        if type(write) not in NO_VALUES:
            self._check(key, write)
        elif write is REMOVED:
            self._check_removal(key, is_there=True)
        elif self._is_own(key):
            operand = write.amount if type(write) is Add else write.items
            if self._wrong(key, _after(state, key, write)):
                self._check(key, operand)

    def check_merge(self, state: State, key: str, write: Write) -> None:
        """Raise StateSchemaError if a write of a layer above *state* leads to something that is not allowed."""
        if type(write) in NO_VALUES and write is not REMOVED:
            self._check(key, _after(state, key, write))

    def check_event(self, values: Values, writes: Mapping[str, Write]) -> None:
        """Raise StateSchemaError if the state may not become what these writes make of the committed *values*."""
        own = {key: write for key, write in writes.items() if self._is_own(key)}
        for key, value in apply_writes(values, own).items():
            if value is MISSING:
                self._check_removal(key, is_there=values.get(key) is not MISSING)
            else:
                self._check(key, value)

    def at(self, closing: bool) -> StateSchemas:
        """Return what looks at an event that is stored, or at one that is *closing* something."""
        return _Lenient(*self._schemas) if closing else self

    def checked(
        self, values: Values, event: Event, writes: Mapping[str, Write]
    ) -> tuple[Event, Mapping[str, Write]]:
        """Return the event that is stored, with its writes; raise StateSchemaError if they may not be."""
        self.check_event(values, writes)
        return event, writes

    def check_session(self, values: Values, writes: Mapping[str, Write]) -> None:
        """
        Raise StateSchemaError if the session's own state does not fit, once it has the *writes* of a message.

        What is missing is not: it may come. For keys that no schema knows see rule 4.
        """
        self.check_event(values, writes)
        for key in self.fields:
            value = values.get(key)
            if value is not MISSING and key not in writes:
                self._check(key, value)

    # --- one key

    def _is_own(self, key: str) -> bool:
        return scope_of(key) is Scope.SESSION and not key.startswith(RESERVED_PREFIX)

    def _check(self, key: str, value: Any) -> None:
        if self._is_own(key):
            wrong = self._wrong(key, value)
            if wrong is not None:
                self._refuse(key, *wrong)

    def _wrong(self, key: str, value: Any) -> tuple[StateSchema, list[str]] | None:
        """The first schema that does not allow the value, and why; the reasons are empty if none knows the key."""
        mine = [schema for schema in self._schemas if key in schema.fields]
        mine = mine or [schema for schema in self._schemas if schema.is_open]
        for schema in mine:
            if problems := schema.problems(key, value):
                return schema, problems
        return None if mine else (self._schemas[-1], [])

    def _check_removal(self, key: str, *, is_there: bool) -> None:
        if not self._is_own(key):
            return
        for schema in self._schemas:
            if key in schema.fields and schema.fields[key].required:
                problem = "expected a value, found that it is to be deleted; a field without a default cannot be"
                self._refuse(key, schema, [f"state[{key!r}]: {problem}"])
        if not is_there and not any(schema.knows(key) for schema in self._schemas):
            self._refuse(key, self._schemas[-1], [])

    def _refuse(self, key: str, schema: StateSchema, problems: list[str]) -> NoReturn:
        names = " or ".join(each.name for each in self._schemas)
        fields = schema.fields if problems else self.fields
        shown = ", ".join(list(fields)[:FIELDS_SHOWN_MAX]) + (", ..." if len(fields) > FIELDS_SHOWN_MAX else "")
        nearest = None if problems else next(iter(get_close_matches(key, fields, 1)), None)
        if problems:
            said = f"{'; '.join(problems)}; the state_schema {schema.name} says so (its fields: {shown})"
        else:
            hint = "" if nearest is None else f"did you mean {nearest!r}? "
            advice = "declare it there; keys that begin with 'app:', 'user:' or 'temp:' need no field"
            said = f"state[{brief(key)}]: expected a field of {names} ({shown}), found none of them; {hint}{advice}"
        raise StateSchemaError(
            said, key=key, schema=schema.name if problems else names, fields=tuple(fields), nearest=nearest
        )


class _Lenient(StateSchemas):
    """Of an event that is stored in any case: what does not fit is left out of it."""

    __slots__ = ()

    def checked(
        self, values: Values, event: Event, writes: Mapping[str, Write]
    ) -> tuple[Event, Mapping[str, Write]]:
        fitting = {key: write for key, write in writes.items() if self._fits(values, key, write)}
        if len(fitting) == len(writes):
            return event, writes
        return changed(event, actions=with_writes(event.actions, fitting)), fitting

    def _fits(self, values: Values, key: str, write: Write) -> bool:
        try:
            self.check_event(values, {key: write})
        except StateSchemaError:
            return False
        return True


def _after(state: State, key: str, write: Write) -> Any:
    """What *key* holds after an operation, as far as that can be known before it is stored."""
    return apply_write(key, state._lookup(key, None), write)


def constrain(state: State, schema: StateSchema) -> None:
    """
    Have a layer, and those that are put on it from here on, keep to *schema*, too.

    What runs an agent under a schema calls this with the state of its context. What is below the layer is not checked.
    """
    state.schemas = StateSchemas(schema) if state.schemas is None else state.schemas.within(schema)
