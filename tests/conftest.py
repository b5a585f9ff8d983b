"""
Settings for every test of the project.

A property runs without a deadline, because a shared machine may stall for any time, and on CI it tries the same
examples each time, so that a failure there belongs to the change that is being tested.

What was imported and collected stays to the end. The garbage collector does not look at it again, or each collection
that a test asks for would take half a second.
"""

from __future__ import annotations

import gc
import os
import signal

from hypothesis import HealthCheck, settings

settings.register_profile(
    "minirun",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
    print_blob=True,
)
settings.load_profile("minirun")

# A shell starts what it runs in the background with Ctrl-C ignored, and so would be each process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Before the first test."""
    gc.collect()
    gc.freeze()
