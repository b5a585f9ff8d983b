"""
How the figures of the package are counted (`tests/figures.py`).
"""

from __future__ import annotations

from ..figures import figures_of, functions_of_a_text_turn, statements_of, upward_imports


def test_docstrings_are_not_statements() -> None:
    """
    A function, its `return` and an assignment are three statements, with and without docstrings.
    """
    assert statements_of('"""M."""\nx = 1\n\n\ndef f():\n    """F."""\n    return x\n') == 3
    assert statements_of("x = 1\n\n\ndef f():\n    return x\n") == 3


def test_small_files_and_late_imports_are_counted() -> None:
    """
    A short file with code is small, an `__init__` and a list of names are not; an import in a function is late.
    """
    code = "def f():\n    from . import _llm\n    import json\n"
    assert figures_of("agents/_a.py", code, frozenset()) == {
        "statements": 3, "lines": 3, "files": 1, "small": 1, "late": 2,
    }  # fmt: skip
    assert figures_of("agents/__init__.py", code, frozenset())["small"] == 0
    assert figures_of("agents/_a.py", "from ._b import c\n__all__ = ['c']\n", frozenset())["small"] == 0


def test_an_upward_annotation_import_is_found() -> None:
    """
    It is an import for type checkers of a higher layer, or of a module that imports the importing one.
    """
    guarded = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from {} import X\n"
    sources = {
        "agents/__init__.py": "if TYPE_CHECKING:\n    from ._a import X",
        "agents/_a.py": "from . import _b\nfrom ..tools import _base",
        "agents/_b.py": guarded.format("._a"),
        "runtime/_run.py": guarded.format("..agents"),
        "runners/_runner.py": guarded.format("..agents"),
        "tools/_base.py": "",
    }
    assert upward_imports(sources) == {"agents/_b.py": 1, "runtime/_run.py": 1}


def test_a_text_turn_is_traced_from_the_runner_to_the_model() -> None:
    """
    The functions of a turn include the runner's and the model's.
    """
    files = {file for file, _ in functions_of_a_text_turn()}
    assert {"runners/_runner.py", "agents/_llm.py", "runtime/_committer.py"} <= files
