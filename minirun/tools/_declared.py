"""The declarations of tools that are classes."""

from __future__ import annotations

from collections.abc import Mapping

from .._json import freeze
from ..types import FunctionDeclaration

__all__ = ["declared"]


def declared(name: str, description: str, **parameters: Mapping[str, object]) -> FunctionDeclaration:
    """Declare a tool with these parameters, all of which are required."""
    schema = {"type": "object", "properties": parameters, "required": list(parameters)}
    return FunctionDeclaration(name=name, description=description, parameters=freeze(schema, name))
