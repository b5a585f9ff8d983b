"""
A JSON value while its text comes in: `PartialValue` goes on where it has stopped, and looks at every character once.

The value so far is a prefix of the value at the end: of a list the items that are complete, and what there is of the
last one; of an object the same of its values, by keys that are complete; of a text the beginning. A number, true, false
and null are there once something follows them. What is not there yet is left out.

What is read is what `_output.parsed` reads of a whole answer: JSON alone, perhaps in one Markdown fence, each key once.
From the first character on that cannot be part of that, or of the form that is asked for, the value stays as it was: it
never raises. `_partial_shapes` has the forms.

Taking a text costs what it is long. A value that is asked for shares everything that is complete; what is copied is the
list of references of each container that is still open.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from .._json import DEPTH_MAX, INT_DIGITS_MAX, JSON, FrozenDict, FrozenList

__all__ = ["ANYTHING", "HIDDEN", "Misfit", "PartialValue", "Shape"]

# A value is stored as that of a state's key, or in a tool's result: below the first level. As in `_output`.
_DEPTH_MAX = DEPTH_MAX - 1

# What has come whole, and has no escapes, is taken at once.
_TEXT = re.compile(r'"([^"\\\x00-\x1f]*)"')
_KEY = re.compile(_TEXT.pattern + r"[ \t\n\r]*:")
_RUN = re.compile(r'[^"\\\x00-\x1f]+')
_ESCAPE = re.compile(r'\\(?:(["\\/bfnrt])|u([0-9a-fA-F]{4}))')
_ESCAPE_BEGINS = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
_PLAIN = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_TOKEN = re.compile(r"[-+.0-9A-Za-z]+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORDS = {"true": True, "false": False, "null": None}
_FENCE = re.compile(r"```[\w+.-]*\s*")


class Misfit(Exception):  # nothing fails: nobody outside of this module and `_partial_shapes` sees it
    """What came is no part of JSON, or of the form."""


class _Absent:
    """No value."""


HIDDEN: Any = _Absent()
"""What a shape shows of a value that is not to be seen, though it is complete."""


class Shape:
    """
    What stands in one place. This one is anything, shown as it comes.

    Its methods raise Misfit for what cannot stand there.
    """

    shows_texts = True
    """Whether a text is shown before it is complete; otherwise only what `whole` makes of it."""

    shows_parts = True
    """The same of a list, and of an object."""

    def open(self, kind: type) -> None:
        """Take note that a list or an object begins here."""

    def below(self, key: str | int) -> Shape:
        """What stands under a key, or in a place of a list."""
        return self

    def whole(self, value: Any, shown: JSON) -> JSON:
        """What is shown of a complete *value*, of which *shown* was made so far."""
        return shown


ANYTHING = Shape()


class _Open:
    """A list or an object that is not complete."""

    __slots__ = ("depth", "key", "kind", "shape", "value", "view")

    def __init__(self, kind: type, shape: Shape) -> None:
        self.kind = kind
        self.shape = shape
        self.view: Any = kind()
        self.value: Any = self.view if shape is ANYTHING else kind()  # as it came
        self.key = ""
        self.depth = 1

    def next_shape(self) -> Shape:
        return self.shape.below(self.key if self.kind is dict else len(self.value))

    def add(self, value: Any, view: Any) -> None:
        depth = getattr(view, "depth", 0)
        if depth >= self.depth:
            self.depth = depth + 1
        if self.kind is dict:
            self.value[self.key] = value
            if view is not HIDDEN:
                self.view[self.key] = view
        else:
            if self.value is not self.view:
                self.value.append(value)
            self.view.append(view)

    def so_far(self, last: JSON = HIDDEN) -> JSON:
        """Itself as a frozen value, with what there is of the *last* value in it."""
        frozen: JSON
        if self.kind is dict:
            frozen = FrozenDict(self.view if last is HIDDEN else {**self.view, self.key: last})
        else:
            frozen = FrozenList(self.view if last is HIDDEN else [*self.view, last])
        frozen.depth = max(self.depth, getattr(last, "depth", 0) + 1)
        return frozen


class PartialValue:
    """A value of this *shape*, whose text is fed piece by piece."""

    def __init__(self, shape: Shape = ANYTHING) -> None:
        self._shape = shape
        self._text = ""  # what was not taken yet: half a token at most
        self._at = 0
        self._open: list[_Open] = []
        self._pieces: list[str] = []  # of the text that is being read
        self._string_shape: Shape | None = None  # of that text; None: it is a key, or there is none
        self._whole: JSON = HIDDEN
        self._step: Callable[[], bool] | None = self._begin  # None: nothing more is taken

    def feed(self, text: str) -> None:
        """Take the next piece of the text."""
        if self._step is None or not text:
            return
        self._text, self._at = self._text[self._at :] + text, 0
        try:
            while (step := self._step) is not None and step():
                pass
        except Misfit:
            self._step = None

    @property
    def value(self) -> JSON:
        """The frozen value so far; None if there is nothing yet."""
        if self._whole is not HIDDEN:
            return self._whole
        found: JSON = HIDDEN
        visible = len(self._open)
        for index, each in enumerate(self._open):
            if not each.shape.shows_parts:
                visible = index
                break
        if visible == len(self._open) and self._string_shape is not None and self._string_shape.shows_texts:
            self._pieces = ["".join(self._pieces)]
            found = self._pieces[0]
        for each in reversed(self._open[:visible]):
            found = each.so_far(found)
        return None if found is HIDDEN else found

    # --- steps: each returns whether there may be more to take, and sets the next one

    def _begin(self) -> bool:
        if not self._skip():
            return False
        if self._text[self._at] == "`":
            fence = _FENCE.match(self._text, self._at)
            if fence is None and not "```".startswith(self._text[self._at :]):
                raise Misfit
            if fence is None or fence.end() == len(self._text):
                return False
            self._at = fence.end()
        self._step = self._take_value
        return True

    def _take_value(self) -> bool:
        if not self._skip():
            return False
        shape = self._open[-1].next_shape() if self._open else self._shape
        char = self._text[self._at]
        if char == '"':
            text = _TEXT.match(self._text, self._at)
            if text is None:
                self._at += 1
                self._pieces, self._string_shape, self._step = [], shape, self._take_string
            else:
                self._at = text.end()
                self._pieces, self._string_shape = [text[1]], shape
                self._end_string(text[1])
        elif char in "[{":
            if len(self._open) == _DEPTH_MAX:
                raise Misfit
            kind = list if char == "[" else dict
            shape.open(kind)
            self._at += 1
            self._open.append(_Open(kind, shape))
            self._step = self._take_first
        else:
            token = _TOKEN.match(self._text, self._at)
            if token is None or token.end() - self._at > 2 * INT_DIGITS_MAX:
                raise Misfit
            if token.end() == len(self._text):
                return False  # there may be more of it
            self._add(shape, _scalar(token[0]))
            self._at = token.end()
        return True

    def _take_first(self) -> bool:
        if not self._skip():
            return False
        is_list = self._open[-1].kind is list
        if self._text[self._at] == ("]" if is_list else "}"):
            self._close()
        else:
            self._step = self._take_value if is_list else self._take_key
        return True

    def _take_key(self) -> bool:
        if not self._skip():
            return False
        if self._text[self._at] != '"':
            raise Misfit
        key = _KEY.match(self._text, self._at)
        if key is None:
            self._at += 1
            self._pieces, self._string_shape, self._step = [], None, self._take_string
        else:
            self._at = key.end()
            self._end_string(key[1])
            self._step = self._take_value
        return True

    def _take_colon(self) -> bool:
        if not self._skip():
            return False
        if self._text[self._at] != ":":
            raise Misfit
        self._at += 1
        self._step = self._take_value
        return True

    def _take_next(self) -> bool:
        if not self._skip():
            return False
        is_list, char = self._open[-1].kind is list, self._text[self._at]
        if char == ",":
            self._at += 1
            self._step = self._take_value if is_list else self._take_key
        elif char == ("]" if is_list else "}"):
            self._close()
        else:
            raise Misfit
        return True

    def _take_string(self) -> bool:
        while self._at < len(self._text):
            run = _RUN.match(self._text, self._at)
            if run is not None:
                self._pieces.append(run[0])
                self._at = run.end()
            elif self._text[self._at] == '"':
                self._at += 1
                self._end_string("".join(self._pieces))
                return True
            elif not self._take_escape():
                return False
        return False

    def _take_escape(self) -> bool:
        escape = _ESCAPE.match(self._text, self._at)
        if escape is None:
            if _ESCAPE_BEGINS.fullmatch(self._text, self._at):
                return False
            raise Misfit
        end = escape.end()
        char = _PLAIN[escape[1]] if escape[1] else chr(int(escape[2], 16))
        if "\ud800" <= char <= "\udfff":
            second = _ESCAPE.match(self._text, end)
            if second is None and (end == len(self._text) or _ESCAPE_BEGINS.fullmatch(self._text, end)):
                return False
            low = int(second[2], 16) if second is not None and second[2] else 0
            if char > "\udbff" or not 0xDC00 <= low <= 0xDFFF or second is None:
                raise Misfit  # half a pair, which no store could keep
            char, end = chr(0x10000 + ((ord(char) - 0xD800) << 10) + low - 0xDC00), second.end()
        self._pieces.append(char)
        self._at = end
        return True

    # --- what steps have in common

    def _skip(self) -> bool:
        """Go on to what is no space; whether there is anything."""
        text, at = self._text, self._at
        while at < len(text) and text[at] in " \t\n\r":
            at += 1
        self._at = at
        return at < len(text)

    def _end_string(self, text: str) -> None:
        shape, self._string_shape = self._string_shape, None
        if shape is not None:
            try:
                self._add(shape, text)
            except Misfit:
                self._string_shape = shape  # what was shown of it stays
                raise
            return
        if text in self._open[-1].value:
            raise Misfit
        self._open[-1].key = text
        self._step = self._take_colon

    def _add(self, shape: Shape, value: Any) -> None:
        self._put(value, shape.whole(value, value))

    def _close(self) -> None:
        last = self._open[-1]
        view = last.shape.whole(last.value, last.so_far())
        self._open.pop()
        self._at += 1
        self._put(view if last.shape is ANYTHING else last.value, view)

    def _put(self, value: Any, view: Any) -> None:
        if self._open:
            self._open[-1].add(value, view)
            self._step = self._take_next
        else:
            self._whole, self._step = view, None


def _scalar(token: str) -> Any:
    if token in _WORDS:
        return _WORDS[token]
    number = _NUMBER.fullmatch(token)
    if number is None:
        raise Misfit
    if number[1] or number[2]:
        real = float(token)
        if not math.isfinite(real):
            raise Misfit
        return real
    if len(token.lstrip("-")) > INT_DIGITS_MAX:
        raise Misfit
    return int(token)
