"""Tools of OpenAPI documents that send files: forms of several parts, and bodies that are a file."""

from __future__ import annotations

from email import message_from_bytes
from typing import Any

import pytest

from minirun import InMemoryRunner, LlmAgent
from minirun.testing import ScriptedLlm, call
from minirun.tools.openapi import OpenAPIToolset
from minirun.types import Part

from ..asgi import Said, request_of, serving
from ..helpers import PLACE

pytest.importorskip("httpx2", reason="the extra `minirun[models]` is not installed")

FORM: dict[str, Any] = {
    "type": "object",
    "required": ["photo"],
    "properties": {
        "photo": {"type": "string", "format": "binary", "description": "The photo."},
        "more": {"type": "array", "items": {"type": "string", "contentMediaType": "image/png"}},
        "title": {"type": "string"},
        "sizes": {"type": "array", "items": {"type": "integer"}},
        "about": {"type": "object"},
        "raw": {"type": "string"},
    },
}


def posted(media_type: str, **media: Any) -> dict[str, Any]:
    return {"post": {"operationId": media_type, "requestBody": {"required": True, "content": {media_type: media}}}}


DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "paths": {
        "/form": posted(
            "multipart/form-data",
            schema={"$ref": "#/components/schemas/Form"},
            encoding={"photo": {"contentType": "image/jpeg"}, "raw": {"contentType": "text/x\r\nEvil: 1"}, "more": 17},
        ),
        "/bytes": posted("application/octet-stream", schema={"type": "string", "format": "binary"}),
        "/image": posted("image/*"),
        "/plain-form": posted("multipart/form-data"),
    },
    "components": {"schemas": {"Form": FORM}},
}
PHOTO, OTHER = b"\xff\xd8 photo \r\n--x\r\n", b"\x89PNG"


class Api:
    """It keeps what it was sent."""

    def __init__(self) -> None:
        self.said: list[Said] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        said = await request_of(scope, receive, send)
        if said is not None:
            self.said.append(said)
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})


async def sent(name: str, body: Any) -> tuple[Api, Any]:
    """The API after a call, and what the call was answered with."""
    api = Api()
    async with serving(api) as url:
        toolset = OpenAPIToolset(spec_dict=DOCUMENT, base_url=url)

        def script(request: Any) -> Any:
            answered = request.contents[-1].parts[-1].function_response
            return "Done." if answered is not None else call(name, body=body)

        agent = LlmAgent(name="clerk", model=ScriptedLlm(script), tools=[toolset])
        runner = InMemoryRunner(agent=agent, app_name="app", auto_create_session=True)
        await runner.session_service.create_session(app_name="app", **PLACE)
        assert runner.artifact_service is not None
        files = {
            'user:a "photo".jpg': Part.from_bytes(data=PHOTO, mime_type="image/png"),
            "other.png": Part.from_bytes(data=OTHER, mime_type="image/png"),
            "note.txt": Part(text="nöte"),
            "empty.txt": Part(text=""),
        }
        for filename, part in files.items():
            await runner.artifact_service.save_artifact(app_name="app", **PLACE, filename=filename, artifact=part)
        async with runner.run_async(**PLACE, new_message="go") as run:
            events = [event async for event in run]
        await toolset.close()
    return api, [each for event in events for each in event.get_function_responses()][-1].response


def parts_of(said: Said) -> list[tuple[str, str | None, str, bytes]]:
    """The parts of a form as the standard library reads them: name, file name, media type and content."""
    head = f"content-type: {said.headers['content-type']}\r\n\r\n".encode()
    found: Any = message_from_bytes(head + said.body)
    assert found.is_multipart()
    assert not found.defects
    return [
        (
            part.get_param("name", header="content-disposition"),
            part.get_filename(),
            part["content-type"] or "",
            part.get_payload(decode=True),
        )
        for part in found.get_payload()
    ]


async def test_a_form_is_shown_with_names_in_the_place_of_files() -> None:
    """Fields that are files, alone or in lists, take the names of artifacts; the others are as they were."""
    toolset = OpenAPIToolset(spec_dict=DOCUMENT, base_url="https://a.example")
    tools = {tool.name: tool for tool in await toolset.get_tools()}
    declaration: Any = tools["multipart_form_data"].declaration
    fields = declaration.parameters["properties"]["body"]["properties"]
    by_name = "The name of an artifact: its content is sent."
    assert fields["photo"] == {"type": "string", "minLength": 1, "description": f"The photo. {by_name}"}
    assert fields["more"]["items"] == {"type": "string", "minLength": 1, "description": by_name}
    assert fields["title"] == {"type": "string"}
    declaration = tools["application_octet_stream"].declaration
    assert declaration.parameters["properties"]["body"]["description"] == by_name
    assert toolset.left_out == {}


async def test_a_form_is_sent_in_parts() -> None:
    """Files with their names and types, texts as they are, lists as several parts, objects as JSON."""
    body = {
        "photo": 'user:a "photo".jpg',
        "more": ["other.png", "note.txt"],
        "title": "Ünder the\r\nsea",
        "sizes": [1, 2],
        "about": {"a": [1]},
        "raw": "x",
    }
    api, answer = await sent("multipart_form_data", body)
    assert answer == {"result": None}
    [said] = api.said
    assert parts_of(said) == [
        ("photo", "a %22photo%22.jpg", "image/jpeg", PHOTO),
        ("more", "other.png", "image/png", OTHER),
        ("more", "note.txt", "application/octet-stream", "nöte".encode()),
        ("title", None, "", "Ünder the\r\nsea".encode()),
        ("sizes", None, "", b"1"),
        ("sizes", None, "", b"2"),
        ("about", None, "application/json", b'{"a":[1]}'),
        ("raw", None, "", b"x"),
    ]
    assert b"Evil" not in said.body


async def test_a_field_cannot_end_its_part() -> None:
    """Quotes and ends of lines in the names of fields are escaped, and the boundary is in no content."""
    evil = 'a"\r\nContent-Type: x\r\n\r\nb'
    api, _ = await sent("multipart_form_data_2", {evil: "1", "b": "--" + "0" * 32})
    [said] = api.said
    assert [part[3] for part in parts_of(said)] == [b"1", b"--" + b"0" * 32]
    assert b"\r\nContent-Type: x" not in said.body


@pytest.mark.parametrize(
    ("name", "file", "media_type", "content"),
    [
        ("application_octet_stream", "note.txt", "application/octet-stream", "nöte".encode()),
        ("application_octet_stream", "empty.txt", "application/octet-stream", b""),
        ("image", "other.png", "image/png", OTHER),
    ],
)
async def test_a_body_may_be_a_file(name: str, file: str, media_type: str, content: bytes) -> None:
    """The content of the artifact, with the document's media type, or its own where the document leaves that open."""
    api, _ = await sent(name, file)
    [said] = api.said
    assert (said.headers["content-type"], said.body) == (media_type, content)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("multipart_form_data", {"photo": "missing.jpg"}),
        ("multipart_form_data", {"photo": "../../etc/passwd"}),
        ("multipart_form_data", {"photo": 17}),
        ("multipart_form_data", {"title": "no photo"}),
        ("multipart_form_data_2", "no form"),
        ("application_octet_stream", "missing.bin"),
        ("application_octet_stream", {"data": "x"}),
    ],
)
async def test_what_is_no_file_of_the_session_is_told_to_the_model(name: str, body: Any) -> None:
    """Nothing is sent then, and nothing is read but artifacts."""
    api, answer = await sent(name, body)
    assert answer["error"]["type"] in ("ArgumentError", "InvalidValueError", "invalid_arguments"), answer
    assert api.said == []
