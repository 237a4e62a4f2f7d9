"""What a module's text says to Python, read once for all who ask: a run asks four times."""

from __future__ import annotations

import ast
import functools


@functools.lru_cache(8)
def module_tree(text: bytes) -> ast.Module:
    """The tree of a text. It is shared: whoever changes one makes its own.

    Raises:
        SyntaxError: It is no Python.
        ValueError: It has a null byte.
        RecursionError: It is nested too deep.
    """
    return ast.parse(text)
