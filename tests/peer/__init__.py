"""
The comparison with the peer: the same small scenarios, the same columns, and every difference with its reason.

    columns        what is compared, and how recorded traces of the peer become columns
    play           a scenario played by minirun, recorded in the same columns
    t01 … t07      the scenarios, by the file of traces that they repeat
    differences    what is meant to be different, and why; what is not compared, and why not

`python -m tests.peer DIRECTORY` writes the columns of the traces in a directory to `tests/fixtures/peer`. Only facts
are kept: who said what kind of thing, when, with which effect. Ids and the framework's own words are left out. The
peer is google-adk 2.13.0.
"""

from __future__ import annotations
