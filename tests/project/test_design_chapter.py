"""
The chapter for maintainers names files and methods as they are.
"""

from __future__ import annotations

import re

import pytest

from minirun.sessions._sqlite._leases import LEASE_S, RENEW_EVERY_S

from .test_guide import CHAPTERS, PACKAGE, PROJECT

DESIGN = CHAPTERS["design"]
FILES = sorted({*re.findall(r"`([\w/]+\.py|tests/[\w/]+/|\.ci/\w+)`", DESIGN.text)})


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_the_chapter_names_is_there(name: str) -> None:
    """
    A path of the chapter leads to a file below the package, or from the project.
    """
    assert (PROJECT / name).exists() or (PACKAGE / name).is_file()




def test_a_lease_lasts_as_long_as_the_guide_says() -> None:
    """
    How long a lease lasts, and how often it is renewed, stands in two chapters.
    """
    lease = CHAPTERS["promises"].section("## Leases: one writer across processes")
    assert f"A lease lasts {LEASE_S:.0f} seconds" in lease
    assert f"renews it every {RENEW_EVERY_S:.0f} seconds" in lease
    section = DESIGN.section("## Leases and epochs")
    assert f"`LEASE_S` is {LEASE_S:.0f} seconds, `RENEW_EVERY_S` is {RENEW_EVERY_S:.0f}" in section
