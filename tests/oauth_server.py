"""
An authorization server and an API behind it, on 127.0.0.1, that are as strict as the standards allow.

Codes work once; one that comes twice ends all that came of it. Refresh tokens work once, too (RFC 9700): a second use
of one ends its family. The verifier, the address to return to, the client, its secret and the resource are compared.
What is secret is remembered in `secrets`, so that a test can look for it in all that was written.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote_plus, urlencode, urlsplit

import attrs
import trio

from .asgi import Receive, Said, Send, request_of, serving

__all__ = ["CALLBACK", "CLIENT_ID", "CLIENT_SECRET", "OAuthServer", "Said", "serving"]

CALLBACK = "https://app.example/callback"
CLIENT_ID, CLIENT_SECRET = "the-app", "client-secret-€-of the app"


class RefusedError(Exception):
    """An error of OAuth's, with its code."""


@attrs.define
class Client:
    secret: str | None
    method: str
    redirect_uris: tuple[str, ...]


@attrs.define
class Family:
    """All that has come of one sign-in."""

    client_id: str
    scope: str
    resource: str
    is_over: bool = False


@attrs.define
class Code:
    family: Family
    redirect_uri: str
    challenge: str
    is_used: bool = False


class OAuthServer:
    """
    The server. Its settings may be changed at any time.

    Args:
        life_s: How long an access token works, as it says; it goes on working until it is ended.
    """

    def __init__(self, life_s: float = 3600) -> None:
        self.url = ""
        self.life_s = life_s
        self.clients = {CLIENT_ID: Client(CLIENT_SECRET, "client_secret_basic", (CALLBACK,))}
        self.secrets: set[str] = {CLIENT_SECRET}
        self.requests: list[Said] = []
        self.grants: list[str] = []  # what the token endpoint has given tokens for
        self.denies = False
        self.is_down = False
        self.hold: trio.Event | None = None  # answers of the token endpoint wait for it
        self.held = trio.Event()  # one does
        self.metadata: dict[str, Any] = {}  # changes to what it says of itself
        self.resource_metadata: dict[str, Any] = {}
        self.sends_refresh_tokens = True
        self.redirect: tuple[int, str] | None = None  # what all requests are answered with, and where they are sent
        self.token_error: str | None = None  # what the token endpoint refuses with
        self.token_changes: dict[str, Any] = {}  # to what the token endpoint answers
        self._codes: dict[str, Code] = {}
        self._refresh: dict[str, Family] = {}
        self._used_refresh: dict[str, Family] = {}
        self._access: dict[str, Family] = {}
        self._ended: set[str] = set()
        self._count = itertools.count(1)

    # --- what tests do

    @property
    def issuer(self) -> str:
        return self.url

    @property
    def api(self) -> str:
        return f"{self.url}/api"

    def end_tokens(self) -> None:
        """End the access tokens that there are, as time does; refresh tokens go on working."""
        self._ended |= self._access.keys()

    def revoke(self) -> None:
        """Take access away from all that have signed in."""
        for family in self._access.values():
            family.is_over = True

    async def browse(self, address: str) -> str:
        """Sign in as a person does with a browser; return the address that it is sent back to."""
        await trio.lowlevel.checkpoint()
        parts = urlsplit(address)
        assert f"{parts.scheme}://{parts.netloc}{parts.path}" == f"{self.url}/authorize"
        location = self._authorize(Said("GET", parts.path, parts.query, {}, b""))
        said = dict(parse_qsl(urlsplit(location).query))
        self.secrets |= {said[name] for name in ("code",) if name in said}
        return location

    # --- what clients see

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        said = await request_of(scope, receive, send)
        if said is None:
            return
        self.requests.append(said)
        status, more_headers, answer = await self._answer(said)
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        told = {"content-type": "application/json", "content-length": str(len(data)), **more_headers}
        raw = [(name.encode(), value.encode()) for name, value in told.items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": data})

    async def _answer(self, said: Said) -> tuple[int, dict[str, str], Any]:
        if self.is_down:
            return 503, {}, {"error": "temporarily_unavailable"}
        if self.redirect is not None and not said.path.startswith("/api"):
            status, location = self.redirect
            return status, {"location": location}, {}
        path = said.path
        if path in ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"):
            return 200, {}, self._metadata()
        if path == "/.well-known/oauth-protected-resource/api":
            found = {"resource": self.api, "authorization_servers": [self.issuer], **self.resource_metadata}
            return (200, {}, found) if found["resource"] else (404, {}, {})
        try:
            if path == "/authorize":
                return 302, {"location": self._authorize(said)}, {}
            if path == "/token":
                if self.token_error is not None:
                    raise RefusedError(self.token_error)
                answer = self._token(said)
                if self.hold is not None:
                    self.held.set()
                    await self.hold.wait()
                return 200, {"cache-control": "no-store"}, {**answer, **self.token_changes}
            if path == "/register":
                return 201, {}, self._register(json.loads(said.body))
            if path.startswith("/api"):
                return self._ask(said)
        except RefusedError as error:
            # It repeats what it was sent, as careless servers do.
            repeated = f"{said.body.decode('latin-1')} {said.headers.get('authorization')}"
            return 400, {}, {"error": str(error), "error_description": repeated}
        return 404, {}, {}

    def _metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "none"],
            **self.metadata,
        }

    def _authorize(self, said: Said) -> str:
        fields = {name: values[0] for name, values in parse_qs(said.query, strict_parsing=True).items()}
        client = self.clients[fields["client_id"]]
        assert fields["redirect_uri"] in client.redirect_uris, "an open redirector would be a hole"
        assert fields["response_type"] == "code"
        assert len(fields["state"]) >= 32, "a state that can be guessed is none"
        assert fields["code_challenge_method"] == "S256"
        assert len(fields["code_challenge"]) == 43
        back = {"state": fields["state"], "iss": self.issuer}
        if self.denies:
            return f"{fields['redirect_uri']}?{urlencode({**back, 'error': 'access_denied'})}"
        family = Family(fields["client_id"], fields.get("scope", ""), fields.get("resource", ""))
        code = self._secret("code")
        self._codes[code] = Code(family, fields["redirect_uri"], fields["code_challenge"])
        return f"{fields['redirect_uri']}?{urlencode({**back, 'code': code})}"

    def _client(self, said: Said) -> str:
        """Who asks, if that is proved in the way that the client is registered for."""
        form, basic = said.form, said.headers.get("authorization", "")
        if basic:
            pair = base64.b64decode(basic.removeprefix("Basic ")).decode().partition(":")
            client_id, secret = unquote_plus(pair[0]), unquote_plus(pair[2])
            method = "client_secret_basic"
            if "client_id" in form or "client_secret" in form:
                raise RefusedError("invalid_request")
        else:
            client_id, secret = form["client_id"], form.get("client_secret", "")
            method = "client_secret_post" if secret else "none"
        client = self.clients.get(client_id)
        if client is None or (client.secret or "") != secret or client.method != method:
            raise RefusedError("invalid_client")
        return client_id

    def _token(self, said: Said) -> dict[str, Any]:
        if said.headers.get("content-type") != "application/x-www-form-urlencoded" or said.query:
            raise RefusedError("invalid_request")
        form = said.form
        self.secrets |= {form[name] for name in ("code_verifier",) if name in form}
        client_id, grant = self._client(said), form["grant_type"]
        if grant == "authorization_code":
            family = self._from_code(form, client_id)
        elif grant == "refresh_token":
            family = self._from_refresh_token(form, client_id)
        elif grant == "client_credentials":
            family = Family(client_id, form.get("scope", ""), form.get("resource", ""))
        else:
            raise RefusedError("unsupported_grant_type")
        if form.get("resource", "") != family.resource:
            raise RefusedError("invalid_target")
        self.grants.append(grant)
        token = self._secret("access")
        self._access[token] = family
        answer: dict[str, Any] = {"access_token": token, "token_type": "Bearer", "expires_in": self.life_s}
        if self.sends_refresh_tokens and grant != "client_credentials":
            answer["refresh_token"] = self._secret("refresh")
            self._refresh[answer["refresh_token"]] = family
        return answer

    def _from_code(self, form: dict[str, str], client_id: str) -> Family:
        code = self._codes.get(form["code"])
        if code is None or code.family.client_id != client_id or code.redirect_uri != form["redirect_uri"]:
            raise RefusedError("invalid_grant")
        if code.is_used:
            code.family.is_over = True
            raise RefusedError("invalid_grant")
        code.is_used = True
        verifier = form["code_verifier"]
        digest = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        if not 43 <= len(verifier) <= 128 or digest != code.challenge:
            raise RefusedError("invalid_grant")
        return code.family

    def _from_refresh_token(self, form: dict[str, str], client_id: str) -> Family:
        token = form["refresh_token"]
        if token in self._used_refresh:
            self._used_refresh[token].is_over = True
        family = self._refresh.pop(token, None)
        if family is None or family.client_id != client_id or family.is_over:
            raise RefusedError("invalid_grant")
        self._used_refresh[token] = family
        return family

    def _register(self, said: dict[str, Any]) -> dict[str, Any]:
        assert said["response_types"] == ["code"]
        assert "refresh_token" in said["grant_types"]
        client_id, method = f"registered-{next(self._count)}", said["token_endpoint_auth_method"]
        secret = None if method == "none" else self._secret("client")
        self.clients[client_id] = Client(secret, method, tuple(said["redirect_uris"]))
        return {"client_id": client_id, **({"client_secret": secret} if secret else {}), **said}

    def _ask(self, said: Said) -> tuple[int, dict[str, str], Any]:
        token = said.headers.get("authorization", "").removeprefix("Bearer ")
        family = self._access.get(token)
        if family is None or family.is_over or token in self._ended:
            challenge = f'Bearer resource_metadata="{self.url}/.well-known/oauth-protected-resource/api"'
            return 401, {"www-authenticate": challenge}, {"error": "invalid_token", "you_sent": token}
        return 200, {}, {"path": said.path, "scope": family.scope, "you_sent": said.headers["authorization"]}

    def _secret(self, what: str) -> str:
        number = next(self._count)
        secret = f"{what}-{number}-{hashlib.sha256(f'{self.url} {what} {number}'.encode()).hexdigest()}"
        self.secrets.add(secret)
        return secret
