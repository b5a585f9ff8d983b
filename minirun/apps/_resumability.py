"""That invocations can be resumed, for programs that say so."""

from __future__ import annotations

import attrs

from .._json import brief
from .._record import Record
from ..errors import ConfigurationError, NotSupportedError

__all__ = ["ResumabilityConfig", "check_resumability"]


@attrs.frozen(eq=False, repr=False)
class ResumabilityConfig(Record):
    """
    That invocations can be resumed, for programs that say so; here they always can, and nothing depends on it.

    Args:
        is_resumable: True.

    Raises:
        NotSupportedError: It is False, as it is by default.
        ConfigurationError: It is neither True nor False.
    """

    is_resumable: bool = False

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.is_resumable, bool):
            raise ConfigurationError(f"expected is_resumable to be True, found {brief(self.is_resumable)}")
        if not self.is_resumable:
            msg = (
                "ResumabilityConfig(is_resumable=False), the default, is not supported: every invocation is resumable "
                "here and no setting is needed; leave resumability_config out, or write is_resumable=True"
            )
            raise NotSupportedError(msg)


def check_resumability(config: object) -> None:
    """Raise ConfigurationError unless it is a ResumabilityConfig."""
    if not isinstance(config, ResumabilityConfig):
        msg = f"expected resumability_config to be a ResumabilityConfig, found {brief(config)}"
        raise ConfigurationError(msg)
