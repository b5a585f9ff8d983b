"""
What all models behind HTTP promise, each against a fake server of its API.
"""

from __future__ import annotations

import socket
from typing import Any

import pytest
import trio
import trio.testing

from minirun.errors import (
    ConfigurationError,
    ContextTooLongError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelError,
    ModelOverloadedError,
    ModelRateLimitedError,
    ModelRequestError,
    ModelTimeoutError,
    NotSupportedError,
)
from minirun.testing._llm_contract import llm_checks
from minirun.types import UsageMetadata

from ..provider_servers.server import Reply, fixture, in_pieces, served
from ..wire_models import APIS, TEXT, Api, answer, ask, playing, request, streamed, whole

pytestmark = pytest.mark.parametrize("api", APIS.values(), ids=APIS)

USAGE = UsageMetadata(
    prompt_token_count=20,
    candidates_token_count=7,
    thoughts_token_count=5,
    total_token_count=32,
    cached_content_token_count=0,
    cache_write_token_count=4,
)


def begun(api: Api) -> bytes:
    """The beginning of a stream, up to the end of the event with its first letters."""
    data = fixture(api.text)
    return data[: data.index(b"\n\n", data.index("Grüße".encode())) + 2]


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", llm_checks().values(), ids=llm_checks())
async def test_the_contract_is_kept(api: Api, check) -> None:  # type: ignore[no-untyped-def]  # one of a dict's values
    """
    A model behind HTTP keeps the contract of all models.
    """
    server = api.server()

    class Endless(list[Reply]):
        def pop(self, index: object = 0) -> Reply:
            return streamed(api.text) if server.asked[-1].is_stream else whole(api.whole)

    server.script = Endless()
    async with served(server) as url:
        model = api.model(url)
        await check(lambda: model)
        await model.aclose()


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_has_all_that_was_sent(api: Api, stream: bool) -> None:
    """
    Text (with U+FFFD for half a surrogate pair), usage, finish reason, version, response id and request id come.
    """
    reply = streamed(api.text) if stream else whole(api.whole)
    reply.headers[api.request_id_header] = "req_7"
    async with playing(api, reply) as (model, _):
        response = await answer(model, stream=stream)
    assert response.content is not None
    assert response.content.text == TEXT
    assert response.finish_reason == "STOP"
    assert response.error_code is None
    assert response.response_id == api.response_id
    assert response.model_version == api.model_version
    assert response.request_id == "req_7"
    usage = response.usage_metadata
    assert usage is not None
    found = (usage.prompt_token_count, usage.candidates_token_count, usage.thoughts_token_count)
    assert found == (20, 7, 5)
    assert usage.total_token_count == 32
    assert (usage.cached_content_token_count, usage.cache_write_token_count) == api.cached


@pytest.mark.parametrize("size", [3, 64, *(pytest.param(size, marks=pytest.mark.slow) for size in (1, 2, 7, 1000))])
async def test_pieces_change_nothing(api: Api, size: int) -> None:
    """
    An answer is the same in whatever pieces its bytes come, and its fragments add up to it.
    """
    for name in (api.text, api.calls):
        async with playing(api, streamed(name), Reply(in_pieces(fixture(name), size))) as (model, _):
            expected, found = await ask(model), await ask(model)
        assert found == expected
        texts = [response.content.text for response in found[:-1] if response.content is not None]
        assert found[-1].content is not None
        assert "".join(texts) == found[-1].content.text


async def test_calls_side_by_side_are_put_together(api: Api) -> None:
    """
    Calls whose arguments come in pieces are whole, in order, with the provider's ids; no arguments are an empty object.
    """
    async with playing(api, streamed(api.calls)) as (model, _):
        response = await answer(model)
    assert response.content is not None
    first, second = response.content.calls
    assert (first.name, first.args, second.name, second.args) == ("add", {"a": 1, "b": 2}, "now", {})
    assert (first.id, second.id) == api.call_ids
    assert response.finish_reason == "STOP"


async def test_connections_are_kept_and_closed(api: Api) -> None:
    """
    Requests one after the other share a connection, and one after `aclose` finds a new one.
    """
    async with playing(api, *[streamed(api.text)] * 3) as (model, server):
        for _ in range(2):
            await ask(model)
        await model.aclose()
        await ask(model)
    assert len(server.asked) == 3
    assert server.asked[0].port == server.asked[1].port != server.asked[2].port


def test_one_object_serves_one_trio_run_after_another(api: Api) -> None:
    """
    A model whose client belongs to a run that is over opens a new one.
    """
    models: list[Any] = []

    async def main() -> str:
        server = api.server()
        server.script.append(streamed(api.text))
        async with served(server) as url:
            model: Any = models[0] if models else api.model(url)
            models.append(model)
            model._transport._base_url = url + api.base  # the server has moved
            response = await answer(model)
            await model.aclose()
        assert response.content is not None
        return response.content.text

    assert [trio.run(main), trio.run(main)] == [TEXT, TEXT]


# --- requests ---------------------------------------------------------------------------------------------------------


async def test_keys_may_be_functions(api: Api) -> None:
    """
    A function that returns the key, sync or async, is asked for every request.
    """
    keys = ["wrong", api.key]

    async def key() -> str:
        await trio.lowlevel.checkpoint()
        return keys.pop(0)

    async with playing(api, streamed(api.text), api_key=key) as (model, _):
        with pytest.raises(ModelAuthenticationError) as caught:
            await ask(model)
        assert "wrong" not in str(caught.value)
        await ask(model)


async def test_a_setting_that_the_api_has_not_is_refused(api: Api) -> None:
    """
    A setting that the API does not have is refused by name, before anything is sent; with `ignore` it is left out.
    """
    asked, first = request(**api.lacking), next(iter(api.lacking))
    async with playing(api) as (model, server):
        refused = rf"GenerateContentConfig\.{first}\S* is not supported by .* API\b.*; .*ignore=\{{'{first}.*'\}}"
        with pytest.raises(NotSupportedError, match=refused):
            await ask(model, asked)
    assert server.asked == []
    async with playing(api, *[streamed(api.text)] * 2, ignore=set(api.lacking)) as (model, server):
        await ask(model, asked)
        await ask(model)
    assert server.asked[0].body == server.asked[1].body


async def test_extra_body_goes_through(api: Api) -> None:
    """
    The fields of `extra_body` stand in the body as they are, and a field that the API does not have is its affair.
    """
    async with playing(api, streamed(api.text)) as (model, server):
        await ask(model, request(extra_body=api.more))
        with pytest.raises(ModelRequestError, match="Extra inputs"):
            await ask(model, request(extra_body={"unknown": 1}))
    assert api.more.items() <= server.asked[0].body.items()


@pytest.mark.parametrize(
    "options",
    [
        {"base_url": "localhost"}, {"base_url": "http://u:p@h/v1"}, {"base_url": "http://h/v1?key=x"}, {"api_key": " "},
        {"api_key": "a\nb"}, {"api_key": 7}, {"ignore": "top_k"}, {"ignore": {"top"}}, {"headers": {"a": 1}},
        {"timeout_s": 0}, {"timeout_s": float("nan")}, {"client": object(), "api_key": None},
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_when_it_is_made(api: Api, options: dict[str, object]) -> None:
    """
    An address, a key, a name of a setting, a header, a time or a client that cannot be one is refused at once.
    """
    with pytest.raises(ConfigurationError, match="expected"):
        api.model("http://127.0.0.1:1", **options)


# --- failures ---------------------------------------------------------------------------------------------------------


STATUSES: list[tuple[int, str, str, type[ModelError]]] = [
    (400, "invalid_request_error", "no such field", ModelRequestError),
    (400, "context_length_exceeded", "This model's maximum context length is 8 tokens", ContextTooLongError),
    (400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum", ContextTooLongError),
    (401, "authentication_error", "bad key", ModelAuthenticationError),
    (403, "permission_error", "not yours", ModelAuthenticationError),
    (404, "not_found_error", "no such model", ModelRequestError),
    (408, "timeout_error", "too slow", ModelTimeoutError),
    (413, "request_too_large", "too large", ContextTooLongError),
    (429, "rate_limit_error", "slow down", ModelRateLimitedError),
    (500, "api_error", "oh", ModelOverloadedError),
    (503, "server_error", "oh", ModelOverloadedError),
    (529, "overloaded_error", "busy", ModelOverloadedError),
]


@pytest.mark.parametrize("stream", [False, True])
async def test_errors_are_of_one_family(api: Api, stream: bool) -> None:
    """
    Whatever the API, a status is one error, with the provider's words, its request id, and nothing begun.
    """
    headers = {api.request_id_header: "req_9"}
    replies = [whole(api.error(kind, said), status, **headers) for status, kind, said, _ in STATUSES]
    async with playing(api, *replies) as (model, _):
        for status, kind, said, error in STATUSES:
            with pytest.raises(ModelError) as caught:
                await ask(model, stream=stream)
            found = caught.value
            assert type(found) is error, (status, kind, said)
            told = (found.status, found.request_id, found.has_begun, found.retry_after_s)
            assert told == (status, "req_9", False, None), (status, kind, said)
            assert said in str(found)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "Sun, 22 Nov 2026 12:00:07 GMT", "date": "Sun, 22 Nov 2026 12:00:00 GMT"}, 7.0),
        ({"retry-after": "Sun, 22 Nov 2026 11:00:00 GMT", "date": "Sun, 22 Nov 2026 12:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
    ],
)
def test_retry_after_is_read_in_all_its_forms(api: Api, headers: dict[str, str], seconds: float | None) -> None:
    """
    Seconds, milliseconds and dates (by the server's own clock) say how long to wait; other words do not.
    """
    model = api.model("http://127.0.0.1:1")
    assert model._wire.failure(429, headers, b"{}").retry_after_s == seconds  # type: ignore[attr-defined]  # a WireLlm


def test_an_error_that_is_no_text_is_told(api: Api) -> None:
    """
    Bytes that are no UTF-8 are shown as such; of a long page the beginning is told, without the space around it.
    """
    model = api.model("http://127.0.0.1:1")
    for body, told in ((b" \xff gone \n", "\ufffd gone"), (b"a" * 499 + b"bc", "a" * 499 + "b")):
        error = model._wire.failure(502, {}, body)  # type: ignore[attr-defined]  # a WireLlm
        assert told in str(error)
        assert f"{told[-1]}c" not in str(error)
        assert f" {told} " not in str(error)


async def test_an_error_that_is_no_json_is_told(api: Api) -> None:
    """
    What a proxy says in another form is an error of the same family, with the beginning of its words.
    """
    reply = Reply([b"<html>Bad gateway</html>" * 10_000], 502, content_type="text/html")
    async with playing(api, reply) as (model, _):
        with pytest.raises(ModelOverloadedError, match="Bad gateway") as caught:
            await ask(model)
    assert len(str(caught.value)) < 1000


async def test_an_error_in_a_stream_is_one_of_the_family(api: Api) -> None:
    """
    An error event ends the answer as the status that it stands for would have, and says that something had come.
    """
    async with playing(api, Reply([begun(api), api.error_event]), Reply([api.error_event])) as (model, _):
        for has_begun in (True, False):
            with pytest.raises(ModelOverloadedError, match="overloaded") as caught:
                await ask(model)
            assert caught.value.has_begun is has_begun


@pytest.mark.parametrize("breaks", [False, True])
async def test_a_stream_that_is_cut_off_is_no_answer(api: Api, breaks: bool) -> None:
    """
    A stream that ends, or breaks, before the answer does is a lost connection, whatever had come by then.
    """
    replies = [Reply([begun(api)], breaks=breaks), Reply([b": nothing yet\n\n"], breaks=breaks)]
    async with playing(api, *replies) as (model, _):
        for has_begun in (True, False):
            with pytest.raises(ModelConnectionError) as caught:
                await ask(model)
            assert caught.value.has_begun is has_begun


async def test_every_cut_of_a_stream_is_noticed(api: Api) -> None:
    """
    A stream that ends anywhere before its last event is never taken for an answer.
    """
    data = fixture(api.calls)
    places = range(0, data.index(api.end), 97)
    async with playing(api, *[Reply([data[:place]]) for place in places]) as (model, _):
        for _ in places:
            with pytest.raises(ModelConnectionError):
                await ask(model)


async def test_a_server_that_is_not_there_is_a_lost_connection(api: Api) -> None:
    """
    A connection that cannot be made is one error, with no status.
    """
    model = api.model("http://127.0.0.1:1")
    with pytest.raises(ModelConnectionError) as caught:
        await ask(model)
    assert caught.value.status is None
    await model.aclose()


@pytest.mark.parametrize("reply", [Reply(stalls_first=True), Reply([b": hm\n\n"], stalls=True)])
async def test_a_silent_server_is_a_time_out(api: Api, reply: Reply, idle_clock: trio.testing.MockClock) -> None:
    """
    A server that says nothing for as long as the request's own time-out is given up, and sees the client leave.
    """
    async with playing(api, reply) as (model, server):
        with pytest.raises(ModelTimeoutError):
            await ask(model, request(http_options={"timeout": 1000}))
        await server.left.wait()


async def test_a_connection_that_is_not_made_in_time_is_a_time_out(
    api: Api, autojump_clock: trio.testing.MockClock
) -> None:
    """
    Ten seconds are enough to connect, whatever the request's own time-out is; where that is less, it counts.
    """
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        address = listener.getsockname()
        with socket.create_connection(address):  # there is no room for another one
            model = api.model(f"http://127.0.0.1:{address[1]}")
            for milliseconds, seconds in ((None, 10), (3000, 3)):
                start = trio.current_time()
                with pytest.raises(ModelTimeoutError):
                    await ask(model, request(http_options={"timeout": milliseconds}) if milliseconds else None)
                assert trio.current_time() - start == pytest.approx(seconds)
            await model.aclose()


async def test_a_body_that_is_no_answer_is_told(api: Api) -> None:
    """
    What is no JSON, or JSON of another form, is an error that leads to `base_url`.
    """
    replies = [Reply([b"<html>welcome</html>"], content_type="text/html"), whole({"hello": "world"})]
    async with playing(api, *replies) as (model, _):
        for _ in replies:
            with pytest.raises(ModelError, match="look at base_url"):
                await ask(model, stream=False)
    async with playing(api, Reply([b"data: no json\n\n"])) as (model, _):
        with pytest.raises(ModelError, match="JSON objects"):
            await ask(model)


# --- leaving ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reply", ["head", "body"])
async def test_a_cancellation_closes_the_connection(api: Api, reply: str) -> None:
    """
    A cancelled request is seen by the server as a client that has left, before its head and in its body.
    """
    stalling = Reply(stalls_first=True) if reply == "head" else Reply([begun(api)], stalls=True)
    async with playing(api, stalling) as (model, server):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, model)
            await server.came.wait()
            nursery.cancel_scope.cancel()
        await server.left.wait()


async def test_leaving_early_closes_the_connection(api: Api) -> None:
    """
    A caller that closes the generator after a fragment is seen by the server as a client that has left.
    """
    async with playing(api, Reply([begun(api)], stalls=True)) as (model, server):
        responses = model.generate_content_async(request(), True)
        assert (await anext(responses)).partial
        await responses.aclose()
        await server.left.wait()


async def test_a_slow_reader_bounds_what_is_sent(api: Api) -> None:
    """
    While nobody reads, the server can send no more than the buffers of the machine hold.
    """
    async with playing(api, Reply([begun(api)], endless=b": " + b"x" * 65_000 + b"\n\n")) as (model, server):
        responses = model.generate_content_async(request(), True)
        await anext(responses)
        sent = -1
        while sent != server.bytes_sent:
            sent = server.bytes_sent
            await trio.sleep(0.2)
        assert sent < 32 * 2**20
        await responses.aclose()
        await server.left.wait()
