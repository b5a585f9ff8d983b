"""When a failed call is made again, and how long after the failure. Decided here, done by `_attempts`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import attrs

from .._arguments import refuse_unknown
from .._fields import setting
from .._json import finite, is_count
from ..errors import ArgumentError, FatalError

__all__ = ["RetryConfig"]

Named: TypeAlias = type[Exception] | str


def _at_least(least: float, most: float = float("inf")) -> Any:
    limits = f"from {least:g} up" if most == float("inf") else f"from {least:g} to {most:g}"
    return setting(f"a number {limits}", lambda value: least <= (-1 if (n := finite(value)) is None else n) <= most)


def _names(value: Any) -> Any:
    """A tuple of what was given, if it can be that; the validator refuses anything else."""
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _are_exceptions(value: object) -> bool:
    return value is None or (isinstance(value, tuple) and all(map(_is_exception, value)))


def _is_exception(each: object) -> bool:
    if isinstance(each, type):
        return issubclass(each, Exception) and not issubclass(each, FatalError)
    return isinstance(each, str) and each.isidentifier()


@refuse_unknown
@attrs.frozen(kw_only=True)
class RetryConfig:
    """
    How often a failed call is made again, and when.

    After the n-th attempt the next one waits `initial_delay * backoff_factor ** (n - 1)` seconds, at most `max_delay`,
    and up to the share `jitter` of that more or less.

    Args:
        max_attempts: How many attempts there are, the first included.
        initial_delay: The delay after the first attempt, in seconds.
        max_delay: The longest delay, before jitter, in seconds.
        backoff_factor: By how much each delay is longer than the one before; at least 1.
        jitter: From 0 (none) to 1 (a delay of 0 up to twice as long).
        exceptions: What is worth another attempt: classes, or their names, and what is derived from them. None: every
            `Exception`. A FatalError never is; an ArgumentError only if it is listed itself, because the same
            arguments do not fit the next time either.

    Raises:
        ConfigurationError: A value is out of its range.
    """

    max_attempts: int = attrs.field(
        default=5, validator=setting("an integer from 1 up", lambda value: is_count(value, 1))
    )
    initial_delay: float = attrs.field(default=1.0, validator=_at_least(0))
    max_delay: float = attrs.field(default=60.0, validator=_at_least(0))
    backoff_factor: float = attrs.field(default=2.0, validator=_at_least(1))
    jitter: float = attrs.field(default=0.1, validator=_at_least(0, 1))
    exceptions: Sequence[Named] | None = attrs.field(
        default=None,
        converter=_names,
        validator=setting("a list of classes of exceptions that are not fatal, or their names", _are_exceptions),
    )

    def covers(self, error: Exception) -> bool:
        """Whether *error* is worth another attempt, were there one left."""
        if isinstance(error, FatalError):
            return False
        if isinstance(error, ArgumentError):
            return any(each in (ArgumentError, ArgumentError.__name__) for each in self.exceptions or ())
        if self.exceptions is None:
            return True
        family = type(error).__mro__
        return any(each in family or each in [kind.__name__ for kind in family] for each in self.exceptions)

    def delay_s(self, attempts: int, randomness: float) -> float:
        """The seconds to wait after so many attempts; *randomness* is a number from 0.0 up to 1.0."""
        try:
            delay = min(self.max_delay, self.initial_delay * float(self.backoff_factor) ** (attempts - 1))
        except OverflowError:
            delay = self.max_delay if self.initial_delay else 0.0
        return delay * (1 + self.jitter * (2 * randomness - 1))
