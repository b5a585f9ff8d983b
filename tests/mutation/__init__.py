"""
How much the tests notice: `python -m tests.mutation` changes the package in small ways and counts who sees it.

A mutant is the package with one place of it changed by an operator on the syntax tree (`operators.py`): a condition is
negated, a bound moved by one, a call dropped, a shield taken away, two statements swapped. A mutant is *killed* if a
test fails with it that passes without it. What survives names a missing test, or code that nobody needs.

How it is cheap
===============

    map      a run of the suite under `sys.monitoring` notes which lines each test passes, in its processes too
             (`recorder.py`, `lines.py`). It is kept outside of the repository, by file of tests; a file that changed
             is noted again, and lines that have moved in the package are found again by their text.
    fork     one process has imported everything and collected all tests (`driver.py`). For each mutant it forks, and
             the child puts the changed code into the functions that have the old one (`swap.py`). Processes that its
             tests start load the changed module instead of the file (`hook/`).
    tests    only those that pass the changed lines: each file of tests gets an equal share of time, near files a
             larger one, cheap tests come first; the first failure ends it. With `--again` what has survived those
             is tried with all that pass it.
    fresh    what runs at import (defaults, tables, class bodies) cannot be swapped: a new process loads the changed
             module and runs the tests of those who use it.

A kill counts if the test fails alone with the mutant, and passes alone without it. A test that takes 20 times its time
and 10 s is ended: that is a kill by the time limit, and counted apart.

No mutation tester that there is fits (looked at in 2026): mutmut 3 forks and selects by function too, but leaves
out most of what is decorated, and its trampolines add a call to each function, which tests here count; cosmic-ray
starts the test command anew for each mutant, which collects 12 900 tests each time.
"""
