"""Folds the asserts of a tutorial on its page, because they check the tutorial and are not part of its text.

In the source and in the notebook, the asserts keep their places. On the page, the asserts of a cell move to a new
closed cell after it. The reader can open this cell.
"""

import ast
import re

TITLE = "Test of this cell (you can skip it)"
CELL = re.compile(
    r"^```\{code-cell\}(?P<kind>[^\n]*)\n(?P<options>(?::[^\n]*\n)*\n?)(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)


def fold_asserts(text: str) -> str:
    """The tutorial with the asserts of every cell moved to a closed cell after it."""
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
        while start and lines[start - 1].startswith("#"):  # move a comment together with its assert
            start -= 1
        asserts[:0] = lines[start : node.end_lineno]
        del lines[start : node.end_lineno]
    code = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")
    fence = f"```{{code-cell}}{cell['kind']}\n"
    return (
        f"{fence}{cell['options']}{code}\n```\n\n"
        f"{fence}:tags: [hide-input]\n:mystnb: {{code_prompt_show: \"{TITLE}\", code_prompt_hide: \"{TITLE}\"}}\n\n"
        + "\n".join(asserts) + "\n```"
    )


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _assigned(node: ast.AST) -> set[str]:
    """Names that a statement assigns or deletes, and names of arrays or objects that it changes."""
    found = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)}
    for one in ast.walk(node):
        if isinstance(one, (ast.Subscript, ast.Attribute)) and isinstance(one.ctx, ast.Store):
            found |= _names(one)
        if isinstance(one, (ast.FunctionDef, ast.ClassDef)):
            found.add(one.name)
    return found
