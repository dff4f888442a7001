"""Asserts of a tutorial, folded on its page: they check the lesson and are no part of it.

In the source they stand where they belong, and a notebook shows them there. On the page each cell's asserts follow it
in a cell of their own, closed until somebody opens it.
"""

import ast
import re

CELL = re.compile(
    r"^```\{code-cell\}(?P<kind>[^\n]*)\n(?P<options>(?::[^\n]*\n)*\n?)(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)


def fold_asserts(text: str) -> str:
    """The same tutorial with the asserts of every cell in a closed cell behind it."""
    return CELL.sub(_folded, text)


def _folded(cell: re.Match[str]) -> str:
    lines = cell["code"].split("\n")
    body = ast.parse(cell["code"]).body
    later: set[str] = set()
    lifted = []
    for node in reversed(body):
        if isinstance(node, ast.Assert) and not later & _names(node):
            lifted.append(node)
        else:
            later |= _assigned(node)
    if not lifted or len(lifted) == len(body):
        return cell[0]
    asserts: list[str] = []
    for node in lifted:  # from the last to the first
        start = node.lineno - 1
        while start and lines[start - 1].startswith("#"):  # a comment above it goes with it
            start -= 1
        asserts[:0] = lines[start : node.end_lineno]
        del lines[start : node.end_lineno]
    code = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")
    fence, count = f"```{{code-cell}}{cell['kind']}\n", len(lifted)
    told = "What is asserted here" if count > 1 else "What is asserted here, in one line"
    return (
        f"{fence}{cell['options']}{code}\n```\n\n"
        f"{fence}:tags: [hide-input]\n:mystnb: {{code_prompt_show: \"{told}\", code_prompt_hide: \"{told}\"}}\n\n"
        + "\n".join(asserts) + "\n```"
    )


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _assigned(node: ast.AST) -> set[str]:
    """Names that a statement makes or deletes, or into whose arrays or objects it writes."""
    found = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)}
    for one in ast.walk(node):
        if isinstance(one, (ast.Subscript, ast.Attribute)) and isinstance(one.ctx, ast.Store):
            found |= _names(one)
        if isinstance(one, (ast.FunctionDef, ast.ClassDef)):
            found.add(one.name)
    return found
