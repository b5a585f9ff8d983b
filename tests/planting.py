"""
Changing statements of a module, found by their syntax tree.

A change names a function (`minirun.sessions._calls:call_changes`) and has two pieces of code: statements of that
function, and the statements that replace them. Comments, layout and the names of local variables do not matter for
where the statements are found. They must occur exactly once, otherwise the change is an error that names the function.

`...` stands for any code and stays as it is: as the body of a compound statement for all of its statements, elsewhere
for one expression. The first `...` of the replacement stands for the code of the first `...` that was found, and so on.

    if call is None: ...                    __slots__ = ...
    if call is None or call.is_open: ...    __slots__ = (*..., "_paths")
"""

from __future__ import annotations

import ast
import builtins
import copy
from collections.abc import Iterator, Sequence
from textwrap import dedent

import attrs

__all__ = ["Change", "changed"]

FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
# Fields that contain the name of a variable, and fields without a meaning for the code.
LOCAL_NAMES = {(ast.Name, "id"), (ast.arg, "arg"), (ast.ExceptHandler, "name"), (ast.MatchAs, "name")}
IGNORED = ("ctx", "kind", "type_comment")
BUILTINS = frozenset(dir(builtins)) | {"__name__", "__file__", "__package__", "__class__"}


@attrs.frozen
class Change:
    """Statements *old* within a function, class or assignment of a module, and the statements that replace them."""

    module: str
    within: str
    old: str
    new: str

    @property
    def where(self) -> str:
        """The address in messages."""
        return f"{self.module}:{self.within}"


@attrs.define
class Match:
    """One place where the old statements of a change were found."""

    block: list[ast.stmt]
    start: int
    size: int
    captured: list[object] = attrs.field(factory=list)
    """What each `...` was found for: a list of statements, or an expression."""
    names: dict[str, str] = attrs.field(factory=dict)
    """The present name of each local variable that had another name."""

    @property
    def statements(self) -> list[ast.stmt]:
        """The statements that were found."""
        return self.block[self.start : self.start + self.size]


@attrs.frozen
class Scope:
    """A function, class or assignment, the block that contains it, and the names that code in it can use."""

    node: ast.stmt
    block: list[ast.stmt]
    local: frozenset[str]
    visible: frozenset[str]


def changed(text: str, changes: Sequence[Change]) -> str:
    """
    Return the text of a module with all changes. Each is looked for in the module as it was.

    Raises:
        ValueError: A change does not fit. The message names its function and statements.
    """
    tree = ast.parse(text)
    found = [(change, _match(tree, change)) for change in changes]
    taken: set[int] = set()
    for change, (match, _) in found:
        own = {id(node) for statement in match.statements for node in _walk_without(statement, match.captured)}
        if own & taken:
            msg = f"two changes replace the same statement of {change.where}"
            raise ValueError(msg)
        taken |= own
    bound = {name for change in changes for node in parsed_code(change.new, change) for name in _bound(node)}
    edits = [(match, match.statements, _replacement(change, match, scope, bound)) for change, (match, scope) in found]
    for match, old, new in edits:
        start = _index(match.block, old[0])
        match.block[start : start + match.size] = new
        if not match.block:
            match.block.append(ast.Pass())
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def parsed_code(code: str, change: Change) -> list[ast.stmt]:
    """
    Parse the old or new statements of a change.

    Raises:
        ValueError: They are not whole statements.
    """
    try:
        return ast.parse(dedent(code)).body
    except SyntaxError as error:
        msg = f"expected whole statements for {change.where} (`...` can be a body), found {error}:\n{code}"
        raise ValueError(msg) from error


# --- scopes -----------------------------------------------------------------------------------------------------------


def _scopes(tree: ast.Module, within: str) -> Iterator[Scope]:
    """Yield everything in the module with this qualified name."""
    outside = frozenset(_bound_outside_functions(tree)) | BUILTINS
    yield from _named(tree.body, within.split("."), frozenset(), outside)


def _named(
    block: list[ast.stmt], names: Sequence[str], local: frozenset[str], outside: frozenset[str]
) -> Iterator[Scope]:
    for node in block:
        if isinstance(node, FUNCTION | ast.ClassDef) and node.name == names[0]:
            inside = local | frozenset(_bound(node)) if local or isinstance(node, FUNCTION) else local
            if len(names) > 1:
                yield from _named(node.body, names[1:], inside, outside)
            else:
                yield Scope(node, block, inside, inside | outside)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and len(names) == 1:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if names[0] in [target.id for target in targets if isinstance(target, ast.Name)]:
                yield Scope(node, block, local, local | outside)
        elif not isinstance(node, FUNCTION | ast.ClassDef):
            for inner in _blocks(node):
                yield from _named(inner, names, local, outside)


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the blocks of a node, without the blocks of nested statements."""
    for field in ("body", "orelse", "finalbody"):
        block = getattr(node, field, None)
        if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
            yield block
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield part.body


def _bound(tree: ast.AST) -> Iterator[str]:
    """Yield every name that something in the tree binds."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.alias(name=name, asname=asname):
                yield asname or name.partition(".")[0]
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name
            case ast.MatchMapping(rest=str(name)):
                yield name


def _bound_outside_functions(tree: ast.Module) -> Iterator[str]:
    """Yield the names that all functions of a module can use. Names in its classes are included."""
    bare = copy.deepcopy(tree)
    for node in ast.walk(bare):
        if isinstance(node, FUNCTION):
            node.body, node.args = [], ast.arguments([], [], None, [], [], None, [])
    yield from _bound(bare)


# --- finding ----------------------------------------------------------------------------------------------------------


def _match(tree: ast.Module, change: Change) -> tuple[Match, Scope]:
    """Find the old statements of a change: with the same local names or, if they are nowhere, with other ones."""
    scopes = [*_scopes(tree, change.within)]
    if not scopes:
        msg = f"{change.module} has no `{change.within}` any more: renew or delete this planted bug"
        raise ValueError(msg)
    old = parsed_code(change.old, change)
    if not old:
        msg = f"expected statements of {change.where} that stand before what is added"
        raise ValueError(msg)
    found: list[tuple[Match, Scope]] = []
    for renames in (False, True):
        found = found or [(match, scope) for scope in scopes for match in _matches(old, scope, renames=renames)]
    if len(found) != 1:
        msg = (
            f"expected these statements once in {change.where}, found them {len(found)} times; "
            f"renew or delete this planted bug:\n{dedent(change.old)}"
        )
        raise ValueError(msg)
    return found[0]


def _matches(old: list[ast.stmt], scope: Scope, *, renames: bool) -> Iterator[Match]:
    for block, start in _places(scope):
        match = Match(block, start, len(old))
        if _is_like(old, match.statements, match, scope, renames=renames):
            yield match


def _places(scope: Scope) -> Iterator[tuple[list[ast.stmt], int]]:
    """Yield where statements can begin: the function itself in its block, and each statement inside of it."""
    yield scope.block, _index(scope.block, scope.node)
    waiting = [*_blocks(scope.node)]
    while waiting:
        block = waiting.pop()
        for start, statement in enumerate(block):
            yield block, start
            waiting += _blocks(statement)


def _index(block: list[ast.stmt], statement: ast.stmt) -> int:
    return next(place for place, each in enumerate(block) if each is statement)


def _is_like(old: object, new: object, match: Match, scope: Scope, *, renames: bool) -> bool:
    """Compare two trees, and note what `...` is found for and which local variables have another name."""
    if _is_open(old) and isinstance(new, list | ast.expr):
        match.captured.append(new)
        return True
    if type(old) is not type(new):
        return False
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(
            _is_like(one, other, match, scope, renames=renames) for one, other in zip(old, new, strict=True)
        )
    if not isinstance(old, ast.AST):
        return old == new
    for field in old._fields:
        one, other = getattr(old, field, None), getattr(new, field, None)
        if (type(old), field) in LOCAL_NAMES and isinstance(one, str) and isinstance(other, str):
            if not _is_same_name(one, other, match, scope, renames=renames):
                return False
        elif field not in IGNORED and not _is_like(one, other, match, scope, renames=renames):
            return False
    return True


def _is_open(node: object) -> bool:
    """Return True for `...`, as an expression or as the only statement of a block."""
    if isinstance(node, list) and len(node) == 1 and isinstance(node[0], ast.Expr):
        node = node[0].value
    return isinstance(node, ast.Constant) and node.value is ...


def _is_same_name(old: str, new: str, match: Match, scope: Scope, *, renames: bool) -> bool:
    """A local variable may have another name now, if nothing that the function can use has the old one."""
    if old in match.names or new in match.names.values():
        return match.names.get(old) == new
    if old != new and (not renames or old in scope.visible or new not in scope.local):
        return False
    match.names[old] = new
    return True


def _walk_without(tree: ast.AST, left_out: Sequence[object]) -> Iterator[ast.AST]:
    """Yield the nodes of a tree without the code that a `...` stands for."""
    out = {id(each) for part in left_out for each in (part if isinstance(part, list) else [part])}
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if id(node) not in out and not isinstance(node, ast.expr_context | ast.operator | ast.boolop | ast.cmpop):
            yield node
            waiting += ast.iter_child_nodes(node)


# --- replacing --------------------------------------------------------------------------------------------------------


class _Filling(ast.NodeTransformer):
    """Puts the captured code and the present names of local variables into the new statements."""

    def __init__(self, match: Match) -> None:
        self._captured = iter(match.captured)
        self._names = match.names

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for field in node._fields:
            value = getattr(node, field, None)
            if (type(node), field) in LOCAL_NAMES and isinstance(value, str):
                setattr(node, field, self._names.get(value, value))
            else:
                setattr(node, field, self._filled(value))
        return node

    def _filled(self, value: object) -> object:
        if _is_open(value):
            return next(self._captured)
        if isinstance(value, list):
            return [self._filled(each) for each in value]
        return self.visit(value) if isinstance(value, ast.AST) else value


def _replacement(change: Change, match: Match, scope: Scope, bound: set[str]) -> list[ast.stmt]:
    """Return the new statements. They use only names of the function and names that the changes bind."""
    new = parsed_code(change.new, change)
    used = {node.id for statement in new for node in ast.walk(statement) if isinstance(node, ast.Name)}
    if unknown := sorted(name for name in used - bound if match.names.get(name, name) not in scope.visible):
        msg = f"{change.where} has no variable {', '.join(unknown)} any more: renew or delete this planted bug"
        raise ValueError(msg)
    return [_Filling(match).visit(statement) for statement in new]
