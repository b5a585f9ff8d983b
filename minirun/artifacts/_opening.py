"""
What is open in a block: `@opening` in the place of `contextlib.asynccontextmanager`.

contextlib raises what has left the block once more in the generator, and writes its traceback afterwards, which a
frozen exception refuses. What is opened here is closed in one way however the block ends, so the generator is not told:
it goes on behind its `yield`, once, and the exception of the block passes it by untouched.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from functools import wraps
from typing import Generic, ParamSpec, TypeVar

__all__ = ["opening"]

P = ParamSpec("P")
T = TypeVar("T")


class _Opening(AbstractAsyncContextManager[T], Generic[T]):
    def __init__(self, steps: AsyncGenerator[T, None]) -> None:
        self._steps = steps

    async def __aenter__(self) -> T:
        return await anext(self._steps)

    async def __aexit__(self, *raised: object) -> None:
        async for _ in self._steps:
            raise AssertionError("what is opened yields once")


def opening(function: Callable[P, AsyncGenerator[T, None]]) -> Callable[P, AbstractAsyncContextManager[T]]:
    """Make a context manager of a generator function: what it yields is open until the block ends."""

    @wraps(function)
    def opened(*args: P.args, **named: P.kwargs) -> AbstractAsyncContextManager[T]:
        return _Opening(function(*args, **named))

    return opened
