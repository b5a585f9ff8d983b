"""
The operations of a document: what may be asked, with which arguments, and by whom.

An operation that cannot be asked as it is described is left out, with the reason: a document has hundreds, and one that
wants a file to be uploaded is no reason to do without the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, cast
from urllib.parse import unquote

from ..._json import brief
from ..._urls import Url, joined, url_of
from ...errors import ConfigurationError
from ._document import Document, UnreadableError, cleaned, in_one_line
from ._files import NAMED, with_names
from ._schemas import Schemas, safe_parameters
from ._security import Security, security_of

__all__ = [
    "TOOL_NAME_CHARS_MAX",
    "Operation",
    "Place",
    "ToolArgument",
    "base_of",
    "operations_of",
    "parameters_of",
]

METHODS = ("get", "put", "post", "delete", "options", "head", "patch")
# As ADK cuts them; what OpenAI, Anthropic and Google take is 64, and a prefix may come before it.
TOOL_NAME_CHARS_MAX = 60
DESCRIPTION_CHARS_MAX = 1_000
PATH_CHARS_MAX = 1_000
PARAMETERS_MAX = 100
# What the strictest providers take as the name of an argument.
_ARGUMENT = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_ODD = re.compile(r"[^A-Za-z0-9_.-]+")
# Of parameters in headers: what the transport says itself, or the program (RFC 9110, and OpenAPI for the first three).
_OWN_HEADERS = frozenset(
    {
        *("accept", "content-type", "authorization", "cookie", "host", "content-length", "transfer-encoding"),
        *("connection", "proxy-authorization", "te", "trailer", "upgrade", "accept-encoding", "expect"),
    }
)
# The styles that APIs use. An operation with another one, or with a parameter in a cookie, is left out.
_STYLES = {"path": ("simple",), "query": ("form", "deepObject"), "header": ("simple",)}

Place: TypeAlias = Literal["path", "query", "header"]


class ToolArgument(NamedTuple):
    """A parameter: where it goes, and how it is written there."""

    name: str  # as the model says it
    original: str  # as the server does
    place: Place
    style: str
    explode: bool
    is_json: bool  # whether it is written as JSON, whatever its style
    is_required: bool
    schema: Any  # of the document
    description: str


class Operation(NamedTuple):
    """One thing that may be asked."""

    name: str  # of the tool
    method: str  # in upper case
    path: str  # with its variables in braces
    description: str
    arguments: Sequence[ToolArgument]
    body_name: str  # of the argument with the body; empty if there is none
    body_type: str  # its media type
    body_schema: Any
    body_is_required: bool
    body_description: str
    body_is_file: bool  # the argument is the name of an artifact
    body_files: frozenset[str]  # of a form: the fields that are
    body_types: Mapping[str, str]  # of a form: what the document says of its fields
    security: Security
    tags: Sequence[str]

    @property
    def title(self) -> str:
        """It, in a message."""
        return f"{self.method} {in_one_line(self.path, 200)}"


# --- where ------------------------------------------------------------------------------------------------------------


def base_of(document: Document, base_url: object, has_secrets: bool) -> Url:
    """
    Return where requests go.

    Raises:
        ConfigurationError: That is no address; or only the document says where, and there are secrets to be sent.
    """
    if base_url is not None:
        return _checked_base(base_url, "base_url")
    if has_secrets:
        msg = "expected base_url beside auth or headers: a document does not decide where secrets go; found none"
        raise ConfigurationError(f"{msg}; write base_url={brief(_first_server(document))} if that is right")
    return _checked_base(_first_server(document), "the first of the document's servers")


def _checked_base(value: object, what: str) -> Url:
    url = url_of(value)
    if url is None or url.query or _has_dots(url.path):
        msg = f"expected {what} to be an address such as 'https://api.example/v1', found {brief(value)}"
        raise ConfigurationError(f"{msg}; write base_url=")
    return url


def _first_server(document: Document) -> object:
    return next(iter(_servers_in(document.root)), None)


def _servers_in(part: Mapping[str, Any]) -> list[str]:
    """The addresses of `servers`, with the defaults of their variables."""
    servers = part.get("servers")
    found = []
    for server in servers if isinstance(servers, list) else []:
        url = server.get("url") if isinstance(server, dict) else None
        if not isinstance(url, str):
            continue
        variables = server.get("variables")
        for name, variable in variables.items() if isinstance(variables, dict) else ():
            default = variable.get("default") if isinstance(variable, dict) else None
            if isinstance(default, str) and len(url) < PATH_CHARS_MAX:
                url = url.replace(f"{{{name}}}", default[:PATH_CHARS_MAX])
        found.append(url)
    return found


def _has_dots(path: str) -> bool:
    return any(unquote(part) in (".", "..") for part in path.split("/"))


# --- what -------------------------------------------------------------------------------------------------------------


def operations_of(
    document: Document, base: Url, *, is_base_given: bool, chars_max: int
) -> Iterator[Operation | tuple[str, str]]:
    """
    Return the operations in their order; of one that is left out, what it is, and why.

    Args:
        document: Their document.
        base: Where requests go.
        is_base_given: Whether the program says so: then nobody asks the document about servers.
        chars_max: How long the names of tools may be.
    """
    taken: set[str] = set()
    paths = document.root.get("paths")
    for path, item in paths.items() if isinstance(paths, dict) else ():
        shown = in_one_line(path, 120)
        try:
            item = document.resolved(item)
        except UnreadableError as error:
            yield shown, str(error)
            continue
        for method in METHODS:
            if method not in item:
                continue
            try:
                operation = _read(document, path, method, item, taken, chars_max)
                if not is_base_given:
                    _check_servers(document, item, base)
                    _check_servers(document, document.resolved(item[method]), base)
            except UnreadableError as error:
                yield f"{method.upper()} {shown}", str(error)
            else:
                taken.add(operation.name)
                yield operation


def _check_servers(document: Document, part: Mapping[str, Any], base: Url) -> None:
    servers = _servers_in(part)
    for server in servers[:1]:
        url = joined(base, server)
        if url is None or (url.origin, url.path.rstrip("/")) != (base.origin, base.path.rstrip("/")):
            msg = f"it has a server of its own ({brief(server)}); make a toolset with that as its base_url"
            raise UnreadableError(msg)


def _read(
    document: Document, path: str, method: str, item: Mapping[str, Any], taken: set[str], chars_max: int
) -> Operation:
    operation = document.resolved(item[method])
    if not path.startswith("/") or len(path) > PATH_CHARS_MAX or _has_dots(path) or not path.isprintable():
        raise UnreadableError("its path is none that can be asked")
    arguments = _arguments(document, path, [*_list(item, "parameters"), *_list(operation, "parameters")])
    body_name, body = "", {}
    media_type, body_schema = "", None
    types: dict[str, str] = {}
    files: frozenset[str] = frozenset()
    if method not in ("get", "head", "options") and operation.get("requestBody") is not None:
        body = document.resolved(operation["requestBody"])
        media_type, media = _body_of(body)
        body_schema, types = media.get("schema"), _types_of(media)
        if _is_form_of_parts(media_type):
            body_schema, files = with_names(document, body_schema)
        elif _is_file(media_type):
            body_schema = NAMED
        names = {argument.name for argument in arguments}
        body_name = _unique("body", names, other="request_body")
    said = operation.get("operationId")
    name = _tool_name(said if isinstance(said, str) else "", f"{path}_{method}", taken, chars_max)
    about = operation.get("description") or operation.get("summary") or item.get("description") or item.get("summary")
    return Operation(
        name=name,
        method=method.upper(),
        path=path,
        description=cleaned(about, DESCRIPTION_CHARS_MAX) or f"{method.upper()} {in_one_line(path, 200)}",
        arguments=tuple(arguments),
        body_name=body_name,
        body_type=media_type,
        body_schema=body_schema,
        body_is_required=body.get("required") is True,
        body_description=cleaned(body.get("description"), DESCRIPTION_CHARS_MAX),
        body_is_file=_is_file(media_type),
        body_files=files,
        body_types=types,
        security=security_of(document, operation),
        tags=tuple(in_one_line(tag, 100) for tag in _list(operation, "tags") if isinstance(tag, str)),
    )


def _list(part: Mapping[str, Any], name: str) -> list[Any]:
    found = part.get(name)
    return found if isinstance(found, list) else []


def _body_of(body: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The media type that is sent, and what is said of it: JSON before forms before text before files."""
    content = body.get("content")
    listed = content.items() if isinstance(content, dict) else ()
    types = {name: each for name, each in listed if isinstance(each, dict)}
    for fits in (_is_json, _is_form, _is_form_of_parts, _is_text, _is_file):
        for name, each in types.items():
            plain = name.partition(";")[0].strip().lower()
            if fits(plain):
                return "application/json" if plain in ("*/*", "application/*") else plain, each
    found = ", ".join(in_one_line(name, 40) for name in types) or "nothing"
    raise UnreadableError(f"its body is {brief(found)}; JSON, forms, texts and files are what is sent")


def _is_json(name: str) -> bool:
    return re.fullmatch(r"application/([a-z0-9.+-]+\+)?json|\*/\*|application/\*", name) is not None


def _is_form(name: str) -> bool:
    return name == "application/x-www-form-urlencoded"


def _is_text(name: str) -> bool:
    return re.fullmatch(r"text/[a-z0-9.+-]+|application/([a-z0-9.+-]+\+)?xml", name) is not None


def _is_form_of_parts(name: str) -> bool:
    return name == "multipart/form-data"


def _is_file(name: str) -> bool:
    known = r"application/(octet-stream|pdf|zip|gzip)|(image|audio|video)/([a-z0-9.+-]+|\*)"
    return re.fullmatch(known, name) is not None


def _types_of(media: Mapping[str, Any]) -> dict[str, str]:
    """The media types of the parts of a form, by field."""
    said = media.get("encoding")
    fields = said.items() if isinstance(said, dict) else ()
    types = {name: each.get("contentType") for name, each in fields if isinstance(each, dict)}
    return {name: found for name, found in types.items() if isinstance(found, str) and len(found) <= 100}


# --- names ------------------------------------------------------------------------------------------------------------


def _tool_name(operation_id: str, fallback: str, taken: set[str], chars_max: int) -> str:
    """The name in ADK's form: `getUserById` is `get_user_by_id`. The first of several keeps it: `_2`, `_3`, …"""
    base = _snake_case(operation_id[:500]) or _snake_case(fallback[:500]) or "operation"
    base = (base if not base[0].isdigit() else f"_{base}")[:chars_max].rstrip("_") or "operation"[:chars_max]
    return _unique(base, taken, chars_max=chars_max)


def _snake_case(text: str) -> str:
    text = re.sub(r"[^A-Za-z0-9]+", "_", text)
    text = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", text)
    text = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", text)
    return re.sub(r"__+", "_", text).strip("_").lower()


def _unique(name: str, taken: set[str], *, other: str = "", chars_max: int = TOOL_NAME_CHARS_MAX) -> str:
    """*name*, or, where it is taken, *other*, or it with a number."""
    for each in (name, other):
        if each and each not in taken:
            return each
    count, base = 2, other or name
    while (found := f"{base[: chars_max - 6]}_{count}") in taken:
        count += 1
    return found


# --- parameters -------------------------------------------------------------------------------------------------------


def _arguments(document: Document, path: str, parameters: list[Any]) -> list[ToolArgument]:
    found: dict[tuple[str, str], dict[str, Any]] = {}  # those of the operation replace those of its path
    if len(parameters) > PARAMETERS_MAX:
        raise UnreadableError(f"it has more than {PARAMETERS_MAX} parameters")
    for parameter in parameters:
        each = document.resolved(parameter)
        name, place = each.get("name"), each.get("in")
        if not isinstance(name, str) or not name or len(name) > 500:
            raise UnreadableError(f"a parameter has no name: {brief(name)}")
        if place not in [*_STYLES]:
            supported = "expected one in the path, the query or a header"
            raise UnreadableError(f"the parameter {brief(name)} is in {brief(place)}; {supported}")
        if place == "header" and name.lower() in _OWN_HEADERS:
            continue
        found[name, str(place)] = each
    for name in re.findall(r"\{([^{}]+)\}", path):
        found.setdefault((name, "path"), {"schema": {"type": "string"}})  # many documents forget them
    arguments: list[ToolArgument] = []
    taken: set[str] = set()
    for (name, place), each in found.items():
        if place == "path" and f"{{{name}}}" not in path:
            continue
        argument = _argument(name, cast(Place, place), each, taken)
        taken.add(argument.name)
        arguments.append(argument)
    return arguments


def _argument(name: str, place: Place, parameter: Mapping[str, Any], taken: set[str]) -> ToolArgument:
    style = parameter.get("style", _STYLES[place][0])
    if style not in _STYLES[place]:
        supported = f"in a {place} the style {' or '.join(_STYLES[place])} is supported"
        raise UnreadableError(f"the parameter {brief(name)} has the style {brief(style)}; {supported}")
    explode = parameter.get("explode")
    schema, content = parameter.get("schema"), parameter.get("content")
    if isinstance(content, dict) and content:
        media = next(iter(content.values()))
        schema = media.get("schema") if isinstance(media, dict) else None
    fits = _ARGUMENT.fullmatch(name) is not None
    plain = name if fits else (_ODD.sub("_", name)[:50].strip("_") or "argument")
    return ToolArgument(
        name=_unique(plain, taken, other=f"{plain[:50]}_in_{place}"),
        original=name,
        place=place,
        style=str(style),
        explode=explode if isinstance(explode, bool) else style in ("form", "deepObject"),
        is_json=isinstance(content, dict) and bool(content),
        is_required=parameter.get("required") is True or place == "path",
        schema=schema,
        description=cleaned(parameter.get("description"), DESCRIPTION_CHARS_MAX),
    )


def parameters_of(document: Document, operation: Operation) -> dict[str, Any]:
    """Return the JSON schema of an operation's arguments."""
    schemas = Schemas(document)
    properties: dict[str, Any] = {}
    required = []
    asked = [(each.name, each.schema, each.description, each.is_required) for each in operation.arguments]
    if operation.body_name:
        schema = operation.body_schema if operation.body_schema is not None else {}
        asked.append((operation.body_name, schema, operation.body_description, operation.body_is_required))
    for name, schema, description, is_required in asked:
        made = schemas.of(schema)
        text = schemas.text(description)
        if text and isinstance(made, dict):
            made = {**made, "description": text}
        properties[name] = made
        if is_required:
            required.append(name)
    return safe_parameters(properties, required, schemas)
