"""
The chapter for maintainers names files, limits and methods as they are.
"""

from __future__ import annotations

import re

import pytest

from minirun.sessions._sqlite._leases import LEASE_S, RENEW_EVERY_S

from . import test_rooms
from .test_guide import CHAPTERS, PACKAGE, PROJECT

DESIGN = CHAPTERS["design"]
FILES = sorted({*re.findall(r"`([\w/]+\.py|tests/[\w/]+/|\.ci/\w+)`", DESIGN.text)})


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_the_chapter_names_is_there(name: str) -> None:
    """
    A path of the chapter leads to a file below the package, or from the project.
    """
    assert (PROJECT / name).exists() or (PACKAGE / name).is_file()


def test_the_limits_are_those_of_the_tests() -> None:
    """
    The table of budgets has the numbers that tests/project/test_rooms.py checks, in the same order.
    """
    rows = re.findall(r"^\| .* \| ([\d ]+) \| `tests/project/test_rooms\.py` \|$", DESIGN.text, re.MULTILINE)
    assert [int(row.replace(" ", "")) for row in rows] == [
        test_rooms.FILE_LINES_MAX,
        test_rooms.CLASS_LINES_MAX,
        test_rooms.RUNTIME_LINES_MAX,
        test_rooms.LOADED_CODE_LINES_MAX,
        test_rooms.PASSED_FUNCTIONS_MAX,
        test_rooms.PASSED_FILES_MAX,
    ]


def test_a_lease_lasts_as_long_as_the_guide_says() -> None:
    """
    How long a lease lasts, and how often it is renewed, stands in two chapters.
    """
    lease = CHAPTERS["promises"].section("## Leases: one writer across processes")
    assert f"A lease lasts {LEASE_S:.0f} seconds" in lease
    assert f"renews it every {RENEW_EVERY_S:.0f} seconds" in lease
    section = DESIGN.section("## Leases and epochs")
    assert f"`LEASE_S` is {LEASE_S:.0f} seconds, `RENEW_EVERY_S` is {RENEW_EVERY_S:.0f}" in section
