"""
What a write to the state fails with that its schema does not allow.

`minirun.errors` has the name; it is loaded when it is asked for: few programs give their state a schema.
"""

from __future__ import annotations

from collections.abc import Sequence

from .errors import MinirunError

__all__ = ["StateSchemaError"]


class StateSchemaError(MinirunError, TypeError):
    """
    The state does not fit its `state_schema`: a key that is none of its fields, or a value of another type.

    Nothing was written. Where a run begins, its message is not stored.

    Args:
        message: What was expected, what was found, and what to do.
        key: The key of the state.
        schema: The name of the schema; of several around the writer, the one that refuses.
        fields: The keys that the schemas around the writer know.
        nearest: The field whose name is nearest to the key; None: none is near, or the key is a field.
    """

    def __init__(
        self,
        message: str = "",
        *,
        key: str = "",
        schema: str = "",
        fields: Sequence[str] = (),
        nearest: str | None = None,
    ) -> None:
        super().__init__(message)
        self.key = key
        self.schema = schema
        self.fields = tuple(fields)
        self.nearest = nearest
