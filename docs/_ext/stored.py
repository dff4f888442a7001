"""Shows the stored outputs of the real models on the pages of the tutorials.

Not every machine has the real models, so the cells of a tutorial run with a small stand-in at every build. But the
prose speaks about the real models. So each cell with the tag `real-model` shows its stored output instead:
`docs/stored/TUTORIAL/NUMBER-HASH.txt`, and `.svg` if the cell draws a picture. The author of a tutorial tags each cell
whose output depends on a real model. `python -m docs.real_outputs TUTORIAL` stores these files. The hash is of the code
of the cell and of all cells before it, without comments and empty lines. So an output of older code has another name,
and the build stops.
"""

import hashlib
import io
import itertools
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from asserts import CELL, fold_asserts

TAG = "real-model"
STORED = Path(__file__).parents[1] / "stored"
ALT = re.compile(r'alt: ("(?:[^"\\]|\\.)*")')


def stored_names(text: str) -> dict[int, str]:
    """For each cell of a tutorial with the tag: the name of its stored output."""
    code = hashlib.sha256()
    names = {}
    for n, cell in enumerate(CELL.finditer(text), start=1):
        code.update(_without_comments(cell["code"]).encode())
        if TAG in cell["options"]:
            names[n] = f"{n:02d}-{code.hexdigest()[:10]}"
    return names


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
        start, _, rest = folded.replace(TAG, f"{TAG}, remove-output", 1).partition("\n```")
        return f"{start}\n```\n" + "\n".join(_output(name, names[n], cell["options"])) + rest

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
