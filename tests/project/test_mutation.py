"""
The script that makes mutants: what each operator makes of a module, that code is swapped wherever it lives, which tests
it chooses, and that a mutant which a test notices is told from one that none notices.
"""

from __future__ import annotations

import asyncio
import os
import sys
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ..mutation import lines, recorder, sample
from ..mutation.driver import Ended, _wait
from ..mutation.lines import LineMap, digest, ranges
from ..mutation.operators import changed_code, changed_tree, mutants_of
from ..mutation.sample import Chooser, all_mutants, equivalents, in_sample, under
from ..mutation.swap import UnswappableError, swap

pytestmark = pytest.mark.slow

# --- operators --------------------------------------------------------------------------------------------------------

# What stands in a function, and all that it is changed into.
CHANGES = {
    "if a: b()": {"negate: a => not a", "drop call: b() => pass"},
    "if not a: b()": {"negate: not a => a", "drop call: b() => pass"},
    "if a is None: b()": {"negate: a is None => a is not None", "drop call: b() => pass"},
    "x = a < b": {"compare: a < b => a <= b"},
    "x = a >= 1": {"compare: a >= 1 => a > 1", "constant: 1 => 2"},
    "x = a == b": {"compare: a == b => a != b"},
    "x = a in b": {"compare: a in b => a not in b"},
    "x = a and b": {"and/or: a and b => a or b", "drop operand: a and b => b", "drop operand: a and b => a"},
    "x = not a": {"drop not: not a => a"},
    "x = a + b": {"arithmetic: a + b => a - b"},
    "x = a[1:]": {"constant: 1 => 2"},
    "x = True": {"constant: True => False"},
    "x = 'key'": {"constant: 'key' => 'key~'"},
    "x = 'a text for people'": set(),
    "x = f'{a} of {b}'": set(),
    "x: Literal['a'] = cast('int', a)": set(),
    "assert a < b, 'no'": set(),
    "a.b = c": {"drop statement: a.b = c => pass"},
    "a.b()": {"drop call: a.b() => pass"},
    "await trio.lowlevel.checkpoint()": {"drop checkpoint: await trio.lowlevel.checkpoint() => pass"},
    "with a: b.c = 1": {"drop with: with a: => its body alone", "drop statement: b.c = 1 => pass", "constant: 1 => 2"},
    "with trio.CancelScope(shield=True) as a: b()": {"drop shield: True => False", "drop call: b() => pass"},
    "a(); b()": {"drop call: a() => pass", "drop call: b() => pass", "swap: a() => b(); a()", EARLY := "return early"},
    "a.b = c; a.d = e": {"drop statement: a.b = c => pass", "drop statement: a.d = e => pass", EARLY},
    "x = a(); b(x)": {"drop call: b(x) => pass", EARLY},
    "raise a": {"drop statement: raise a => pass"},
    "if a: return": {"negate: a => not a", "drop statement: return => pass"},
    "return a": {"return None: return a => return None"},
    "while True: break": {"loop: break => continue", "drop statement: break => pass"},
    "for x in a: continue": {"loop: continue => break", "drop statement: continue => pass"},
    "x = min(a, b)": {"min/max: min(a, b) => max(a, b)"},
    "x = [y for y in a if y]": {"negate: y => not y"},
    "if a: b.c = d\nelse: c = d": {
        "negate: a => not a", "drop statement: b.c = d => pass",
        "drop else: else of `if a` => pass",
    },
    "try: a()\nexcept E: b()\nfinally: c()": {
        "drop call: a() => pass", "drop call: b() => pass", "drop call: c() => pass",
        "raise again: except E: b() => raise", "drop finally: finally: c() => finally: pass",
    },
}  # fmt: skip


@pytest.mark.parametrize("body", CHANGES)
def test_an_operator_makes_all_of_its_changes_and_no_others(body: str) -> None:
    """And a change is one that Python compiles, of the line that it says."""
    source = "async def f():\n" + "".join(f"    {line}\n" for line in body.splitlines())
    found = mutants_of(source, "minirun/m.py")
    told = {m.operator if m.operator == EARLY else f"{m.operator}: {m.before} => {m.after}" for m in found}
    assert told == CHANGES[body]
    assert len({mutant.id for mutant in found}) == len(found)
    for mutant in found:
        assert mutant.function == "f"
        assert 2 <= mutant.lines[0] <= mutant.line <= mutant.lines[1]
        changed_code(source, "m.py", mutant.number)


SILENT = '''
"""A module."""
from typing import TYPE_CHECKING, overload
if TYPE_CHECKING:
    import x
__all__ = ["f"]
Kind = int | str
@overload
def f(a: "int" = 1): return a
class A:
    __slots__ = ("a",)
    def __repr__(self): return self.a
'''


def test_what_no_test_should_notice_is_not_changed() -> None:
    """Texts for people, types, lists of names, representations."""
    assert mutants_of(SILENT, "m.py") == []


def test_an_id_stays_when_the_lines_move_and_numbers_equal_changes() -> None:
    """So results and arguments are found again after a change elsewhere in the file."""
    source = "def f(a):\n    a.b()\n    a.b()\n"
    moved = "# a comment\n\n" + source
    assert [m.id for m in mutants_of(source, "m.py")] == [m.id for m in mutants_of(moved, "m.py")]


def test_what_runs_at_import_knows_the_names_it_binds() -> None:
    """A default, a constant, and a field of a class."""
    source = "LIMIT = 5\nclass A:\n    field = 6\ndef f(a=7):\n    pass\n"
    found = {m.before: (m.names, m.function) for m in mutants_of(source, "m.py")}
    assert found == {"5": (("LIMIT",), ""), "6": (("A",), ""), "7": (("f",), "")}


# --- swapping ---------------------------------------------------------------------------------------------------------

SOURCE = """
from contextlib import contextmanager
def plain(): return 1 + 1
async def waits(): return 2 + 1
def yields(): yield 3 + 1
class A:
    def method(self): return 4 + 1
    @property
    def value(self): return 5 + 1
    @classmethod
    def made(cls): return 6 + 1
    @staticmethod
    def loose(): return 7 + 1
    def with_class(self): return (__class__, 8 + 1)[1]
def maker(a):
    def inner(): return a + 9 + 1
    return inner
closure = maker(0)
@contextmanager
def manager(): yield 10 + 1
small = lambda: 11 + 1
"""


def _entered(module: Any) -> int:
    with module.manager() as value:
        return int(value)


USES: dict[str, Callable[[Any], int]] = {
    "a function": lambda m: m.plain(),
    "an async function": lambda m: asyncio.run(m.waits()),
    "a generator": lambda m: next(m.yields()),
    "a method": lambda m: m.A().method(),
    "a property": lambda m: m.A().value,
    "a class method": lambda m: m.A.made(),
    "a static method": lambda m: m.A.loose(),
    "a method with its class": lambda m: m.A().with_class(),
    "a closure that is there": lambda m: m.closure(),
    "a context manager": _entered,
}


def imported(source: str) -> tuple[Any, Any]:
    """A module with this text, and its code."""
    code = compile(source, "m.py", "exec", dont_inherit=True)
    module: Any = types.ModuleType("m")
    exec(code, module.__dict__)
    return module, code


def functions_of(value: Any) -> list[types.FunctionType]:
    """All functions that a module, a class or a wrapper holds."""
    held = vars(value).values() if isinstance(value, types.ModuleType | type) else ()
    inside = [getattr(value, name, None) for name in ("__func__", "fget", "__wrapped__")]
    own = [value] if isinstance(value, types.FunctionType) else []
    return [*own, *(f for each in [*held, *filter(None, inside)] if each is not type for f in functions_of(each))]


@pytest.mark.parametrize(("number", "what"), [*enumerate(USES, 1)])
def test_the_code_is_swapped_wherever_it_lives(number: int, what: str) -> None:
    """Each of these adds one to its number, and takes one from it when that is changed; all others are as before."""
    module, old = imported(SOURCE)
    [mutant] = [m for m in mutants_of(SOURCE, "m.py") if m.after == f"{number} - 1" or m.after == f"a + {number} - 1"]
    functions = [f for f in functions_of(module) if f.__code__.co_filename == "m.py"]
    assert {use: run(module) for use, run in USES.items()} == {use: n + 1 for n, use in enumerate(USES, 1)}
    assert swap(functions, old, changed_code(SOURCE, "m.py", mutant.number)) >= 1
    assert {use: run(module) - n for n, (use, run) in enumerate(USES.items(), 1)} == {
        use: -1 if use == what else 1 for use in USES
    }
    assert "plain" in vars(module)


def test_a_closure_that_is_made_later_is_changed_too() -> None:
    """Its code is a constant of the function around it."""
    module, old = imported(SOURCE)
    [mutant] = [m for m in mutants_of(SOURCE, "m.py") if m.after == "a + 9 - 1"]
    swap([module.maker], old, changed_code(SOURCE, "m.py", mutant.number))
    assert (module.maker(0)(), module.closure()) == (8, 10)


def test_a_dropped_statement_leaves_the_free_variables_of_a_closure() -> None:
    """Else the functions that are there could not get the changed code."""
    source = "def maker(a):\n  def inner():\n    a.append(1)\n  return inner\nkept = []\nclosure = maker(kept)\n"
    module, old = imported(source)
    [mutant] = [m for m in mutants_of(source, "m.py") if m.operator == "drop call"]
    swap([module.closure], old, changed_code(source, "m.py", mutant.number))
    module.closure()
    assert module.kept == []
    with pytest.raises(UnswappableError, match="free variables"):
        swap([imported(source)[0].closure], old, compile(source.replace("a.append(1)", "list()"), "m.py", "exec"))


# --- choosing ---------------------------------------------------------------------------------------------------------


def test_the_sample_of_a_seed_keeps_the_others_when_a_mutant_goes() -> None:
    """A change of code replaces only the mutants of that code."""
    every = [m for path in ("a.py", "b.py") for m in mutants_of("def f(a):\n    return a + 1 + 2 + 3 + 4\n", path)]
    sample = in_sample(every, 7, 5)
    gone = sample[2]
    assert in_sample([m for m in every if m is not gone], 7, 4) == [m for m in sample if m is not gone]
    assert in_sample(every, 8, 5) != sample


def test_a_map_finds_the_lines_of_a_module_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that moved, and what replaces some that a test has passed; new lines belong to the one before."""
    root = tmp_path / "repository"
    module, tests = root / "minirun" / "m.py", root / "tests" / "test_m.py"
    for path in (module, tests):
        path.parent.mkdir(parents=True)
        path.write_text("one\ntwo\nthree\nfour\n")
    monkeypatch.setattr(lines, "ROOT", root)
    line_map = LineMap(tmp_path / "map")
    assert line_map.missing() == ["tests/test_m.py"]
    texts = {"minirun/m.py": digest(module.read_bytes())}
    told = {"tests/test_m.py::a": ["passed", 0.1, 0.2, {"minirun/m.py": ranges({1, 2, 4})}]}
    told["tests/test_m.py::b"] = ["failed", 0.1, 0.2, {"minirun/m.py": [[1, 4]]}]
    line_map.keep("tests/test_m.py", digest(tests.read_bytes()), texts, told, {})
    assert line_map.missing() == []
    [passage] = line_map.passages()
    assert (passage.test, passage.lines) == ("tests/test_m.py::a", {"minirun/m.py": frozenset({1, 2, 4})})
    module.write_text("zero\none\nTWO\nand two\nthree\nfour\nfive\n")
    [passage] = LineMap(tmp_path / "map").passages()
    assert passage.lines == {"minirun/m.py": frozenset({2, 3, 4, 6, 7})}


@pytest.mark.parametrize(("code", "is_noted"), [(0, True), (1, True), (5, True), (2, False), (3, False), (4, False)])
def test_a_file_whose_tests_were_not_run_stays_missing(
    code: int, is_noted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When pytest refuses its options, the next map tries them again; a file without tests is noted."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_m.py").write_text("")
    monkeypatch.setitem(sys.modules, "sitecustomize", types.ModuleType("sitecustomize"))
    for module in (lines, recorder):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    line_map = LineMap(tmp_path / "map")
    recorder.Recorder(line_map, ["tests/test_m.py"]).pytest_sessionfinish(code)
    assert line_map.missing() == ([] if is_noted else ["tests/test_m.py"])


class Told(LineMap):
    """A map of two files of tests and one module, `f` on line 2, and a constant on line 1."""

    def __init__(self) -> None:
        pass

    def passages(self) -> Any:
        """Two cheap ones, one dear one, one that does not pass it, and one that takes too long."""
        for test, seconds, passed in (
            ("tests/tools/test_other.py::cheap", 0.01, {2}),
            ("tests/runtime/test_ids.py::cheap", 0.01, {2}),
            ("tests/runtime/test_ids.py::dear", 0.5, {2}),
            ("tests/runtime/test_ids.py::elsewhere", 0.01, {9}),
            ("tests/runtime/test_ids.py::endless", 90.0, {2}),
        ):
            yield lines.Passage(test, seconds, seconds, {"minirun/runtime/_ids.py": frozenset(passed)})

    def loading(self) -> dict[str, set[int]]:
        """Nothing."""
        return {}


def test_only_tests_that_pass_the_line_are_chosen_near_and_cheap_ones_first() -> None:
    """What would take too long is left out, and told of."""
    [mutant] = [m for m in mutants_of("\ndef f(a): return a + b\n", "minirun/runtime/_ids.py") if "arith" in m.operator]
    chosen = Chooser(Told()).choose(mutant)
    files = [test.partition("tests/")[2] for test in chosen.tests]
    assert files == ["runtime/test_ids.py::cheap", "tools/test_other.py::cheap", "runtime/test_ids.py::dear"]
    assert chosen.left_out == 1
    thorough = Chooser(Told(), all_tests=True).choose(mutant)
    assert thorough.left_out == 0
    assert thorough.tests[-1] == "tests/runtime/test_ids.py::endless"
    assert Chooser(Told()).files_for([mutant]) == ["tests/runtime/test_ids.py", "tests/tools/test_other.py"]


def test_a_line_that_nobody_notes_is_looked_at_by_those_that_pass_the_one_above() -> None:
    """Python has no event for some jumps, so the map has no test that passes them."""
    mutants = mutants_of("\ndef f(a):\n    a = 3\n    return a\n", "minirun/runtime/_ids.py")
    [mutant] = [each for each in mutants if each.operator == "constant"]
    assert mutant.lines == (3, 3)
    assert Chooser(Told()).choose(mutant).tests[0] == "tests/runtime/test_ids.py::cheap"


def test_a_test_that_reads_a_table_looks_at_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No function of the package has to use a name for that: its file names the module, and what is in it."""
    monkeypatch.setattr(sample, "ROOT", tmp_path)
    monkeypatch.setattr(sample, "modules", list[str])  # none: no function uses it
    for file, text in (("tools/test_other.py", "assert _ids.TABLE"), ("runtime/test_ids.py", "import _ids")):
        (tmp_path / "tests" / file).parent.mkdir(parents=True)
        (tmp_path / "tests" / file).write_text(text)
    [mutant] = mutants_of("\nTABLE = 7\n", "minirun/runtime/_ids.py")
    assert Chooser(Told()).choose(mutant).tests == ["tests/tools/test_other.py::cheap"]


def test_a_sample_can_be_of_some_modules_alone() -> None:
    """Those whose paths begin with one of those that are told; without any, all."""
    every = [m for path in ("minirun/a/x.py", "minirun/a/y.py", "minirun/b.py") for m in mutants_of("X = 1\n", path)]
    assert under(["minirun/a/y", "minirun/b"], every) == every[1:]
    assert under([], every) == every


def test_every_equivalent_is_a_mutant_that_there_is() -> None:
    """An argument about code that has changed is made anew, or goes."""
    told = equivalents()
    paths = {each.partition(":")[0] for each in told}
    assert {*told} <= {mutant.id for mutant in all_mutants(sorted(paths))}


# --- telling ----------------------------------------------------------------------------------------------------------

SUM = "def total(values):\n    found = 0\n    for each in values:\n        found += each\n    return found\n"


def look(total: Callable[[list[int]], int]) -> bool:
    """A test that notices what becomes of the sum, and not where it begins to count."""
    return total([1, 2]) - total([]) == 3


def verdict(number: int) -> bool:
    """What the test says of a mutant, with the code swapped."""
    module, old = imported(SUM)
    swap([module.total], old, changed_code(SUM, "m.py", number))
    try:
        return look(module.total)
    except TypeError:
        return False


def test_a_killed_mutant_is_told_from_a_surviving_one() -> None:
    """The test that never looks at the first number lets its mutant live."""
    survivors = {m.before for m in mutants_of(SUM, "m.py") if verdict(m.number)}
    assert survivors == {"0"}
    assert changed_tree(SUM, 0).body


@pytest.mark.parametrize(
    ("said", "ended"),
    [
        (b"begun\npassed\npassed\ndone\n", Ended(None, 2)),
        (b"begun\npassed\nfailed\n", Ended(1, 2)),
        (b"begun\npassed\n", Ended(1, 1)),  # it has died in the second one
        (b"", Ended(-1, 0)),
        (b"unable\n", Ended(None, 0, unable=True)),
    ],
)
def test_a_child_is_understood_however_it_ends(said: bytes, ended: Ended) -> None:
    """All tests have passed, one has failed, the process has died, or the code could not be swapped."""
    reading, writing = os.pipe()
    os.write(writing, said)
    os.close(writing)
    assert _wait(reading, [1.0, 1.0], 1.0) == ended
    os.close(reading)


def test_a_test_that_does_not_end_is_a_kill_by_the_time_limit() -> None:
    """The parent waits for each test as long as that one may take."""
    reading, writing = os.pipe()
    os.write(writing, b"begun\npassed\n")
    assert _wait(reading, [1.0, 0.0], 1.0) == Ended(1, 1, late=True)
    os.close(reading)
    os.close(writing)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is there since Python 3.12")
def test_a_line_is_noted_once_and_again_after_the_next_test_begins() -> None:
    """As the hook does it: a line that is passed is not told of again before `restart_events`."""
    monitoring: Any = partial(getattr, sys)("monitoring")
    module, _ = imported("def f():\n    return 1\n")
    seen: list[int] = []

    def noted(code: types.CodeType, line: int) -> Any:
        seen.append(line)
        return monitoring.DISABLE

    tool = next(number for number in range(6) if monitoring.get_tool(number) is None)
    monitoring.use_tool_id(tool, "a test")
    try:
        monitoring.register_callback(tool, monitoring.events.LINE, noted)
        monitoring.set_local_events(tool, module.f.__code__, monitoring.events.LINE)
        module.f(), module.f()
        assert seen == [2]
        monitoring.restart_events()
        module.f()
        assert seen == [2, 2]
    finally:
        monitoring.free_tool_id(tool)
