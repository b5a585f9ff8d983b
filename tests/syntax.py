"""The syntax trees of sources, each made and gone through once, for all tests that read them; nobody changes one."""

from __future__ import annotations

import ast
import gc
from functools import cache

__all__ = ["children", "forget", "nodes", "parsed"]


@cache
def parsed(source: str) -> ast.Module:
    """The tree of a module."""
    was_enabled = gc.isenabled()
    gc.disable()  # a tree is half a million objects, of which none is garbage
    try:
        return ast.parse(source)
    finally:
        if was_enabled:
            gc.enable()


def children(node: ast.AST) -> list[ast.AST]:
    """Its nodes, but for those that say no more than whether something is read or written."""
    found: list[ast.AST] = []
    for value in vars(node).values():
        if isinstance(value, list):
            found += [each for each in value if isinstance(each, ast.AST)]
        elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
            found.append(value)
    return found


@cache
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    """The tree, its children, theirs, and so on."""
    found: list[ast.AST] = [tree]
    for node in found:
        found += children(node)
    return tuple(found)


def forget() -> None:
    """Keep none of them any longer."""
    parsed.cache_clear()
    nodes.cache_clear()
