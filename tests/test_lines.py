"""The lines of a stream, however its bytes come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirun._lines import Lines, LineTooLongError

CHUNKS = st.lists(st.text("ab \n", max_size=6).map(str.encode), max_size=12)


@given(CHUNKS)
def test_the_lines_are_those_of_the_whole(chunks: list[bytes]) -> None:
    """
    Wherever a stream is cut, its lines are the same, but for blank ones and for the end that is no line yet.
    """
    lines = Lines(1000)
    found = [line for chunk in chunks for line in lines.fed(chunk)]
    assert found == [line for line in b"".join(chunks).split(b"\n")[:-1] if line.strip()]


@given(CHUNKS, st.integers(0, 8))
def test_a_line_that_does_not_end_is_not_kept(chunks: list[bytes], bytes_max: int) -> None:
    """
    More than the limit is never kept between two pieces, and what has ended before is told first.
    """
    lines = Lines(bytes_max)
    try:
        for chunk in chunks:
            lines.fed(chunk)
            assert len(lines._rest) <= bytes_max + (b"\n" in chunk) * len(chunk)
    except LineTooLongError:
        assert b"\n" not in chunk
    else:
        return
    with pytest.raises(LineTooLongError):
        lines.fed(b"x")
