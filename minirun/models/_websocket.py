"""
The way to a provider over a websocket, on trio: one connection, one task that sends, one that receives.

    async with connected("wss://...", headers={"authorization": "Bearer ..."}) as socket:
        await socket.send(text)                     # a text message; waits while the line is full
        async for data in socket.receive():         # bytes of text and binary messages alike, whole
            ...
        await socket.aclose()                       # leaving the block does it, too

The protocol is `websockets`' own, without I/O (`websockets.client.ClientProtocol`); only this module imports it. What
is here is the I/O, because of four things that have to be exact:

*   Nothing is read from the network but by the receiver, so TCP holds back a server that is faster than its receiver,
    and no more than one message and one piece of `READ_BYTES` is ever kept.
*   A receiver that is cancelled loses nothing. A sender that is cancelled while its message goes out may leave half of
    it on the line; then nothing more can be sent, and is not: the connection is of no more use.
*   Receiving never waits for the line to take something. Pongs and the like are sent by a task of the connection's
    scope; two sides that waited for each other to read would wait for ever.
*   A line that is silent for `SILENCE_S` is pinged, and is lost if it stays so for as long again. Only time in which
    somebody waits to receive counts, by trio's clock.

Nothing is read from the environment (so no proxies), redirects are not followed, nothing is compressed, nothing is
logged, and no message of an error has an address or a header: both may hold a key.
"""

from __future__ import annotations

import logging
import ssl
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache

import trio

from ..errors import (
    ConfigurationError,
    ModelConnectionError,
    ModelError,
    ModelOverloadedError,
    ModelRequestError,
    ModelTimeoutError,
)
from ._reading import object_in, object_of, printable, text_in
from ._wire import Fault, error_of

try:
    from websockets.client import ClientProtocol
    from websockets.exceptions import InvalidStatus, InvalidURI
    from websockets.frames import Frame, Opcode
    from websockets.protocol import State
    from websockets.uri import parse_uri
except ModuleNotFoundError as _error:
    _msg = f'live connections to model providers need {_error.name}; run: pip install "minirun[live]"'
    raise ModuleNotFoundError(_msg, name=_error.name) from None

__all__ = ["MESSAGE_BYTES_MAX", "WebSocket", "connected", "error_of_close"]

# A connection that cannot be made soon will not be made; the same as for HTTP. It covers TCP, TLS and the handshake.
CONNECT_TIMEOUT_S = 10.0
# Of one message that is received: what OpenAI takes as one piece of sound, 15 MiB, and some JSON around it.
MESSAGE_BYTES_MAX = 16 * 2**20
# Of one reading; so much of small messages may wait for a slow reader, in the memory of this process.
READ_BYTES = 64 * 2**10
# Twice of this, and a line is lost: as long as most servers and proxies wait, which is 30 to 60 seconds.
SILENCE_S = 20.0
# For saying goodbye: some round trips. The answer is a courtesy, nothing is lost without it.
CLOSE_S = 1.0

# It belongs to no program's logging. The logger that websockets takes by default writes every header of the handshake
# at DEBUG, with the key.
_SILENT = logging.Logger("minirun.models.live")
_SILENT.disabled = True

_DATA = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)
# RFC 6455, section 7.4.1, and IANA's registry: closed in good order, with this code or without any.
_IN_GOOD_ORDER = frozenset({1000, 1005})
_OVERLOADED = frozenset({1013})
# What was sent was wrong: its form, its kind, its text, a rule, its size, an extension.
_REFUSED = frozenset({1002, 1003, 1007, 1008, 1009, 1010})


class WebSocket:
    """
    A connection that is open. One task may send, one receive, and any close it.

    Sending and receiving raise a ModelError when the connection is lost: `error_of_close` says which.
    """

    def __init__(
        self, stream: trio.abc.Stream, protocol: ClientProtocol, closed_error: Callable[[int, str], ModelError | None]
    ) -> None:
        self._stream = stream
        self._closed_error = closed_error
        self._protocol = protocol
        self._line = trio.Lock()  # held by the task that sends
        self._is_cut = False  # a message went out by half
        self._is_closed = False  # by this side
        self._to_answer = trio.Event()  # pongs and the like may wait to be sent
        self._answering = trio.CancelScope(shield=True)  # ended by closing
        self._reading = trio.Lock()  # held by the task that reads
        self._frames: deque[Frame] = deque()  # read, and not received yet
        self._message = bytearray()  # what has come of a message in several frames
        # A server can send its first messages, or a ping, in one piece with its answer to the handshake.
        self._collect()

    async def send(self, text: str) -> None:
        """
        Send a text message; return when the line has taken it.

        Cancelled before it is this message's turn, nothing is sent; later, the connection is of no more use.
        """
        async with self._line:
            await trio.lowlevel.checkpoint_if_cancelled()
            self.check_open()
            self._protocol.send_text(text.encode())
            await self._flush()

    def post(self, text: str) -> None:
        """
        Send a text message soon, after those that are being sent; for a receiver, which must not wait for the line.

        If the connection is lost, it is not sent; the receiver finds that out.
        """
        if self._protocol.state is State.OPEN and not self._is_closed:
            self._protocol.send_text(text.encode())
            self._to_answer.set()

    def check_open(self) -> None:
        """Raise a ModelError if nothing can be sent any more."""
        expected = "expected a connection that is open"
        if self._is_closed:
            raise ModelConnectionError(f"{expected}, found one that was closed by this side")
        if self._protocol.state is not State.OPEN:
            raise self._end() or ModelConnectionError(f"{expected}, found one that the provider has closed")
        if self._is_cut:
            found = "found one on which a message was left unfinished, as its sender was cancelled or the line broke"
            raise ModelConnectionError(f"{expected}, {found}")

    async def receive(self) -> AsyncGenerator[bytes, None]:
        """The messages, one by one, until either side closes the connection in good order. See `next_message`."""
        while (message := await self.next_message()) is not None:
            yield message

    async def next_message(self) -> bytes | None:
        """
        The next message, whole; None if either side has closed the connection in good order.

        Raises:
            ModelTimeoutError: The line has been silent, and has not answered a ping.
            ModelError: The connection was closed for a reason, or is lost.
        """
        while not self._is_closed:
            if self._frames:
                frame = self._frames.popleft()
                self._message += frame.data
                if frame.fin:
                    message, self._message = bytes(self._message), bytearray()
                    return message
            elif self._protocol.state is State.OPEN:
                await self._read()
            elif (error := self._end()) is not None:
                raise error
            else:
                break
        return None

    async def aclose(self, code: int = 1000, reason: str = "") -> None:
        """
        Close the connection; a receiver's messages end. Harmless if it is closed.

        It takes twice `CLOSE_S` at most; if cancelled, no longer than the line needs to take the closing message.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            with trio.move_on_after(CLOSE_S, shield=True):
                await self._send_close(code, reason)
            with trio.move_on_after(CLOSE_S):  # so that what was sent last is not lost by a reset
                async with self._reading:
                    while self._protocol.state is State.CLOSING and await self._stream.receive_some(READ_BYTES):
                        pass
        except (trio.BrokenResourceError, trio.ClosedResourceError, ModelError):
            pass  # lost already
        finally:
            self._answering.cancel()
            await trio.aclose_forcefully(self._stream)

    async def _send_close(self, code: int, reason: str) -> None:
        async with self._line:
            if self._is_cut:
                return
            if self._protocol.state is State.OPEN:
                self._protocol.send_close(code, reason)
            await self._flush()

    async def answer(self) -> None:
        """Send pongs, pings and the answer to a close, as they come to be sent, until the connection is closed."""
        with self._answering:
            while True:
                await self._to_answer.wait()
                self._to_answer = trio.Event()
                async with self._line:
                    if self._is_cut:
                        return
                    try:
                        await self._flush()
                    except ModelError:
                        return  # the receiver finds it out, and says it

    async def _flush(self) -> None:
        """Send what the protocol has to send; the line is held."""
        try:
            for data in self._protocol.data_to_send():
                if data:
                    await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._is_cut = True
            told = self._end() if self._protocol.close_rcvd is not None else None
            said = printable(str(error) or type(error).__name__)
            raise told or ModelConnectionError(
                f"expected the connection to the provider to last, found it lost ({said})"
            ) from None
        except trio.Cancelled:
            self._is_cut = True
            raise

    async def _read(self) -> None:
        """Read a piece; it may hold several messages, or none."""
        async with self._reading:
            for was_silent in (False, True):
                with trio.move_on_after(SILENCE_S):
                    try:
                        self._take(await self._stream.receive_some(READ_BYTES))
                    except (trio.BrokenResourceError, trio.ClosedResourceError):
                        self._take(b"")
                    return
                if not was_silent:
                    self._protocol.send_ping(b"minirun")
                    self._to_answer.set()
        found = f"found it silent for {2 * SILENCE_S:g} seconds, and no answer to a ping"
        raise ModelTimeoutError(f"expected the provider to keep the connection alive, {found}")

    def _take(self, data: bytes | bytearray) -> None:
        if data:
            self._protocol.receive_data(bytes(data))
        else:
            self._protocol.receive_eof()
        self._collect()

    def _collect(self) -> None:
        """Take the frames that the protocol has read; let `answer` send what the protocol replies to them."""
        for event in self._protocol.events_received():
            if isinstance(event, Frame) and event.opcode in _DATA:
                self._frames.append(event)
        self._to_answer.set()

    def _end(self) -> ModelError | None:
        """The error that the end of the connection is; None: it was closed in good order."""
        closed, broken = self._protocol.close_rcvd, self._protocol.parser_exc
        if closed is not None:
            return self._closed_error(closed.code, closed.reason)
        if broken is None or isinstance(broken, EOFError):
            return self._closed_error(1006, "")
        expected = f"expected what the websocket protocol has, and messages of at most {MESSAGE_BYTES_MAX} bytes"
        return ModelError(f"{expected}, found others ({printable(str(broken))})")


@asynccontextmanager
async def connected(
    url: str,
    *,
    headers: Mapping[str, str],
    timeout_s: float = CONNECT_TIMEOUT_S,
    request_id_header: str = "x-request-id",
    ssl_context: ssl.SSLContext | None = None,
    closed_error: Callable[[int, str], ModelError | None] | None = None,
) -> AsyncIterator[WebSocket]:
    """
    Connect; the block has the connection, which is closed at its end.

    Args:
        url: Where the server is, with `ws://` or `wss://`.
        headers: What is sent with the handshake, beside what it needs.
        timeout_s: How long connecting may take, in seconds.
        request_id_header: In which header of its answer the provider names the request.
        ssl_context: How TLS is done; None: with the certificates that the system trusts.
        closed_error: Given the code and the reason of a close, the error that it is, or None; by default as
            `error_of_close` says.

    Raises:
        ConfigurationError: It is no such address.
        ModelAuthenticationError, ModelRateLimitedError, ModelOverloadedError, ModelRequestError: The server has
            answered the handshake with 401 or 403, 429, 500 and more, another status from 300 to 499.
        ModelConnectionError: There is no such server, it does not take the connection, its certificate is wrong, or
            it does not speak websockets.
        ModelTimeoutError: Connecting took too long.
    """
    try:
        protocol = ClientProtocol(parse_uri(url), max_size=MESSAGE_BYTES_MAX, logger=_SILENT)
    except InvalidURI:
        raise ConfigurationError("expected an address such as 'wss://host/path', found another") from None
    stream = None
    try:
        try:
            with trio.fail_after(timeout_s):
                stream = await _stream_to(protocol, ssl_context)
                await _shake_hands(stream, protocol, headers, request_id_header)
        except trio.TooSlowError:
            msg = f"expected a connection to the provider within {timeout_s:g} seconds, found none"
            raise ModelTimeoutError(msg) from None
        except (OSError, trio.BrokenResourceError) as error:
            said = printable(str(error.__cause__ or error) or type(error).__name__)
            raise ModelConnectionError(f"expected a connection to the provider, found none ({said})") from None
    except BaseException:
        if stream is not None:
            await trio.aclose_forcefully(stream)
        raise
    socket, failure = WebSocket(stream, protocol, closed_error or error_of_close), None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(socket.answer)
        try:
            yield socket
        except BaseException as error:
            failure = error  # raised outside of the nursery, which would put it into a group
        try:
            await socket.aclose()
        except trio.Cancelled:
            pass  # it is closed all the same; the cancelled scope decides where to go on
    if failure is not None:
        raise failure


def error_of_close(code: int, reason: str) -> ModelError | None:
    """
    Return the error that a connection ends with which was closed with *code*; None: it was closed in good order.

    1002, 1003 and 1007 to 1010: what was sent is refused. 1013: the server is overloaded. All others: it is lost.
    """
    if code in _IN_GOOD_ORDER:
        return None
    said = printable(f": {reason}" if reason else "")
    message = f"expected the provider to keep the connection open, found it closed with code {code}{said}"
    if code in _REFUSED:
        return ModelRequestError(message)
    return ModelOverloadedError(message) if code in _OVERLOADED else ModelConnectionError(message)


async def _stream_to(protocol: ClientProtocol, ssl_context: ssl.SSLContext | None) -> trio.abc.Stream:
    uri = protocol.uri
    tcp = await trio.open_tcp_stream(uri.host, uri.port)
    if not uri.secure:
        return tcp
    stream = trio.SSLStream(tcp, ssl_context or _trusted(), server_hostname=uri.host, https_compatible=True)
    try:
        await stream.do_handshake()
    except BaseException:
        await trio.aclose_forcefully(tcp)
        raise
    return stream


@cache
def _trusted() -> ssl.SSLContext:
    return ssl.create_default_context()


async def _shake_hands(
    stream: trio.abc.Stream, protocol: ClientProtocol, headers: Mapping[str, str], request_id_header: str
) -> None:
    request = protocol.connect()
    request.headers["user-agent"] = "minirun"  # some servers ask for one
    for name, value in headers.items():
        request.headers[name] = value
    protocol.send_request(request)
    for data in protocol.data_to_send():
        await stream.send_all(data)
    while protocol.state is State.CONNECTING and protocol.handshake_exc is None:
        read = await stream.receive_some(READ_BYTES)
        if read:
            protocol.receive_data(bytes(read))
        else:
            protocol.receive_eof()
    refused = protocol.handshake_exc
    if isinstance(refused, InvalidStatus):
        answer = refused.response
        told = {name.lower(): value for name, value in answer.headers.raw_items()}
        raise error_of(_fault_in(bytes(answer.body or b"")), answer.status_code, told, request_id_header)
    if refused is not None:
        said = printable(str(refused))
        raise ModelConnectionError(f"expected a server that speaks websockets, found another ({said})")


def _fault_in(body: bytes) -> Fault:
    """What the body of a refusal says, in the form that OpenAI and Google share, or in another."""
    error = object_in(object_of(body).get("error"))
    code, message = text_in(error.get("code")) or text_in(error.get("status")), text_in(error.get("message"))
    return Fault(code, message or body[:500].decode("utf-8", "replace").strip())
