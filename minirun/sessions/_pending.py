"""
Questions that are open, and the answers that fit them.

An invocation that needs somebody outside asks by a function call that stays open (see `_calls`). What kind of question
it is follows from the call's name: five names are minirun's own, the first three as ADK has them; every other call that
waits is one of a long-running tool, whose result somebody will bring. An answer is a message with one function response
of the call's id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs

from .._json import JSON, brief, shown
from .._record import Record
from ..credentials._values import AuthConfig
from ..errors import ConfigurationError, InvalidMessageError, InvalidValueError
from ..events import Event
from ..flows._questions import (
    GET_USER_CHOICE,
    REQUEST_CONFIRMATION,
    REQUEST_CREDENTIAL,
    REQUEST_INPUT,
    REQUEST_MESSAGE,
    SLEEP_UNTIL,
)
from ..types import Content, FunctionResponse, Part
from ._calls import OpenCall
from ._key import SessionKey

if TYPE_CHECKING:
    from ._live import LiveSession

__all__ = ["PendingCall", "PendingKind", "check_answer", "pending_call", "pending_calls"]

PendingKind: TypeAlias = Literal["confirmation", "credential", "input", "long_running", "message", "timer"]
_KINDS: Final[Mapping[str, PendingKind]] = {
    REQUEST_CONFIRMATION: "confirmation",
    REQUEST_CREDENTIAL: "credential",
    REQUEST_INPUT: "input",
    REQUEST_MESSAGE: "message",
    SLEEP_UNTIL: "timer",
}

# Where the event that lets a long-running call wait keeps what its tool has said so far, by the id of the call.
INTERIM: Final = "interim"


@attrs.frozen(kw_only=True, eq=False, repr=False)
class PendingCall(Record):
    """
    An open question: a call that waits for an answer from outside.

    `kind` says what it is:

    * `"confirmation"`: whether the `tool` may be called with these `args`. The answer is True or False.
    * `"credential"`: a secret of the user, as `auth_config` says. It never stands in a message: the program saves it
      and answers True, which `Runner.provide_credential` makes one call; or False, if there will be none.
    * `"input"`: something that only a person knows. The answer is any JSON value that fits `schema`, if there is one.
    * `"long_running"`: the `tool` works elsewhere on `args`. The answer is its result. That of `get_user_choice` has to
      be one of its options, as `schema` says.
    * `"message"`: an agent in a conversation, as `LlmAgent(mode="task")` in a workflow, has said `hint`, and waits for
      what the user says next: a text. A plain message of the user is the answer, too, if nothing else waits there.
    * `"timer"`: it goes on at `due`, in seconds since the epoch, and nobody answers it.

    `hint` is what to tell the person who is asked, `payload` what else came with the question. `tool` is empty for a
    credential, an input and a timer, also where a tool has asked: the question stands for itself in the log, beside the
    call that waits for its answer; `author` is the agent. `call_id` names the question in the session: answer with
    `reply`, as the message of a run.
    """

    app_name: str
    user_id: str
    session_id: str
    invocation_id: str
    call_id: str
    kind: PendingKind
    tool: str
    args: Mapping[str, Any]
    hint: JSON = None
    schema: Mapping[str, Any] | None = None
    payload: JSON = None
    auth_config: AuthConfig | None = None
    author: str
    branch: str | None = None
    due: float | None = None

    @property
    def name(self) -> str:
        """The name of the call, which the response has, too."""
        return next((name for name, kind in _KINDS.items() if kind == self.kind), self.tool)

    def reply(
        self,
        value: object,
        *,
        payload: object = None,
        args: Mapping[str, Any] | None = None,
        message: str | None = None,
        by: str | None = None,
        remember: Literal["session", "user"] | None = None,
        any_args: bool = False,
    ) -> Content:
        """
        The message that answers the question with *value*.

        A confirmation takes True or False, and a *payload* for the tool that asked; a credential True, once it is
        saved, or False; an input any JSON value; a long-running call a dict, or another JSON value, which becomes
        `{"result": value}`.

        Args:
            value: The answer.
            payload: What goes to the tool with a confirmation.
            args: With True for a confirmation: make the call with these arguments, all of them, instead. They are
                checked as those of the model are; what does not fit is told to the model as an error.
            message: With False for a confirmation: what the model is told.
            by: The author of the edited *args*, for the log; by default the user of the session.
            remember: With True for a confirmation: later calls of this tool by this agent, with the arguments that are
                allowed, are made without asking; `"session"`: in this session, `"user"`: in all of the user's.
                `Runner.remembered` lists that and takes it back.
            any_args: With *remember*: whatever arguments they have.

        Raises:
            InvalidMessageError: *value* does not answer this kind of question, or the rest does not go with it.
            InvalidValueError: It is no JSON.
        """
        if self.kind == "credential" and not isinstance(value, bool):
            raise InvalidMessageError(self._no_secrets())
        given = {"payload": payload, "args": args, "message": message, "by": by, "remember": remember}
        given["any_args"] = any_args or None
        odd = [name for name, found in given.items() if found is not None]
        if odd and self.kind != "confirmation":
            msg = f"expected {odd[0]} with the answer to a confirmation only, found one for {self._what()}"
            raise InvalidMessageError(msg)
        if by is not None and args is None:
            raise InvalidMessageError("expected `by` beside edited args only, found it alone; leave it out")
        if any_args and remember is None:
            raise InvalidMessageError("expected `any_args` beside `remember` only, found it alone; leave it out")
        if self.kind == "confirmation":
            answer: Any = {"confirmed": value, "payload": payload}
            if args is not None:
                answer |= {"args": args, "edited_by": self.user_id if by is None else by}
            if message is not None:
                answer["message"] = message
            if remember is not None:
                answer["remember"] = remember
            if any_args:
                answer["any_args"] = any_args
        elif self.kind == "long_running" and isinstance(value, dict):
            answer = value
        else:
            answer = {"result": value}
        response = FunctionResponse(id=self.call_id, name=self.name, response=answer)
        check_answer(self, response)
        return Content(role="user", parts=[Part(function_response=response)])

    def _no_secrets(self) -> str:
        return (
            f"expected {self._what()} to be answered with True or False, found something else (not shown: it may be "
            "secret); save the credential, then answer True: `await runner.provide_credential(pending, credential)`"
        )

    def _what(self) -> str:
        of = f" of {brief(self.tool)}" if self.tool else ""
        return f"the {self.kind.replace('_', '-')} call {self.call_id!r}{of}"


def check_answer(pending: PendingCall, response: FunctionResponse) -> None:
    """
    Raise unless *response* answers the question.

    Raises:
        InvalidMessageError: It is for another call, or not of the shape or the schema that was asked for.
    """
    if (response.id, response.name) != (pending.call_id, pending.name):
        found = f"{brief(response.id)} and {brief(response.name)}"
        msg = f"expected a response with the id {pending.call_id!r} and the name {brief(pending.name)}, found {found}"
        raise InvalidMessageError(msg)
    what, answer = pending._what(), response.response
    if pending.kind == "timer":
        msg = f"expected nobody to answer {what}: it goes on at {pending.due}; let Runner.resume_due do that"
        raise InvalidMessageError(msg)
    if pending.kind == "confirmation" and not isinstance(answer.get("confirmed"), bool):
        found = shown(answer.get("confirmed"))
        msg = f"expected {what} to be answered with True or False as `confirmed`, found {found}"
        raise InvalidMessageError(msg)
    if pending.kind == "confirmation":
        _check_confirmation(pending, answer)
    if pending.kind == "credential" and not (answer.keys() == {"result"} and isinstance(answer["result"], bool)):
        raise InvalidMessageError(pending._no_secrets())
    if pending.kind == "message" and not (isinstance(answer.get("result"), str) and answer["result"].strip()):
        msg = f"expected {what} to be answered with a text, found {shown(answer.get('result'))}"
        raise InvalidMessageError(msg)
    if pending.kind == "input" or pending.schema is not None:
        _check_result(pending, answer)


def _check_confirmation(pending: PendingCall, answer: Mapping[str, Any]) -> None:
    for name, kind, expected, goes_with in (
        ("args", dict, "an object with the arguments", True),
        ("edited_by", str, "a text", True),
        ("message", str, "a text", False),
        ("remember", str, "'session' or 'user'", True),
        ("any_args", bool, "True or False", True),
    ):
        found = answer.get(name)
        if found is not None and (not isinstance(found, kind) or answer["confirmed"] is not goes_with):
            expected = f"expected `{name}` in the answer to {pending._what()} to be {expected}, beside {goes_with}"
            raise InvalidMessageError(f"{expected}, found {shown(found)} beside {answer['confirmed']}")
    if answer.get("remember") not in (None, "session", "user"):
        msg = f"expected `remember` in the answer to {pending._what()} to be 'session' or 'user', found"
        raise InvalidMessageError(f"{msg} {shown(answer['remember'])}")


def _check_result(pending: PendingCall, answer: Mapping[str, Any]) -> None:
    if "result" not in answer:
        msg = f"expected {pending._what()} to be answered with a `result`, found {shown(answer)}"
        raise InvalidMessageError(msg)
    if pending.schema is None:
        return
    from ..flows._json_schema import compile_schema  # few questions have a schema

    try:
        problems = compile_schema(pending.schema, "response_schema").problems(answer["result"])
    except ConfigurationError as error:  # the agent that asks checks it; this log was written by somebody else
        problems = [str(error)]
    if problems:
        msg = f"expected an answer to {pending._what()} that fits its schema: {'; '.join(problems)}; answer again"
        raise InvalidMessageError(msg)


def pending_calls(live: LiveSession, calls: Iterable[OpenCall]) -> list[PendingCall]:
    """The questions among these open calls of a session, oldest first. The events that ask them must be loaded."""
    found = []
    for call in sorted(calls, key=lambda call: (call.pending_seq, call.seq)):
        if call.pending == "waits" and call.name != SLEEP_UNTIL:
            asked, mark = (live.events[live.index_of(seq)] for seq in (call.seq, call.pending_seq))
            found.append(pending_call(live.key, call, asked, mark))
    return found


def pending_call(key: SessionKey, call: OpenCall, event: Event, mark: Event) -> PendingCall:
    """
    The question that a call asks: *event* holds the call, *mark* says that it waits.

    What a log says in another form than ours is left out, not refused: the question is open all the same.
    """
    args = next((made.args for made in event.get_function_calls() if made.id == call.call_id), {})
    kind = _KINDS.get(call.name, "long_running")
    common: dict[str, Any] = {
        "app_name": key.app_name,
        "user_id": key.user_id,
        "session_id": key.session_id,
        "invocation_id": call.invocation_id,
        "call_id": call.call_id,
        "kind": kind,
        "author": call.author,
        "branch": call.branch,
    }
    if kind == "long_running":
        interim = _object(_object(mark.custom_metadata).get(INTERIM)).get(call.call_id)
        return PendingCall(**common, tool=call.name, args=args, hint=interim, schema=_choice(call.name, args))
    asked = _object(args.get("originalFunctionCall"))
    name = asked.get("name")
    common |= {"tool": name if isinstance(name, str) else "", "args": _object(asked.get("args"))}
    if kind == "confirmation":
        confirmation = _object(args.get("toolConfirmation"))
        return PendingCall(**common, hint=confirmation.get("hint"), payload=confirmation.get("payload"))
    if kind == "credential":
        config = _auth_config(args.get("authConfig"))
        return PendingCall(**common, hint=None if config is None else config.hint or None, auth_config=config)
    if kind == "message":
        return PendingCall(**common, hint=args.get("message"))
    if kind == "input":
        schema = args.get("response_schema")
        return PendingCall(
            **common,
            hint=args.get("message"),
            payload=args.get("payload"),
            schema=schema if isinstance(schema, dict) else None,
        )
    return PendingCall(**common, due=_seconds(args.get("until")))


def _auth_config(fields: object) -> AuthConfig | None:
    try:
        return AuthConfig.from_dict(_object(fields))
    except InvalidValueError:
        return None


def _choice(name: str, args: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What the answer to a choice has to be; None for another call, and where there is nothing to choose from."""
    options = args.get("options") if name == GET_USER_CHOICE else None
    if not isinstance(options, list) or not options or not all(isinstance(option, str) for option in options):
        return None
    return {"type": "string", "enum": list(dict.fromkeys(options))}


def _seconds(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    except OverflowError:  # an integer beyond the floats
        return None


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
