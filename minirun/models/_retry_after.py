"""
How long a provider wants to be left alone, by the headers of its response. No I/O here, and no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from .._json import finite

__all__ = ["retry_after_s"]


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """How long to wait, in seconds: by `retry-after-ms`, or by `retry-after` in seconds or as a date."""
    for name, seconds in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        number = _number(headers.get(name))
        if number is not None:
            return number * seconds
    until, now = _date(headers.get("retry-after")), _date(headers.get("date"))
    # by the server's own clock, which has set both
    return max(until - now, 0.0) if until is not None and now is not None else None


def _number(text: str | None) -> float | None:
    try:
        number = finite(float(text)) if text is not None else None
    except ValueError:
        return None
    return number if number is not None and number >= 0 else None


def _date(text: str | None) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp() if text is not None else None
    except (ValueError, TypeError, OverflowError):
        return None
