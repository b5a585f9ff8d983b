"""
Records behave as the attrs classes that they stand for.
"""

from __future__ import annotations

import pickle
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirun._record import Record
from minirun.runtime import RunConfig
from minirun.sessions import GetSessionConfig


def twin(base: type, **options: Any) -> type[Any]:
    """A record, or the attrs class that it stands for."""
    fields = {
        "a": attrs.field(),
        "b": attrs.field(default=None),
        "_silent": attrs.field(default=0, repr=False),
        "aside": attrs.field(default=0, eq=False),
    }
    return attrs.make_class("Twin", fields, bases=(base,), frozen=True, slots=True, **options)


OWN = twin(Record, eq=False, repr=False)
THEIRS = twin(object, eq=True, repr=True)

SCALARS = st.sampled_from([None, 0, False, 1, "x"])
FIELDS = st.fixed_dictionaries(dict.fromkeys(("a", "b", "silent", "aside"), SCALARS))


@given(FIELDS, FIELDS)
def test_a_record_is_equal_and_shown_as_attrs_would_have_it(one: dict[str, Any], other: dict[str, Any]) -> None:
    """
    Records are equal where attrs' own classes are, equal ones have one hash, and they look the same.
    """
    assert (OWN(**one) == OWN(**other)) is (THEIRS(**one) == THEIRS(**other))
    assert (OWN(**one) != OWN(**other)) is (THEIRS(**one) != THEIRS(**other))
    assert OWN(**one) != OWN(**other) or hash(OWN(**one)) == hash(OWN(**other))
    assert repr(OWN(**one)) == repr(THEIRS(**one))


def test_records_of_other_classes_are_others() -> None:
    """
    A record is equal to none of another class, a subclass included.
    """
    asked = GetSessionConfig(num_recent_events=1)
    assert asked != RunConfig()
    assert asked != attrs.make_class("Narrow", [], bases=(GetSessionConfig,), eq=False)(num_recent_events=1)


def test_a_record_that_holds_what_cannot_be_hashed_has_no_hash() -> None:
    """
    A record's hash is that of its content, or a TypeError.
    """
    with pytest.raises(TypeError, match="unhashable"):
        hash(OWN([]))


def test_a_record_can_be_pickled_and_may_hold_itself() -> None:
    """
    A pickled record comes back equal, and one that holds itself can be shown.
    """
    config = GetSessionConfig(after_seq=3)
    assert pickle.loads(pickle.dumps(config)) == config
    items: list[Any] = []
    record = OWN(items)
    items.append(record)
    assert repr(record) == "Twin(a=[...], b=None, aside=0)"
