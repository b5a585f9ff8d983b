"""What `extra_body` makes of a body that is sent: each field is the caller's, and objects of both are merged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirun._json import freeze
from minirun.models._wire_gemini import merged
from minirun.models._wire_openai_session import _merged

Merge = Callable[[Any, Any], dict[str, Any]]
BOTH: list[Merge] = [merged, _merged]
JSON = st.dictionaries(
    st.sampled_from("abc"),
    st.recursive(st.none() | st.integers(0, 3), lambda inner: st.dictionaries(st.sampled_from("abc"), inner)),
)


@pytest.mark.parametrize("merge", BOTH)
@pytest.mark.parametrize(
    ("mine", "more", "made"),
    [
        ({}, {}, {}),
        ({"a": 1}, {}, {"a": 1}),
        ({}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": 1}, {"a": 2, "b": 3}, {"a": 2, "b": 3}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 3, "d": 4}}, {"a": {"b": 1, "c": 3, "d": 4}}),
        ({"a": {"b": {"c": 1}}}, {"a": {"b": {"d": 2}}}, {"a": {"b": {"c": 1, "d": 2}}}),
        ({"a": {"b": 1}}, {"a": 5}, {"a": 5}),
        ({"a": {"b": 1}}, {"a": None}, {"a": None}),
        ({"a": {"b": 1}}, {"a": [1]}, {"a": [1]}),
        ({"a": 5}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": [1]}, {"a": [2]}, {"a": [2]}),
    ],
)
def test_what_both_say_is_merged_where_it_is_an_object(
    merge: Merge, mine: dict[str, Any], more: dict[str, Any], made: dict[str, Any]
) -> None:
    """Else what the caller says counts, whatever it is; what is given is left as it is."""
    before = freeze(mine)
    assert merge(mine, more) == made
    assert merge(mine, freeze(more)) == made
    assert mine == before


@given(JSON, JSON)
def test_the_callers_fields_win_and_no_other_is_lost(mine: dict[str, Any], more: dict[str, Any]) -> None:
    """Both ways of merging do the same; merged once more, nothing changes."""
    made = merged(mine, more)
    assert _merged(mine, more) == made
    assert made.keys() == mine.keys() | more.keys()
    assert merged(made, more) == made
    assert all(made[name] == mine[name] for name in mine.keys() - more.keys())
