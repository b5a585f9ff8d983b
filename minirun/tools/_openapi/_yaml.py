"""YAML, for documents that are written in it. The parser is an own choice of the program's: PyYAML."""

from __future__ import annotations

from typing import Any

from ..._json import brief
from ...errors import ConfigurationError

try:
    import yaml
except ModuleNotFoundError as _error:
    _msg = f"a document in YAML needs {_error.name}; run: pip install pyyaml, or convert the document to JSON"
    raise ModuleNotFoundError(_msg, name=_error.name) from None

__all__ = ["parsed"]


class _Loader(yaml.SafeLoader):
    """Reads what JSON has, too: dates stay texts."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def parsed(text: str) -> Any:
    """
    Return what *text* holds; aliases are shared objects.

    Raises:
        ConfigurationError: It is no YAML, or makes other things than texts, numbers, lists and objects.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except RecursionError:
        said = "it is nested too deep"
    except (yaml.YAMLError, ValueError) as error:
        said = brief(str(error), 200)
    raise ConfigurationError(f"expected spec_str to be YAML, found a text that is not: {said}")
