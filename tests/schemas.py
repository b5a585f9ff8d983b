"""Types as JSON schemas, and JSON as values of types: what the tests of both ask for."""

from __future__ import annotations

from typing import Any

from minirun.flows import _types
from minirun.flows._schema import Compiler


def schema_for(tp: object) -> dict[str, Any]:
    """The JSON schema of the values that `convert` accepts for *tp*."""
    compiler = Compiler()
    return compiler.finish(compiler.compile(tp, "schema").schema)


def convert(tp: object, value: object, path: str) -> object:
    """The JSON *value* as a *tp*, or an ArgumentError with one line for each problem."""
    return _types.convert(Compiler().compile(tp, path), value, path)
