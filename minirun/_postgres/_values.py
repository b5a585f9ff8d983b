"""
Statements, and how their parameters and results are written: in Postgres' binary format, both ways.

A statement names the types of its parameters once, so that nothing is guessed from a value: "int8 text bytea[]". The
binary format needs no quoting, keeps `bytea` as it is, and lets an array of a thousand payloads be written by one join.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final

import attrs

__all__ = ["Call", "Notification", "Result", "Statement", "decoder", "encode"]

_INT2, _INT4, _INT8, _FLOAT4, _FLOAT8 = (Struct(f"!{code}") for code in "hiqfd")
_ARRAY_HEAD: Final = Struct("!iiIii")  # dimensions, whether it has NULLs, type of the elements, length, lower bound
_NO_ELEMENTS: Final = Struct("!iiI")

# Of the server's catalogue, where they never change: https://www.postgresql.org/docs/current/catalog-pg-type.html
_OIDS: Final = {"bool": 16, "bytea": 17, "int8": 20, "int2": 21, "int4": 23, "text": 25, "float8": 701}
_ARRAYS: Final = {"bool": 1000, "bytea": 1001, "int8": 1016, "int4": 1007, "text": 1009, "float8": 1022}

_POSTGRES_EPOCH_S: Final = 946_684_800  # 2000-01-01


def _encode_bool(value: Any) -> bytes:
    return b"\x01" if value else b"\x00"


_ENCODERS: Final[dict[str, Callable[[Any], bytes]]] = {
    "bool": _encode_bool,
    "bytea": bytes,
    "int8": _INT8.pack,
    "int4": _INT4.pack,
    "int2": _INT2.pack,
    "text": str.encode,
    "float8": _FLOAT8.pack,
}


def _array_encoder(kind: str) -> Callable[[Sequence[Any]], bytes]:
    encode_one, oid = _ENCODERS[kind], _OIDS[kind]

    def encode_array(values: Sequence[Any]) -> bytes:
        if not values:
            return _NO_ELEMENTS.pack(0, 0, oid)
        parts = [_ARRAY_HEAD.pack(1, int(None in values), oid, len(values), 1)]
        for value in values:
            if value is None:
                parts.append(b"\xff\xff\xff\xff")
            else:
                data = encode_one(value)
                parts += (_INT4.pack(len(data)), data)
        return b"".join(parts)

    return encode_array


def _encoder(kind: str) -> tuple[int, Callable[[Any], bytes]]:
    element = kind.removesuffix("[]")
    return (_OIDS[kind], _ENCODERS[kind]) if element == kind else (_ARRAYS[element], _array_encoder(element))


@attrs.frozen(eq=False)
class Statement:
    """
    One statement of SQL with `$1` … for its parameters. A constant: connections know it by its identity.

    It is prepared once on each connection that executes it, unless it is *once*: what only an opening or a migration
    says, and what cannot be prepared.
    """

    name: str
    """What messages and the server's views call it, in letters and underscores."""
    sql: str
    types: str = ""
    """The types of the parameters: bool, bytea, float8, int2, int4, int8, text, or an array of these, as `text[]`."""
    once: bool = attrs.field(default=False, kw_only=True)
    oids: tuple[int, ...] = attrs.field(init=False, repr=False)
    encoders: tuple[Callable[[Any], bytes], ...] = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        assert self.name.replace("_", "").isalpha(), self.name  # else the server may cut it, or read it otherwise
        both = [_encoder(kind) for kind in self.types.split()]
        object.__setattr__(self, "oids", tuple(oid for oid, _ in both))
        object.__setattr__(self, "encoders", tuple(encoder for _, encoder in both))

    def __call__(self, *arguments: Any) -> Call:
        """Return the statement with these parameters; None is NULL."""
        assert len(arguments) == len(self.oids), (self.name, len(arguments))
        return Call(self, arguments)


@attrs.frozen
class Call:
    """A statement with its parameters. The message of an error names the statement and shows no parameter."""

    statement: Statement
    arguments: tuple[Any, ...] = attrs.field(repr=False)


@attrs.frozen
class Result:
    """What a statement has answered."""

    rows: list[tuple[Any, ...]]
    changed: int = 0
    """How many rows it has written, or returned."""


@attrs.frozen
class Notification:
    """A NOTIFY of somebody's."""

    channel: str
    payload: str


def encode(call: Call) -> list[bytes | None]:
    """Return the parameters in binary format."""
    pairs = zip(call.statement.encoders, call.arguments, strict=True)
    return [None if value is None else encoder(value) for encoder, value in pairs]


# --- results


def _decode_bool(data: bytes) -> bool:
    return data == b"\x01"


def _decode_int(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def _decode_float8(data: bytes) -> float:
    [value] = _FLOAT8.unpack(data)
    return float(value)


def _decode_float4(data: bytes) -> float:
    [value] = _FLOAT4.unpack(data)
    return float(value)


def _decode_time(data: bytes) -> float:
    """Seconds since 1970."""
    return _decode_int(data) / 1e6 + _POSTGRES_EPOCH_S


def _nothing(_: bytes) -> None:
    """`void`, which functions return that are called for what they do."""


_DECODERS: Final[dict[int, Callable[[bytes], Any]]] = {
    16: _decode_bool,
    17: bytes,
    **dict.fromkeys((20, 21, 23), _decode_int),
    26: lambda data: int.from_bytes(data, "big"),  # oid
    **dict.fromkeys((19, 25, 705, 1042, 1043), bytes.decode),  # name, text, unknown, char, varchar
    700: _decode_float4,
    701: _decode_float8,
    1184: _decode_time,  # timestamptz
    2278: _nothing,
}


def _array_decoder(decode_one: Callable[[bytes], Any]) -> Callable[[bytes], list[Any]]:
    def decode_array(data: bytes) -> list[Any]:
        [dimensions] = _INT4.unpack_from(data)
        if not dimensions:
            return []
        assert dimensions == 1, dimensions
        _, _, _, length, _ = _ARRAY_HEAD.unpack_from(data)
        at = _ARRAY_HEAD.size
        values: list[Any] = []
        for _ in range(length):
            [size] = _INT4.unpack_from(data, at)
            at += _INT4.size
            if size < 0:
                values.append(None)
            else:
                values.append(decode_one(data[at : at + size]))
                at += size
        return values

    return decode_array


_DECODERS.update({array: _array_decoder(_DECODERS[_OIDS[kind]]) for kind, array in _ARRAYS.items()})


def decoder(oid: int) -> Callable[[bytes], Any]:
    """Return what reads a column of this type. Our statements cast what is not among them."""
    assert oid in _DECODERS, f"a column of type {oid} cannot be read; cast it in the statement"
    return _DECODERS[oid]
