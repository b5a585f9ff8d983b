"""
A model whose answers are recorded, or a record that answers in its place.

It stands before any model: what is recorded are requests and responses of minirun, so that nothing of a provider, its
SDK, or its keys is in a cassette, and nothing of that is needed to replay it. `_asked` says which requests are equal,
`_cassette` what the lines are, `_cassette_file` how they are written.

An exchange is written before its complete response is given on: what a session has stored of a model, the cassette has.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Literal

import attrs
import trio

from .._json import brief, is_seconds
from ..errors import CassetteError, ConfigurationError, FatalError
from ..flows._no_secrets import OF_RUN, NoSecrets
from ._asked import Asked, Asker, first_difference
from ._base import BaseLlm, LlmCapabilities, LlmRequest, LlmResponse, responses_of
from ._cassette import Cassette, Exchange, Writer, error_of, told_of, written_error
from ._cassette_file import CassetteFile

__all__ = ["RecordedLlm"]

MODES = ("replay", "record", "append")
# Microseconds: finer than any answer of a model, and coarse enough that the clock's own rounding does not show.
DIGITS = 6
# A caller that left while a model was answering leaves a replay at the same moment; one that has stayed for longer than
# this does not leave.
STAYS_S = 1.0
# So many exchanges that were not asked for are named.
NAMED_MAX = 3


class RecordedLlm(BaseLlm):
    """
    Records what a model answers, or answers what was recorded: the same fragments, after the same time, or the error.

    A request is answered by what was recorded for an equal one; several equal ones are answered in the order in which
    they were asked when they were recorded. What never changes an answer is not compared (ids of calls, labels,
    time-outs, caching), and nor is whether fragments are wanted. A request that is not recorded ends the run with a
    CassetteError, which no hook can swallow, and which tells the first difference to the nearest recorded request.

    Args:
        inner: The model. With `mode="replay"` it is never asked, and may be None.
        path: The file: JSON lines, made for this user alone. Replaying reads it when the object is made.
        mode: `"replay"`: only the file answers. `"record"`: only the model answers, and the file begins anew with its
            first answer. `"append"`: the file answers what is recorded; the model answers the rest, which is recorded.
        pace: How long a replay takes: 1.0 as long as the model took, on trio's clock; 0.0: no time.
        repeat: What a replay does when a request comes more often than it was recorded. False: it fails the run. True:
            the last answer is given again, as a simulation needs it: a program that has crashed asks again.

    Raises:
        ConfigurationError: An argument cannot be used.
        CassetteError: There is no such file to replay, or it is no cassette.

    Secrets that a run was given are in no cassette; see `ctx.request_credential`. A fault of the program, an error
    that is a FatalError, is not recorded.
    """

    def __init__(
        self,
        inner: BaseLlm | None,
        path: str | os.PathLike[str],
        mode: Literal["replay", "record", "append"] = "replay",
        *,
        pace: float = 1.0,
        repeat: bool = False,
    ) -> None:
        if mode not in MODES:
            raise ConfigurationError(f"expected mode to be one of {', '.join(MODES)}, found {brief(mode)}")
        if not isinstance(inner, BaseLlm) and not (inner is None and mode == "replay"):
            msg = f"expected a model (BaseLlm) to record, found {brief(inner)}; only mode='replay' works without one"
            raise ConfigurationError(msg)
        if not is_seconds(pace):
            raise ConfigurationError(f"expected pace to be a finite number from 0 up, found {brief(pace)}")
        if not isinstance(repeat, bool):
            raise ConfigurationError(f"expected repeat to be True or False, found {brief(repeat)}")
        if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
            raise ConfigurationError(f"expected the path of a file, found {brief(path)}")
        self.inner = inner
        self.mode = mode
        self._pace = pace
        self._repeat = repeat
        self._file = CassetteFile(os.path.abspath(path))
        self._has_begun = False
        self._asker = Asker()
        self._load(None if mode == "record" else self._file.read())
        self.model = None if inner is None else inner.model
        self.name = self._cassette.model if inner is None else inner.name
        able = self._cassette.capabilities if inner is None else inner.capabilities
        self.capabilities = able or LlmCapabilities()

    def _load(self, cassette: Cassette | None) -> None:
        if self.mode == "replay" and (cassette is None or not cassette.size):
            found = "no such file" if cassette is None else "no whole line in it"
            todo = "record it, with RecordedLlm(model, path, mode='record') or `pytest --record-models`, and keep it"
            raise CassetteError(f"expected the cassette {self._file.path}, found {found}; {todo}")
        self._cassette = cassette or Cassette()
        self._writer = Writer(self._cassette)
        self._by_key: dict[str, list[Exchange]] = {}
        for exchange in sorted(self._cassette.exchanges, key=lambda each: each.number):
            self._by_key.setdefault(exchange.asked.key, []).append(exchange)
        self._last = max((exchange.number for exchange in self._cassette.exchanges), default=0)
        self._playing: set[int] = set()
        self._played: set[int] = set()

    # --- asking

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Answer with what is recorded for an equal request, or with what the model says, which is recorded then."""
        secrets = OF_RUN.get()
        asked = self._asker.asked(request, secrets)
        exchange = None if self.mode == "record" else self._next(asked)
        if exchange is None and self.mode == "replay":
            raise CassetteError(self._told_of_unknown(asked))
        answers = (
            self._recorded(request, stream, asked, secrets) if exchange is None else self._replayed(exchange, stream)
        )
        async with aclosing(answers):
            async for response in answers:
                yield response

    def _next(self, asked: Asked) -> Exchange | None:
        """The first recorded exchange of an equal request that was not replayed to its end."""
        equal = self._by_key.get(asked.key, ())
        used = self._playing | self._played
        free = next((exchange for exchange in equal if exchange.number not in used), None)
        return equal[-1] if free is None and equal and self._repeat else free

    async def _replayed(self, exchange: Exchange, stream: bool) -> AsyncGenerator[LlmResponse, None]:
        """One that is not listened to until its end can be asked for again."""
        self._playing.add(exchange.number)
        try:
            if exchange.left_after_s is not None:
                self._played.add(exchange.number)  # nobody can hear its end
            for after_s, response in exchange.responses:
                await trio.sleep(after_s * self._pace)
                if response is exchange.responses[-1][1] and exchange.failed_after_s is None:
                    self._played.add(exchange.number)
                if stream or not (response.partial and exchange.stream):
                    yield response
            if exchange.error is not None:
                await trio.sleep((exchange.failed_after_s or 0) * self._pace)
                self._played.add(exchange.number)
                raise error_of(exchange.error)
            if exchange.left_after_s is not None:
                await trio.sleep(exchange.left_after_s * self._pace + STAYS_S)
                raise CassetteError(self._told_of_leaving(exchange))
            self._played.add(exchange.number)
            await trio.lowlevel.checkpoint()
        finally:
            self._playing.discard(exchange.number)

    async def _recorded(
        self, request: LlmRequest, stream: bool, asked: Asked, secrets: NoSecrets
    ) -> AsyncGenerator[LlmResponse, None]:
        assert self.inner is not None  # refused when this was made
        self._open()
        self._last += 1
        exchange = Exchange(self._last, asked, stream, [])
        responses: list[tuple[float, LlmResponse]] = []
        since: float | None = trio.current_time()  # None: the caller holds a response
        is_whole = False
        try:
            async with aclosing(responses_of(self.inner, request, stream)) as answers:
                async for response in answers:
                    responses.append((self._since(since), _without(response, secrets)))
                    is_whole = not response.partial
                    if is_whole:
                        self._write(attrs.evolve(exchange, responses=responses))
                    since = None
                    yield response
                    if is_whole:
                        return
                    since = trio.current_time()
        except FatalError:
            raise
        except Exception as error:
            if not is_whole:
                failed_after_s, written = self._since(since), written_error(error, secrets.out_of_text)
                ended = attrs.evolve(exchange, responses=responses, failed_after_s=failed_after_s, error=written)
                self._write(ended)
            raise
        except BaseException:  # the caller leaves
            if not is_whole:
                self._write(attrs.evolve(exchange, responses=responses, left_after_s=self._since(since)))
            raise
        else:
            self._write(attrs.evolve(exchange, responses=responses))

    @staticmethod
    def _since(moment: float | None) -> float:
        return 0.0 if moment is None else round(trio.current_time() - moment, DIGITS)

    # --- the file

    def _open(self) -> None:
        """Have the file ready to be written, before the model is asked."""
        if self._file.is_open:
            return
        known = self._file.size if self._has_begun else self._cassette.size + self._cassette.torn
        size = self._file.open()
        try:
            if self.mode == "record" and not self._has_begun:
                size = known = 0
                self._file.truncate(0)
            if size != known:
                self._reload()
            else:
                self._file.truncate(size - self._cassette.torn)
            self._cassette.torn = 0
            if not self._file.size:
                assert self.inner is not None
                self._file.write(self._writer.head(self.inner.name, self.inner.capabilities))
            elif self._cassette.needs_break:
                self._file.write(b"\n")
                self._cassette.needs_break = False
        except BaseException:
            self._file.close()
            raise
        self._has_begun = True

    def _reload(self) -> None:
        """Somebody else has written to it since this has read it, or has written itself."""
        if self.mode == "record":
            expected = f"expected the cassette {self._file.path} as this recorder has left it"
            raise CassetteError(f"{expected}, found another size; let one program at a time record into it")
        known, playing, played = {each.number for each in self._cassette.exchanges}, self._playing, self._played
        cassette = self._file.read()
        assert cassette is not None  # it was just opened
        self._load(cassette)
        added = {each.number for each in cassette.exchanges} - known  # these are not replayed here
        self._playing, self._played = playing, played | added
        self._file.truncate(cassette.size)

    def _write(self, exchange: Exchange) -> None:
        if not self._file.is_open:  # closed while it was answering
            self._open()
        self._file.write(self._writer.lines(exchange))

    def close(self) -> None:
        """
        End recording: the file is whole, even if nothing was asked, and others may write it.

        A request after it is served as before; what it is answered is recorded behind the rest.
        """
        if self.mode == "record" and not self._has_begun:
            self._open()
        self._file.close()

    async def aclose(self) -> None:
        """Close the file, as `close` does, and the model."""
        self.close()
        if self.inner is not None:
            await self.inner.aclose()

    # --- tests

    def restart(self) -> None:
        """Replay from the beginning, as if nothing had been asked. A simulation does so for every process."""
        self._playing.clear()
        self._played.clear()
        restart = getattr(self.inner, "restart", None)
        if self.mode != "replay" and callable(restart):
            restart()

    def assert_done(self) -> None:
        """
        Check that everything that was in the file when it was read was asked for.

        Raises:
            CassetteError: Exchanges are left over.
        """
        left = [exchange for exchange in self._cassette.exchanges if exchange.number not in self._played]
        if left:
            total = len(self._cassette.exchanges)
            named = ", ".join(list(told_of(left[:NAMED_MAX]))) + (", …" if len(left) > NAMED_MAX else "")
            msg = f"expected all {total} exchanges of the cassette {self._file.path} to be asked for"
            raise CassetteError(
                f"{msg}, found {len(left)} left over: {named}; record it anew, or look what was not done"
            )

    # --- what is told

    def _told_of_unknown(self, asked: Asked) -> str:
        """What a request has that no recorded one has, seen from the nearest."""
        what = f"expected a request that is in the cassette {self._file.path}"
        todo = "record it anew (mode='record', `pytest --record-models`), or add to it (mode='append')"
        equal = self._by_key.get(asked.key)
        if equal:
            again = f"{todo}, or let it answer again (repeat=True)"
            return f"{what} as often as it is asked, found it {len(equal)} times, and asked once more; {again}"
        if not self._cassette.exchanges:
            return f"{what}, found no exchange in it; {todo}"
        used = self._playing | self._played
        nearest = max(
            self._cassette.exchanges,
            key=lambda each: (*each.asked.likeness(asked), each.number not in used, -each.number),
        )
        difference = first_difference(nearest.asked.to_dict(), asked.to_dict())
        told = f"the first difference to the nearest, exchange {nearest.number}, is at {difference}"
        return f"{what}, found another; {told}; {todo}"

    def _told_of_leaving(self, exchange: Exchange) -> str:
        heard = f"after {len(exchange.responses)} responses"
        msg = (
            f"expected exchange {exchange.number} of the cassette {self._file.path} to be left {heard}, as when it was"
        )
        return f"{msg} recorded, found a caller that goes on; record it anew"


def _without(response: LlmResponse, secrets: NoSecrets) -> LlmResponse:
    """What is recorded of a response: no secret that the run was given."""
    if not secrets.are_known:
        return response
    names = ("content", "error_message", "custom_metadata", "grounding_metadata", "citation_metadata")
    return attrs.evolve(response, **{name: secrets.out_of(getattr(response, name)) for name in names})
