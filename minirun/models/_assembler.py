"""
Puts one answer of a provider together, streamed or not. No I/O here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from .._json import FrozenDict, brief, finite, freeze
from .._values import MAKE, changed
from ..errors import ModelError
from ..flows._turn import SET_MODEL_RESPONSE
from ..types import Content, FunctionCall, Part, UsageMetadata
from ._base import LlmResponse
from ._reading import call_of, clean, cleaned, object_in
from ._seals import sealed
from ._wire import Wire, error_of

__all__ = ["Assembler"]


class _Block:
    """One block of an answer as it grows: a text, a thought or a call."""

    __slots__ = ("call_id", "carry", "kind", "name", "part", "pieces", "place", "seal", "whole_args")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.pieces: list[str] = []
        self.carry = ""  # the first half of a surrogate pair whose second half has not come yet
        self.seal: tuple[str, str] | None = None
        self.name = ""
        self.call_id: str | None = None
        self.place: int | None = None
        self.whole_args: Mapping[str, Any] | None = None
        self.part: Part | None = None


class Assembler(ABC):
    """
    Puts one streamed answer together, block by block.

    Blocks keep the order in which they began. Each becomes one part, with the seal that came with it; two blocks are
    never merged. A call is shown when it is complete, in the whole answer. Only what `set_model_response` is called
    with is shown as it comes, as calls whose `args_text` is the next piece of the arguments.

    Some servers repeat a call. A call with the id, name and arguments of an earlier one is left out; without ids, one
    with the place, name and arguments. Arguments are compared by value: neither the order of keys nor the spelling of
    a number counts. Of two calls with one id and name, one of which has no arguments, the other is kept. Calls with
    one id that differ otherwise are different: some servers give one id to all.
    """

    def __init__(self, wire: Wire, shows_thoughts: bool) -> None:
        self._wire = wire
        self._blocks: dict[object, _Block] = {}
        self._answering: list[Part] = []  # what is to be shown of a call that gives the answer
        self._shows_thoughts = shows_thoughts
        self.finish_reason: str | None = None
        self.error_code: str | None = None
        self.error_message: str | None = None
        self._usage: dict[str, Any] = {}  # what the provider says of it: later events repeat some of it, and add
        self.model_version: str | None = None
        self.response_id: str | None = None
        self.citations: list[Any] = []
        self.grounding: Mapping[str, Any] | None = None

    @property
    def is_done(self) -> bool:
        """Whether the answer has ended by its own sign, so that a stream that ends now is not cut off."""
        return self.finish_reason is not None

    @property
    def is_through(self) -> bool:
        """Whether nothing more can come that matters, so that nobody has to wait for the stream's end."""
        return False

    def feed(self, data: Mapping[str, Any]) -> list[Part]:
        """
        Take the next event of a stream; return what is to be shown of it.

        Raises:
            ModelError: The event says that the provider has failed.
        """
        self._check(data)
        shown = self._take(data)
        if self._answering:
            shown, self._answering = [*shown, *self._answering], []
        return shown

    def feed_whole(self, body: Mapping[str, Any]) -> None:
        """
        Take the body of a response that was not streamed.

        Raises:
            ModelError: It says that the provider has failed, or is no answer.
        """
        self._check(body)
        self._take_whole(body)
        self.end()
        if not self.is_done:
            raise ModelError(
                f"expected an answer of {self._wire.provider}'s form, found {brief(body)}; look at base_url"
            )

    def _check(self, data: Mapping[str, Any]) -> None:
        fault = self._wire.fault(data)
        if fault is not None:
            raise error_of(fault, fault.status or 500, {}, "")

    @abstractmethod
    def _take(self, data: Mapping[str, Any]) -> list[Part]:
        """Take an event that is no failure; return what is to be shown of it."""

    @abstractmethod
    def _take_whole(self, body: Mapping[str, Any]) -> None:
        """Take a whole answer."""

    @abstractmethod
    def _counted(self, usage: Mapping[str, Any]) -> UsageMetadata:
        """Return how many tokens were used, by all that the provider has said of it."""

    def use(self, usage: object) -> None:
        """Take what the provider says of usage; many say it in every event, and it is read once, at the end."""
        self._usage |= {name: value for name, value in object_in(usage).items() if value is not None}

    def text(self, key: object, text: str, *, thought: bool = False) -> list[Part]:
        """Add to a text or a thought; return the fragment to show."""
        block = self._blocks.get(key) or self._block(key, "thought" if thought else "text")
        if text.isascii() and text and not block.carry:  # as nearly every fragment is
            block.pieces.append(text)
            return self._shown(text, thought)
        if block.carry:
            text, block.carry = block.carry + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, block.carry = text[:-1], text[-1]
        if not text:
            return []
        text = clean(text)
        block.pieces.append(text)
        return self._shown(text, thought)

    def seal(self, key: object, kind: str, payload: str, *, thought: bool = True) -> None:
        """Set the seal of a block, or add to it: some come in pieces."""
        block = self._block(key, "thought" if thought else "text")
        before = block.seal[1] if block.seal else ""
        block.seal = (kind, before + payload)

    def call(
        self,
        key: object,
        name: str,
        call_id: str | None,
        args: Mapping[str, Any] | None = None,
        place: int | None = None,
    ) -> None:
        """
        Begin a call, or say more of one.

        Args:
            key: Names the block.
            name: Of the tool, or the next piece of it.
            call_id: The provider's id; None: it has sent none.
            args: The arguments, unless pieces of JSON text come.
            place: The position that the provider gives the call; None: it gives none.
        """
        block = self._block(key, "call")
        block.place = place if block.place is None else block.place
        block.name += name
        block.call_id = block.call_id or call_id
        block.whole_args = args if args else block.whole_args

    def arguments(self, key: object, piece: str) -> None:
        """Add to the JSON text of a call's arguments. Those of a call that gives the answer are shown as they come."""
        block = self._block(key, "call")
        block.pieces.append(piece)
        if block.name == SET_MODEL_RESPONSE:
            piece, block.carry = block.carry + piece, ""
            if piece and "\ud800" <= piece[-1] <= "\udbff":
                piece, block.carry = piece[:-1], piece[-1]
            if piece:
                call = FunctionCall(name=SET_MODEL_RESPONSE, args_text=clean(piece))
                self._answering.append(Part(function_call=call))

    def cite(self, *citations: object) -> None:
        """Add citations; those that no store could keep are left out, for the answer counts more than they do."""
        for citation in citations:
            try:
                frozen = freeze(cleaned(citation), "citation", level=10)  # events hold it that deep
            except (ValueError, RecursionError):
                continue
            if isinstance(frozen, FrozenDict):
                self.citations.append(frozen)

    def part(self, key: object, part: Part) -> list[Part]:
        """Add a part that is neither text nor call; return it, to be shown."""
        self._block(key, "part").part = part
        return [part]

    def end(self) -> list[Part]:
        """End the texts; return what is left to show of them: U+FFFD for a pair without its second half."""
        left: list[Part] = []
        for block in self._blocks.values():
            if block.carry and block.kind != "call":
                block.carry = ""
                block.pieces.append("\ufffd")
                left += self._shown("\ufffd", block.kind == "thought")
        return left

    def response(self, request_id: str | None = None) -> LlmResponse:
        """Return the complete answer."""
        parts = self._parts()
        return LlmResponse(
            content=Content(role="model", parts=parts) if parts else None,
            finish_reason=self.finish_reason,
            error_code=self.error_code,
            error_message=self.error_message,
            usage_metadata=self._counted(self._usage) if self._usage else None,
            model_version=clean(self.model_version) if self.model_version else None,
            response_id=clean(self.response_id) if self.response_id else None,
            request_id=request_id,
            citation_metadata={"citations": self.citations} if self.citations else None,
            grounding_metadata=cleaned(self.grounding, finite),
        )

    def has(self, key: object) -> bool:
        """Whether a block has begun."""
        return key in self._blocks

    def _block(self, key: object, kind: str) -> _Block:
        block = self._blocks.get(key)
        if block is None:
            block = self._blocks[key] = _Block(kind)
        return block

    def _shown(self, text: str, thought: bool) -> list[Part]:
        if not thought:
            return [MAKE[Part](text=text)]
        return [MAKE[Part](text=text, thought=True)] if self._shows_thoughts else []

    def _parts(self) -> list[Part]:
        parts: list[Part] = []
        seen: dict[object, dict[object, int]] = {}  # by id and name, where the calls are, by their arguments
        for block in self._blocks.values():
            part = self._part(block)
            if part is None:
                continue
            call = part.function_call
            name = (call.id or block.place) if call is not None else None
            if call is not None and name is not None:
                earlier, args = seen.setdefault((name, call.name), {}), (_by_value(call.args), call.args_text)
                if args in earlier or (call.id and earlier and args == _NO_ARGS):
                    continue
                if call.id and _NO_ARGS in earlier:
                    earlier[args] = place = earlier.pop(_NO_ARGS)
                    parts[place] = part
                    continue
                earlier[args] = len(parts)
            parts.append(part)
        return parts

    def _part(self, block: _Block) -> Part | None:
        text = "".join(block.pieces)
        signature = sealed(self._wire.provider, block.seal[0], clean(block.seal[1])) if block.seal else None
        if block.part is not None:
            return changed(block.part, thought_signature=signature)
        if block.kind == "call":
            args = text if text or block.whole_args is None else block.whole_args
            return Part(function_call=call_of(block.name, args, block.call_id), thought_signature=signature)
        if not text and signature is None:
            return None
        if block.kind == "text":
            return Part(text=text, thought_signature=signature)
        if not self._shows_thoughts and signature is None:
            return None  # one with a seal has to be sent back
        return Part(text=text, thought=True, thought_signature=signature)


def _by_value(value: object) -> object:
    """Return what is equal for equal JSON values; 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, Mapping):
        return frozenset((name, _by_value(item)) for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(_by_value(item) for item in value)
    return (isinstance(value, bool), value)


_NO_ARGS = (_by_value({}), None)
