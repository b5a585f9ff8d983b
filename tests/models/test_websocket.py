"""
The websocket under live connections: what it keeps, what it gives up, and how it says so.
"""

from __future__ import annotations

import datetime
import logging
import socket
import ssl
from contextlib import aclosing
from pathlib import Path

import pytest
import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from websockets.http11 import Request

from minirun.errors import (
    ConfigurationError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelError,
    ModelOverloadedError,
    ModelRateLimitedError,
    ModelRequestError,
    ModelTimeoutError,
)
from minirun.models import _websocket
from minirun.models._websocket import WebSocket, connected

from ..cancelled_steps import cancelled_everywhere
from ..provider_servers.sockets import Peer, Refusal, websockets_at

PATIENCE_S = 120  # for what takes milliseconds


async def echo(peer: Peer) -> None:
    async for text in peer.messages():
        await peer.send(text)


async def received(url: str) -> list[bytes]:
    async with connected(url, headers={}) as connection:
        return [message async for message in connection.receive()]


# --- messages ---------------------------------------------------------------------------------------------------------


async def test_messages_come_whole_and_in_order() -> None:
    """
    Texts, bytes, and messages in several frames with pings between them come one by one; the end is the server's.
    """

    async def serve(peer: Peer) -> None:
        await peer.send("Grüße")
        await peer.send(b"{}")
        peer.protocol.send_text(b"one ", fin=False)
        await peer.ping()
        peer.protocol.send_continuation(b"", fin=False)
        peer.protocol.send_continuation(b"two", fin=True)
        await peer.close()

    async with websockets_at(serve) as url:
        assert await received(url) == ["Grüße".encode(), b"{}", b"one two"]


async def test_what_is_sent_arrives_in_order() -> None:
    """
    What is sent and what is posted arrives in the order of the calls.
    """
    async with websockets_at(echo) as url, connected(url, headers={}) as connection:
        await connection.send("1")
        connection.post("2")
        connection.post("3")
        await connection.send("4" * 100_000)
        got = [await connection.next_message() for _ in range(4)]
    assert got == [b"1", b"2", b"3", b"4" * 100_000]


async def test_a_ping_is_answered_while_the_client_waits() -> None:
    """
    Whoever receives answers pings without being asked.
    """
    answered = trio.Event()

    async def serve(peer: Peer) -> None:
        await peer.ping(b"are you there?")
        data = await peer.stream.receive_some(1000)
        peer.protocol.receive_data(bytes(data))
        if b"are you there?" in bytes(peer.protocol.events_received()[0].data):  # type: ignore[union-attr]
            answered.set()
        await peer.close()

    async with websockets_at(serve) as url:
        assert await received(url) == []
    assert answered.is_set()


async def test_messages_in_one_piece_with_the_handshake_arrive_at_once() -> None:
    """
    A message and a ping that come in the same piece as the response to the handshake are received and answered.
    """
    piece = bytearray()
    answered = trio.Event()

    async def serve(peer: Peer) -> None:
        peer.protocol.send_text(b'{"type":"session.created"}')
        peer.protocol.send_ping(b"are you there?")
        await peer.raw(b"".join([bytes(piece), *peer.protocol.data_to_send()]))
        while not any(b"are you there?" in bytes(event.data) for event in peer.protocol.events_received()):  # type: ignore[union-attr]
            peer.protocol.receive_data(bytes(await peer.stream.receive_some(1000)))
        answered.set()
        await trio.sleep_forever()

    with trio.fail_after(PATIENCE_S):
        async with websockets_at(serve, answer=piece) as url, connected(url, headers={}) as connection:
            assert await connection.next_message() == b'{"type":"session.created"}'
            await answered.wait()  # nobody receives meanwhile


async def test_headers_reach_the_server() -> None:
    """
    The headers, the path and the query are the caller's.
    """
    seen: list[Request] = []

    async def serve(peer: Peer) -> None:
        assert peer.request is not None
        seen.append(peer.request)

    async with websockets_at(serve) as url, connected(f"{url}/v1?model=m", headers={"authorization": "k"}):
        pass
    assert (seen[0].path, seen[0].headers["authorization"]) == ("/v1?model=m", "k")


async def test_no_log_has_a_header(caplog: pytest.LogCaptureFixture) -> None:
    """
    At DEBUG, a connection logs nothing (the headers of its handshake hold the key), and registers no logger.
    """
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "websockets.client")
    before = set(logging.root.manager.loggerDict)

    async def serve(peer: Peer) -> None:
        await peer.send("{}")
        await peer.raw(b"\xff" * 100)  # what is no frame is logged as an error

    async with websockets_at(serve) as url:
        with pytest.raises(ModelError):
            async with connected(url, headers={"authorization": "Bearer sk-secret"}) as connection:
                await connection.next_message()
                await connection.next_message()
    assert [record.name for record in caplog.records if record.name != "websockets.server"] == []
    assert set(logging.root.manager.loggerDict) - before <= {"websockets.server"}


# --- a reader that is slow --------------------------------------------------------------------------------------------


async def test_a_slow_reader_holds_the_server_back() -> None:
    """
    A server that says 64 MiB to a client that does not read gets rid of no more than the kernel's buffers hold.
    """
    peers: list[Peer] = []

    async def serve(peer: Peer) -> None:
        peers.append(peer)
        for _ in range(1024):
            await peer.send("x" * 65536)

    async with websockets_at(serve, sent_bytes_max=65536) as url, connected(url, headers={}) as connection:
        assert await connection.next_message() is not None
        before = -1
        with trio.fail_after(PATIENCE_S):
            while peers[0].bytes_sent != before:
                before = peers[0].bytes_sent
                await trio.sleep(0.2)
        assert before < 16 * 2**20
        assert len(connection._frames) <= 1


async def test_a_receiver_never_waits_for_the_line() -> None:
    """
    A client that is asked by pings, by a server that reads nothing, goes on receiving.
    """

    async def serve(peer: Peer) -> None:
        for _ in range(200):
            peer.protocol.send_ping(b"p" * 125)
        await peer._flush()
        for number in range(100):
            await peer.send(str(number))
        await trio.sleep_forever()

    async with websockets_at(serve) as url, connected(url, headers={}) as connection:

        async def flood() -> None:
            while True:
                await connection.send("y" * 2**20)  # until the line is full

        async with trio.open_nursery() as nursery:
            nursery.start_soon(flood)
            with trio.fail_after(PATIENCE_S):
                for number in range(100):
                    assert await connection.next_message() == str(number).encode()
            nursery.cancel_scope.cancel()


async def test_a_message_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A message above the bound ends the connection with an error that says so; those before it come.
    """
    monkeypatch.setattr(_websocket, "MESSAGE_BYTES_MAX", 1000)
    codes: list[int | None] = []
    over = trio.Event()

    async def serve(peer: Peer) -> None:
        await peer.send("x" * 1000)
        await peer.send("x" * 1001)
        async for _ in peer.messages():
            pass
        codes.append(peer.close_code)
        over.set()

    async with websockets_at(serve) as url:
        async with connected(url, headers={}) as connection:
            assert await connection.next_message() == b"x" * 1000
            with pytest.raises(ModelError, match="at most 1000 bytes"):
                await connection.next_message()
        with trio.fail_after(PATIENCE_S):
            await over.wait()
    assert codes == [1009]


# --- how it ends ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (1001, ModelConnectionError),
        (1002, ModelRequestError),
        (1003, ModelRequestError),
        (1007, ModelRequestError),
        (1008, ModelRequestError),
        (1009, ModelRequestError),
        (1011, ModelConnectionError),
        (1012, ModelConnectionError),
        (1013, ModelOverloadedError),
        (4000, ModelConnectionError),
    ],
)
async def test_a_close_code_is_an_error(code: int, error: type[ModelError]) -> None:
    """
    A connection that is closed for a reason ends with the error of its code, for the receiver and for the sender.
    """

    async def serve(peer: Peer) -> None:
        await peer.close(code, "because")

    async with websockets_at(serve) as url, connected(url, headers={}) as connection:
        with pytest.raises(error, match=f"code {code}: because") as caught:
            await connection.next_message()
        assert type(caught.value) is error
        with pytest.raises(error):
            await connection.send("too late")


@pytest.mark.parametrize("code", [1000, None])
async def test_a_close_in_good_order_is_the_end(code: int | None) -> None:
    """
    Closed with 1000, or without a code, the messages end.
    """

    async def serve(peer: Peer) -> None:
        await peer.send("last")
        await peer.close(code)

    async with websockets_at(serve) as url:
        assert await received(url) == [b"last"]


async def test_a_broken_connection_is_lost() -> None:
    """
    Without a goodbye, the connection is lost: reset by the server, or at its end too soon.
    """

    async def reset(peer: Peer) -> None:
        await peer.send("last")
        peer.reset()

    async def stop(peer: Peer) -> None:
        await peer.stream.aclose()

    for serve in (reset, stop):
        async with websockets_at(serve) as url:
            with pytest.raises(ModelConnectionError, match="code 1006"):
                await received(url)


async def test_nonsense_is_an_error(idle_clock: trio.testing.MockClock) -> None:
    """
    Bytes that are no frame end the connection with an error.
    """

    async def serve(peer: Peer) -> None:
        await peer.raw(b"\xff\xff\xff\xff")
        await trio.sleep_forever()

    async with websockets_at(serve) as url:
        with pytest.raises(ModelError, match="websocket protocol"):
            await received(url)


async def test_closing_ends_the_receiver_and_tells_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A receiver in another task ends when the connection is closed; the server learns the code; twice is harmless.
    """
    monkeypatch.setattr(_websocket, "CLOSE_S", 2 * PATIENCE_S)  # nothing waits for that
    codes: list[int | None] = []
    over = trio.Event()

    async def serve(peer: Peer) -> None:
        async for _ in peer.messages():
            pass
        codes.append(peer.close_code)
        over.set()

    got: list[bytes] = []

    async def receive(connection: WebSocket) -> None:
        got.extend([message async for message in connection.receive()])

    with trio.fail_after(PATIENCE_S):
        async with websockets_at(serve) as url, connected(url, headers={}) as connection:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(receive, connection)
                await trio.sleep(0.05)
                await connection.aclose(1001, "going")
            await connection.aclose()
            with pytest.raises(ModelConnectionError, match="closed by this side"):
                await connection.send("x")
            await over.wait()
    assert (got, codes) == ([], [1001])


async def test_who_is_cancelled_says_goodbye() -> None:
    """
    Leaving by cancellation tells the server, too.
    """
    codes: list[int | None] = []
    over = trio.Event()

    async def serve(peer: Peer) -> None:
        async for _ in peer.messages():
            pass
        codes.append(peer.close_code)
        over.set()

    async with websockets_at(serve) as url:
        with trio.CancelScope() as scope:
            async with connected(url, headers={}):
                scope.cancel()
                await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught
        with trio.fail_after(PATIENCE_S):
            await over.wait()
    assert codes == [1000]


async def test_a_server_that_says_no_goodbye_is_left() -> None:
    """
    Closing waits two seconds at most for a server that neither reads nor answers.
    """

    async def serve(peer: Peer) -> None:
        await trio.sleep_forever()

    async with websockets_at(serve) as url:
        with trio.fail_after(2 * _websocket.CLOSE_S + 1):
            async with connected(url, headers={}) as connection:
                with trio.move_on_after(0.3):
                    while True:
                        await connection.send("z" * 2**20)


async def test_a_silent_line_is_pinged_and_then_lost(
    monkeypatch: pytest.MonkeyPatch, idle_clock: trio.testing.MockClock
) -> None:
    """
    A line on which nothing comes is pinged; one that answers is kept, and one that does not is lost.
    """
    monkeypatch.setattr(_websocket, "SILENCE_S", 0.2)
    peers: list[Peer] = []

    async def answer(peer: Peer) -> None:
        peers.append(peer)
        async with trio.open_nursery() as nursery:

            async def read() -> None:
                async for _ in peer.messages():
                    pass

            nursery.start_soon(read)
            await trio.sleep(1)
            await peer.close()
            nursery.cancel_scope.cancel()

    async def silence(peer: Peer) -> None:
        await trio.sleep_forever()

    async with websockets_at(answer) as url:
        assert await received(url) == []
    assert peers[0].pings >= 2
    async with websockets_at(silence) as url:
        with pytest.raises(ModelTimeoutError, match="no answer to a ping"):
            await received(url)


# --- connecting -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, ModelAuthenticationError),
        (403, ModelAuthenticationError),
        (404, ModelRequestError),
        (429, ModelRateLimitedError),
        (302, ModelRequestError),
        (500, ModelOverloadedError),
        (503, ModelOverloadedError),
    ],
)
async def test_a_handshake_that_is_refused(status: int, error: type[ModelError]) -> None:
    """
    A refusal is the error of its status, with the server's words, its name for the request, and when to come back.
    """

    def refuse(request: Request) -> Refusal:
        return status, {"x-request-id": "req_9", "retry-after": "3"}, b'{"error": {"code": "c", "message": "No."}}'

    async with websockets_at(echo, refuse) as url:
        with pytest.raises(error, match=r"\(c\): No\.") as caught:
            await received(url)
    assert (caught.value.status, caught.value.request_id) == (status, "req_9")
    assert caught.value.retry_after_s == 3


async def test_no_server_no_connection() -> None:
    """
    Nobody there, nobody of that name, another protocol: ModelConnectionError; no such address: ConfigurationError.
    """

    async def other(stream: trio.SocketStream) -> None:
        await stream.send_all(b"220 mail.example ESMTP\r\n")
        await stream.aclose()

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, other, listeners)
        strange = f"ws://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        for url in (f"ws://127.0.0.1:{port}", "ws://no-such-host.invalid", strange):
            with pytest.raises(ModelConnectionError):
                await received(url)
        nursery.cancel_scope.cancel()
    with pytest.raises(ConfigurationError):
        await received("http://127.0.0.1")


async def test_connecting_takes_no_longer_than_it_may() -> None:
    """
    A server that takes the connection and says nothing is given up.
    """
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        with pytest.raises(ModelTimeoutError):
            async with connected(f"ws://127.0.0.1:{deaf.getsockname()[1]}", headers={}, timeout_s=0.2):
                pass


async def test_tls_is_checked(tmp_path: Path) -> None:
    """
    A certificate that is trusted is taken, and one that is not is refused.
    """
    served, trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    certificate = _certificate(tmp_path)
    served.load_cert_chain(*certificate)
    trusted.load_verify_locations(certificate[0])
    async with websockets_at(echo, tls=served) as url:
        url = url.replace("127.0.0.1", "localhost")
        async with connected(url, headers={}, ssl_context=trusted) as connection:
            await connection.send("hidden")
            assert await connection.next_message() == b"hidden"
        with pytest.raises(ModelConnectionError, match="certificate verify failed"):
            await received(url)


def _certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for localhost that nobody has signed, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(made.public_bytes(pem))
    kind = serialization.PrivateFormat.PKCS8
    (folder / "key.pem").write_bytes(key.private_bytes(pem, kind, serialization.NoEncryption()))
    return folder / "cert.pem", folder / "key.pem"


# --- cancellation -----------------------------------------------------------------------------------------------------


async def test_cancelled_at_any_step_it_is_closed() -> None:
    """
    Cancelled at whatever step, connecting, sending, receiving and closing leave no connection open.
    """
    ends: list[trio.Event] = []

    async def serve(peer: Peer) -> None:
        over = trio.Event()
        ends.append(over)
        try:
            await echo(peer)
        finally:
            over.set()

    async def converse() -> None:
        async with connected(url, headers={}) as connection:
            await connection.send("one")
            async with aclosing(connection.receive()) as messages:
                assert await anext(messages) == b"one"
            await connection.send("two")
            assert await connection.next_message() == b"two"
            await connection.aclose()

    async with websockets_at(serve) as url:
        steps = await cancelled_everywhere(converse)
        with trio.fail_after(PATIENCE_S):
            for over in ends:
                await over.wait()
    assert steps > 8


async def test_a_cancelled_receiver_loses_nothing() -> None:
    """
    Messages come all, and in order, to a receiver that is cancelled again and again.
    """

    async def serve(peer: Peer) -> None:
        for number in range(200):
            await peer.send(str(number) * 50)
            if number % 7 == 0:
                await trio.sleep(0.001)

    got: list[bytes] = []
    async with websockets_at(serve) as url, connected(url, headers={}) as connection:
        over = False
        while not over:
            with trio.move_on_after(0.0005):
                async for message in connection.receive():
                    got.append(message)
                over = True
    assert got == [(str(number) * 50).encode() for number in range(200)]


async def test_after_a_sender_was_cancelled_midway_nothing_is_sent() -> None:
    """
    A message that went out by half makes the connection useless for sending, and it says so.
    """

    async def serve(peer: Peer) -> None:
        await trio.sleep_forever()

    async with websockets_at(serve) as url, connected(url, headers={}) as connection:
        with trio.move_on_after(0.3) as scope:
            while True:
                await connection.send("z" * 2**20)
        assert scope.cancelled_caught
        with pytest.raises(ModelConnectionError, match="left unfinished"):
            await connection.send("more")


async def test_what_the_block_raises_comes_out_as_it_is() -> None:
    """
    An exception of the block is not put into a group.
    """
    async with websockets_at(echo) as url:
        with pytest.raises(KeyError):
            async with connected(url, headers={}):
                raise KeyError("mine")
