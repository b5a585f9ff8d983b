"""Texts with names in braces that an application gives in the place of the framework's own."""

from __future__ import annotations

from collections.abc import Sequence
from string import Formatter

from .._json import brief
from ..errors import ConfigurationError

__all__ = ["check_words"]

# What is filled in is text, but for these.
NUMBERS = frozenset({"max_retries", "retry", "size", "version"})


def check_words(text: object, names: Sequence[str], what: str) -> None:
    """
    Check that *text*, which errors call *what*, is one in which no other names than these stand in braces.

    Raises:
        ConfigurationError: It is not.
    """
    expected = f"expected {what} to be a text"
    if not isinstance(text, str):
        raise ConfigurationError(f"{expected}, found {brief(text)}")
    try:
        found = {name for _, name, _, _ in Formatter().parse(text) if name is not None} if names else set()
    except ValueError as error:
        raise ConfigurationError(f"{expected} that str.format takes ({error}), found {brief(text)}") from None
    strange = sorted(found - set(names))
    if strange:
        known = ", ".join(f"{{{name}}}" for name in names)
        raise ConfigurationError(f"{expected} with no other names than {known}, found {{{strange[0]}}}")
    try:
        text.format(**{name: 1 if name in NUMBERS else "" for name in names})
    except (ValueError, LookupError, AttributeError) as error:
        problem = f"that can be filled in with {', '.join(names)} ({error})"
        raise ConfigurationError(f"{expected} {problem}, found {brief(text)}") from None
