"""
The operators: every small change of a module that could be a mistake, as edits of its syntax tree.

What no test should notice is not changed, by rule and not by taste: docstrings, annotations, imports, `TYPE_CHECKING`
blocks, `__all__` and `__slots__`, `__repr__`, overloads, decorators, types (unions and `Literal` at import), what
`assert` says (it states what is true), texts for people (f-strings, and strings that contain a space), and the first
argument of `cast` and `TypeVar`.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import attrs

__all__ = ["Mutant", "Place", "changed_code", "changed_tree", "mutants_of"]

TEXT_MAX = 100  # of what a report shows of a change

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ORDERED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)  # the negation of one is not what it is compared with at its bound
COUNTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
TURNED = {"min": "max", "max": "min", "any": "all", "all": "any"}
NAMED_LISTS = frozenset({"__all__", "__slots__", "__match_args__"})
NAMERS = frozenset({"cast", "TypeVar", "NewType", "ParamSpec"})  # their first argument is a type, or a name for people

Function = ast.FunctionDef | ast.AsyncFunctionDef
Apply = Callable[[], None]


@attrs.frozen(kw_only=True)
class Mutant:
    """One change. Its `id` stays the same while the code around it does, wherever that moves in the file."""

    id: str
    path: str
    """Relative to the repository."""
    number: int
    """Which one of the file's."""
    line: int
    function: str
    """Its qualified name, as code objects have it; empty for what runs at import."""
    operator: str
    before: str
    after: str
    lines: tuple[int, int]
    """The first and the last line that a test must pass to see it, if it is in a function."""
    names: tuple[str, ...] = ()
    """The names that are bound to what is changed, if it runs at import."""


@attrs.define
class Place:
    """Where the walk is: the function around, and the span of lines of the statement around."""

    function: str = ""
    inside: bool = False
    """In a function's body, so that it runs when the function does."""
    span: tuple[int, int] = (1, 1)
    names: tuple[str, ...] = ()

    def into(self, name: str) -> Place:
        """Where the body of a function or a class with this name is."""
        return attrs.evolve(self, function=f"{self.function}{'.<locals>' * self.inside}.{name}".lstrip("."))


@attrs.frozen
class Edit:
    """A change of a tree, that *apply* makes in place."""

    operator: str
    node: ast.AST
    before: str
    after: str
    place: Place
    apply: Apply
    span: tuple[int, int] | None = None


def mutants_of(source: str, path: str) -> list[Mutant]:
    """All mutants of a module, in the order of the walk, without those that another one says again."""
    found: list[Mutant] = []
    seen: Counter[str] = Counter()
    for number, edit in _distinct(ast.parse(source)):
        text = f"{edit.operator}: {edit.before} => {edit.after}"
        seen[key := f"{path}:{edit.place.function}:{text}"] += 1
        digest = hashlib.sha256(f"{key}:{seen[key]}".encode()).hexdigest()[:10]
        found.append(
            Mutant(
                id=f"{path}:{edit.place.function or '<module>'}:{digest}",
                path=path,
                number=number,
                line=getattr(edit.node, "lineno", edit.place.span[0]),
                function=edit.place.function if edit.place.inside else "",
                operator=edit.operator,
                before=_short(edit.before),
                after=_short(edit.after),
                lines=edit.span or edit.place.span,
                names=edit.place.names,
            )
        )
    return found


def changed_code(source: str, filename: str, number: int) -> CodeType:
    """The module with the change of this number, compiled."""
    return compile(changed_tree(source, number), filename, "exec", dont_inherit=True)


def changed_tree(source: str, number: int) -> ast.Module:
    """The module with the change of this number."""
    tree = ast.parse(source)
    dict(_distinct(tree))[number].apply()
    return ast.fix_missing_locations(tree)


def _distinct(tree: ast.Module) -> Iterator[tuple[int, Edit]]:
    seen: set[tuple[int, str]] = set()
    for number, edit in enumerate(_block(tree, "body", Place())):
        key = (getattr(edit.node, "lineno", 0) * 1000 + getattr(edit.node, "col_offset", 0), edit.after)
        if key not in seen:
            seen.add(key)
            yield number, edit


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TEXT_MAX else line[: TEXT_MAX - 1] + "…"


# --- statements -------------------------------------------------------------------------------------------------------


def _block(owner: ast.AST, field: str, place: Place) -> Iterator[Edit]:
    """The edits of a list of statements."""
    body: list[ast.stmt] = getattr(owner, field)
    for index, node in enumerate(body):
        here = attrs.evolve(place, span=_header(node), names=place.names or (() if place.inside else _bound(node)))
        if _is_left_alone(node, index, owner):
            continue
        yield from _statement(body, index, node, here)
        if index + 1 < len(body) and _can_swap(node, body[index + 1]):
            both = (node.lineno, body[index + 1].end_lineno or body[index + 1].lineno)
            after = f"{ast.unparse(body[index + 1])}; {ast.unparse(node)}"
            yield Edit("swap", node, ast.unparse(node), after, here, _swapping(body, index), both)


def _swapping(body: list[ast.stmt], index: int) -> Apply:
    def apply() -> None:
        body[index], body[index + 1] = body[index + 1], body[index]

    return apply


def _putting(target: Any, key: Any, value: Any) -> Apply:
    """An edit that puts a node into a field, or into a list at an index."""

    def apply() -> None:
        if isinstance(target, list):
            target[key] = value
        else:
            setattr(target, key, value)

    return apply


def _header(node: ast.stmt) -> tuple[int, int]:
    """The lines of a simple statement, or those of a compound one before its body."""
    body = getattr(node, "body", None)
    if isinstance(body, list) and body:
        return node.lineno, max(node.lineno, body[0].lineno - 1)
    return node.lineno, node.end_lineno or node.lineno


def _bound(node: ast.stmt) -> tuple[str, ...]:
    """The names that a statement at import binds."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return (node.name,)
    return tuple(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))


def _is_left_alone(node: ast.stmt, index: int, owner: ast.AST) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Pass | ast.Assert | ast.Global | ast.Nonlocal):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True  # a docstring, or `...`
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return True
    if isinstance(node, ast.Assign | ast.AnnAssign) and NAMED_LISTS & {*_bound(node)}:
        return True
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name == "__repr__" or any("overload" in ast.unparse(each) for each in node.decorator_list)
    return False


def _statement(body: list[ast.stmt], index: int, node: ast.stmt, place: Place) -> Iterator[Edit]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from _function(node, place)
            return
        case ast.ClassDef():
            yield from _block(node, "body", place.into(node.name))
            return
        case ast.If() | ast.While():
            yield from _test(node, place)
        case ast.With() | ast.AsyncWith() if all(item.optional_vars is None for item in node.items):
            left = [_at(ast.Expr(item.context_expr), node) for item in node.items]
            without = _at(ast.If(ast.Constant(True), node.body, left), node)
            yield Edit("drop with", node, _first_line(node), "its body alone", place, _putting(body, index, without))
        case ast.Try():
            yield from _try(node, place)
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            nothing = _at(ast.IfExp(ast.Constant(True), ast.Constant(None), value), value)
            yield Edit("return None", node, ast.unparse(node), "return None", place, _putting(node, "value", nothing))
        case ast.Break() | ast.Continue():
            other = ast.Continue() if isinstance(node, ast.Break) else ast.Break()
            after = ast.unparse(other)
            yield Edit("loop", node, ast.unparse(node), after, place, _putting(body, index, _at(other, node)))
    if place.inside and _can_drop(node, len(body) == index + 1):
        operator = _what_is_dropped(node)
        yield Edit(operator, node, ast.unparse(node), "pass", place, _putting(body, index, _never([node])))
    yield from _parts(node, place)


def _at(node: Any, like: ast.AST) -> Any:
    return ast.copy_location(node, like)


def _never(body: list[ast.stmt]) -> ast.stmt:
    """
    What does nothing, with the names of what it replaces.

    So a function has the same free variables as before, and is still a generator; else it could not be swapped.
    """
    never: ast.stmt = _at(ast.If(ast.Constant(False), body, []), body[0])
    return never


def _first_line(node: ast.AST) -> str:
    return ast.unparse(node).partition("\n")[0]


def _function(node: Function, place: Place) -> Iterator[Edit]:
    for default in [*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)]:
        bodies = attrs.evolve(place, span=(node.lineno, node.end_lineno or node.lineno))
        yield from _expression(node.args, _field_of(node.args, default), default, bodies)
    inner = attrs.evolve(place.into(node.name), inside=True, names=())
    docstring = ast.get_docstring(node, clean=False) is not None
    rest = node.body[docstring:]
    gives = any(isinstance(each, ast.Yield | ast.YieldFrom | ast.Return) for each in ast.walk(node))
    if len(rest) > 1 and not gives:
        first = rest[0]
        at = attrs.evolve(inner, span=_header(first))
        put = _putting(node.body, int(docstring), _at(ast.If(ast.Constant(True), [ast.Return()], [first]), first))
        yield Edit("return early", first, f"the body of {node.name}", "return", at, put)
    yield from _block(node, "body", inner)


def _test(node: ast.If | ast.While, place: Place) -> Iterator[Edit]:
    if isinstance(node, ast.If) and node.orelse:
        first, last = node.orelse[0], node.orelse[-1]
        span = (first.lineno, last.end_lineno or last.lineno)
        before = f"else of `if {ast.unparse(node.test)}`"
        yield Edit("drop else", first, before, "pass", place, _putting(node, "orelse", [_never(node.orelse)]), span)


def _try(node: ast.Try, place: Place) -> Iterator[Edit]:
    for handler in node.handlers:
        if not (len(handler.body) == 1 and isinstance(handler.body[0], ast.Raise) and handler.body[0].exc is None):
            span = (handler.lineno, handler.end_lineno or handler.lineno)
            before = f"{_first_line(handler)} {ast.unparse(handler.body[0])}"
            again = [_at(ast.Raise(), handler.body[0]), _never(handler.body)]
            yield Edit("raise again", handler, before, "raise", place, _putting(handler, "body", again), span)
    if node.finalbody:
        first = node.finalbody[0]
        span = (first.lineno, node.finalbody[-1].end_lineno or first.lineno)
        empty = [_never(node.finalbody)]
        before = f"finally: {ast.unparse(first)}"
        yield Edit("drop finally", first, before, "finally: pass", place, _putting(node, "finalbody", empty), span)


def _can_drop(node: ast.stmt, is_last: bool) -> bool:
    match node:
        case ast.Expr() | ast.Raise() | ast.Delete() | ast.AugAssign() | ast.Break() | ast.Continue():
            return not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Yield)
        case ast.Assign(targets=targets):  # without the name of a variable, everything after it fails
            return any(isinstance(target, ast.Attribute | ast.Subscript) for target in targets)
        case ast.AnnAssign(target=target):
            return node.value is not None and isinstance(target, ast.Attribute | ast.Subscript)
        case ast.Return():
            return not is_last or node.value is None
    return False


def _what_is_dropped(node: ast.stmt) -> str:
    if not isinstance(node, ast.Expr):
        return "drop statement"
    return "drop checkpoint" if "checkpoint" in ast.unparse(node.value) else "drop call"


def _can_swap(first: ast.stmt, second: ast.stmt) -> bool:
    """
    If both do something, one of them more than to bind a value, and the second one reads no variable of the first.

    Two bindings in another order are the same program, but for what is awaited in them.
    """
    simple = ast.Expr | ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete
    if not isinstance(first, simple) or not isinstance(second, simple) or not (_acts(first) and _acts(second)):
        return False
    if not any(isinstance(each, ast.Expr | ast.Delete) or _awaits(each) for each in (first, second)):
        return False
    bound = {*_bound(first)}
    return not any(isinstance(n, ast.Name) and n.id in bound for n in ast.walk(second))


def _awaits(node: ast.stmt) -> bool:
    return any(isinstance(n, ast.Await | ast.Yield) for n in ast.walk(node))


def _acts(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return False
    kinds = ast.Await | ast.Call | ast.Yield | ast.Delete
    stores = (
        isinstance(n, ast.Attribute | ast.Subscript) and isinstance(n.ctx, ast.Store | ast.Del) for n in ast.walk(node)
    )
    return any(isinstance(n, kinds) for n in ast.walk(node)) or any(stores)


# --- expressions ------------------------------------------------------------------------------------------------------


def _field_of(owner: ast.AST, child: ast.AST) -> tuple[str, int | None]:
    for field, value in ast.iter_fields(owner):
        if value is child:
            return field, None
        if isinstance(value, list):
            for index, each in enumerate(value):
                if each is child:
                    return field, index
    raise LookupError


def _parts(node: ast.AST, place: Place) -> Iterator[Edit]:
    """The edits of everything in a node: blocks of statements, and expressions."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            yield from _block(node, field, place)
        elif isinstance(value, list):
            for index, each in enumerate(value):
                if isinstance(each, ast.AST):
                    yield from _expression(node, (field, index), each, place)
        elif isinstance(value, ast.AST):
            yield from _expression(node, (field, None), value, place)


def _expression(owner: ast.AST, at: tuple[str, int | None], node: ast.AST, place: Place) -> Iterator[Edit]:
    target, key = (owner, at[0]) if at[1] is None else (getattr(owner, at[0]), at[1])

    def edit(operator: str, new: ast.expr) -> Edit:
        return Edit(
            operator, node, ast.unparse(node), ast.unparse(new), place, _putting(target, key, _at(new, node))
        )

    if isinstance(node, ast.JoinedStr):
        return
    if isinstance(node, ast.expr) and _is_condition(owner, at):
        if isinstance(node, ast.Constant):
            return  # a loop without a condition
        yield edit("negate", _negated(node))
    match node:
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            for index, op in enumerate(ops):
                other = [*ops[:index], COMPARED[type(op)](), *ops[index + 1 :]]
                yield edit("compare", ast.Compare(left, other, comparators))
        case ast.BoolOp(op=op, values=values):
            yield edit("and/or", ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values))
            for index in range(len(values)):
                rest = [*values[:index], *values[index + 1 :]]
                yield edit("drop operand", rest[0] if len(rest) == 1 else ast.BoolOp(op, rest))
        case ast.UnaryOp(op=ast.Not(), operand=operand) if not _is_condition(owner, at):
            yield edit("drop not", operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in COUNTED and not _is_text(left, right):
            if isinstance(op, ast.BitOr) and not place.inside:
                return  # a type
            yield edit("arithmetic", ast.BinOp(left, COUNTED[type(op)](), right))
        case ast.Constant(value=value):
            if (new := _other_constant(owner, value)) is not None:
                shield = isinstance(owner, ast.keyword) and owner.arg == "shield"
                yield edit("drop shield" if shield else "constant", ast.Constant(new))
            return
        case ast.Call(func=ast.Name(id=name) as func, args=args, keywords=keywords) if name in TURNED:
            yield edit("min/max", ast.Call(_at(ast.Name(TURNED[name], ast.Load()), func), args, keywords))
        case ast.Lambda(body=body):
            # A function of its own only if it is made when a function runs: the lambdas of a class are swapped anew.
            span = (node.lineno, node.end_lineno or node.lineno)
            inner = attrs.evolve(place, span=span if place.inside else place.span)
            yield from _expression(node, ("body", None), body, inner)
            return
        case ast.Subscript(value=ast.Name(id="Literal")):
            return
        case ast.Call(func=func, args=[_, *_]) if ast.unparse(func).rpartition(".")[2] in NAMERS:
            for index, each in enumerate(node.args[1:], 1):
                yield from _expression(node, ("args", index), each, place)
            return
    yield from _parts(node, place)


def _is_condition(owner: ast.AST, at: tuple[str, int | None]) -> bool:
    if isinstance(owner, ast.If | ast.While | ast.IfExp):
        return at[0] == "test"
    if isinstance(owner, ast.match_case):
        return at[0] == "guard"
    return isinstance(owner, ast.comprehension) and at[0] == "ifs"


def _negated(node: ast.expr) -> ast.expr:
    match node:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return operand
        case ast.Compare(left=left, ops=[op], comparators=comparators) if not isinstance(op, ORDERED):
            return ast.Compare(left, [COMPARED[type(op)]()], comparators)
    return ast.UnaryOp(ast.Not(), node)


def _is_text(*nodes: ast.expr) -> bool:
    return any(
        isinstance(n, ast.JoinedStr) or (isinstance(n, ast.Constant) and isinstance(n.value, str)) for n in nodes
    )


def _other_constant(owner: ast.AST, value: Any) -> Any:
    """Another value for a constant; None if it is left alone."""
    if isinstance(owner, ast.keyword) and owner.arg in ("repr", "doc"):
        return None
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str() if " " not in value and "\n" not in value:
            return value + "~"
        case bytes():
            return value + b"~"
    return None
