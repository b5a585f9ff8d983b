"""
Settings for every test of the project.

A property runs without a deadline, because a shared machine may stall for any time, and on CI it tries the same
examples each time, so that a failure there belongs to the change that is being tested.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "minirun",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
    print_blob=True,
)
settings.load_profile("minirun")

pytest_plugins = ["tests.trust"]
