"""What all services are: open until they are closed, with an `Env` that they take everything of the machine from."""

from __future__ import annotations

import os
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import trio

from ._arguments import refuse_unknown
from ._json import shown
from .env import REAL_ENV, Env
from .errors import ConfigurationError, NotSupportedError, ServiceClosedError, ServiceNotConfiguredError

__all__ = ["BaseService", "check_in_trio", "given", "misused"]

T = TypeVar("T")
_Self = TypeVar("_Self", bound="BaseService")


def check_in_trio() -> None:
    """Raise RuntimeError outside of trio, and say how an asyncio program gets there."""
    if not trio.lowlevel.in_trio_run():
        raise RuntimeError(
            "expected a trio task, found none; an asyncio program uses minirun.bridge.AsyncioBridge, or trio as guest "
            "(trio.lowlevel.start_guest_run), a script trio.run(...) or runner.run(...)"
        )


def misused(owner: object, *_: object) -> NoReturn:
    """A special method of what is not used in that way: it raises TypeError, and says what to write instead."""
    from ._adk import advice_for  # few programs need it

    raise TypeError(advice_for("*", type(owner)))


def given(service: T | None, name: str) -> T:
    """Return *service*, which the runner calls *name*; raises ServiceNotConfiguredError if it has none."""
    if service is None:
        msg = f"this needs a service that the runner was not given; make it with Runner({name}_service=...)"
        raise ServiceNotConfiguredError(msg)
    return service


@refuse_unknown
class BaseService:
    """
    Something that is open from the beginning, and closed once. `async with` closes it at the end of the block.

    Args:
        env: Where time, ids and threads come from; by default the real world.

    Raises:
        ConfigurationError: *env* is no Env.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        refuse_unknown(cls)

    def __init__(self, *, env: Env | None = None) -> None:
        if not isinstance(env, Env | None):
            msg = f"expected env to be an Env, found {shown(env)}"
            raise ConfigurationError(msg)
        self._env = REAL_ENV if env is None else env
        self._closed = False
        self._pid = os.getpid()

    @property
    def env(self) -> Env:
        """Where this service takes time, ids and threads from."""
        return self._env

    async def __aenter__(self: _Self) -> _Self:
        check_in_trio()  # leaving needs it
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with trio.CancelScope(shield=True):
            await self.aclose()

    if not TYPE_CHECKING:  # a type checker has a word of its own for these
        __enter__ = __exit__ = misused

    async def aclose(self) -> None:
        """Close the store. What is stored stays stored; using the service afterwards raises ServiceClosedError."""
        self._be_here()
        if not self._closed:
            self._closed = True
            await self._close()

    def _be_here(self) -> None:
        """Serve the process that calls: a fork of the one before begins anew, and touches nothing of that one's."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._after_fork()

    def _check_open(self) -> None:
        check_in_trio()
        self._be_here()
        if self._closed:
            msg = f"this {type(self).__name__} was closed; make a new one"
            raise ServiceClosedError(msg)

    def __reduce__(self) -> str:  # what `multiprocessing` asks, unless it forks
        raise NotSupportedError(f"{type(self).__name__} cannot be pickled or copied; make one in each process")

    def _after_fork(self) -> None:
        """Forget what belongs to the process that this one was forked from, without closing or ending any of it."""

    async def _close(self) -> None:
        """Give back what the service holds. It is called once."""
