"""Shows the stored outputs of the real models on the pages of the tutorials.

Not every machine has the real models, so the cells of a tutorial run with a small stand-in at every build. But the
prose speaks about the real models. So each cell whose output depends on a real model shows its stored output instead:
`docs/stored/TUTORIAL/NUMBER-HASH.txt`, and `.svg` if the cell draws a picture. `python -m docs.real_outputs TUTORIAL`
stores these files. The hash is of the code of the cell and of all cells before it, without comments and empty lines.
So an output of older code has another name, and the build stops.
"""

import ast
import hashlib
import io
import itertools
import re
import symtable
import tokenize
from collections.abc import Iterator
from pathlib import Path

from asserts import CELL, fold_asserts

STORED = Path(__file__).parents[1] / "stored"
ALT = re.compile(r'alt: ("(?:[^"\\]|\\.)*")')


def stored_names(text: str) -> dict[int, str]:
    """For each cell of a tutorial whose output depends on a real model: the name of its stored output."""
    code = hashlib.sha256()
    names = {}
    depending = cells_depending_on("located", text)
    for n, cell in enumerate(CELL.finditer(text), start=1):
        code.update(_without_comments(cell["code"]).encode())
        if n in depending:
            names[n] = f"{n:02d}-{code.hexdigest()[:10]}"
    return names


def cells_depending_on(source: str, text: str) -> set[int]:
    """The numbers of the cells that use the result of the function `source`, directly or through other names."""
    found: set[int] = set()
    depending = {source}
    imported: set[str] = set()
    for n, cell in enumerate(CELL.finditer(text), start=1):
        for node in ast.parse(cell["code"]).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                imported |= {(one.asname or one.name).partition(".")[0] for one in node.names}
                continue
            used, assigned = _globals(node)
            attributes = {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}
            if not depending & (used | (attributes & {source})):
                if not isinstance(node, ast.If | ast.While):  # new values, without the real model
                    depending -= assigned - {source}
                continue
            depending |= assigned
            if not isinstance(node, ast.Assert | ast.FunctionDef | ast.ClassDef):
                depending |= (_changed(node) & used) - imported
                found.add(n)
    return found


def command_for(name: str) -> str:
    """The command that stores the outputs of a tutorial."""
    return f"python -m docs.real_outputs {name}"


def misfit(text: str, name: str) -> str:
    """One message if the stored outputs of a tutorial are not the outputs of its cells, otherwise an empty text."""
    expected = set(stored_names(text).values())
    files = {path.stem for path in (STORED / name).glob("*")}
    if files == expected:
        return ""
    cells = ", ".join(str(int(one[:2])) for one in sorted(expected - files))
    what = f"cell {cells}: no output of this code is stored" if cells else "a stored output has no cell"
    return f"tutorials/{name}.md: {what}; run the tutorial with the real models: {command_for(name)}"


def show_stored(text: str, name: str) -> str:
    """The tutorial as its page shows it: with folded asserts, and with the stored outputs of the real models."""
    names, numbers = stored_names(text), itertools.count(1)

    def turn(cell: re.Match[str]) -> str:
        n, folded = next(numbers), fold_asserts(cell[0])
        if n not in names:
            return folded
        start, _, rest = folded.partition("\n```")
        fence, _, start = start.partition("\n")
        tags = ":tags: [remove-output"
        start = start.replace(":tags: [", f"{tags}, ", 1) if ":tags: [" in cell["options"] else (
            f"{tags}]\n{start}" if cell["options"] else f"{tags}]\n\n{start}")
        return f"{fence}\n{start}\n```\n" + "\n".join(_output(name, names[n], cell["options"])) + rest

    return CELL.sub(turn, text)


def _output(name: str, file: str, options: str) -> Iterator[str]:
    """The lines of a page that show a stored output; the page has no such lines if the cell wrote nothing."""
    written = (STORED / name / f"{file}.txt").read_text("utf-8")
    picture = (STORED / name / f"{file}.svg").exists()
    if not written and not picture:
        return
    yield from ("", '<div class="cell container"><div class="cell_output container">', "")  # as MyST-NB's outputs
    if written:
        yield from (f"```{{literalinclude}} /stored/{name}/{file}.txt", ":language: none",
                    ":class: output stream", "```", "")
    if picture:
        alt = ALT.search(options)
        yield from (f"```{{image}} /stored/{name}/{file}.svg", *([f":alt: {alt[1]}"] if alt else []), "```", "")
    yield from ('<p class="real-model">from a run with the real model</p>', "</div></div>", "")


def _without_comments(code: str) -> str:
    lines = code.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _globals(node: ast.stmt) -> tuple[set[str], set[str]]:
    """The global names that a statement uses, also in functions, and the global names that it assigns."""
    top = symtable.symtable(ast.unparse(node), "cell", "exec")

    def used(table: symtable.SymbolTable) -> set[str]:
        names = [one for one in table.get_symbols() if one.is_referenced() and (table is top or one.is_global())]
        return {one.get_name() for one in names}.union(*map(used, table.get_children()))

    assigned = {one.get_name() for one in top.get_symbols() if one.is_assigned()}
    first: set[str | None] = set()  # assigned by the statement before it uses them
    for one in ast.walk(node):
        if isinstance(one, ast.For):
            first |= {part.id for part in ast.walk(one.target) if isinstance(part, ast.Name)}
        elif isinstance(one, ast.ExceptHandler):
            first.add(one.name)
    return used(top) - first, assigned


def _changed(node: ast.stmt) -> set[str]:
    """The names of objects that a statement changes: `name[...] =`, `name.attribute =`, a line `name.method(...)`."""
    targets: list[ast.expr] = []
    for one in ast.walk(node):
        if isinstance(one, ast.Subscript | ast.Attribute) and isinstance(one.ctx, ast.Store):
            targets.append(one)
        elif isinstance(one, ast.Expr) and isinstance(one.value, ast.Call):
            targets += [one.value.func] * isinstance(one.value.func, ast.Attribute)
    found = set()
    for target in targets:
        while isinstance(target, ast.Subscript | ast.Attribute):
            target = target.value
        if isinstance(target, ast.Name):
            found.add(target.id)
    return found
