"""Store what the tutorials print and draw with the real models: python -m docs.real_outputs [TUTORIAL...]

Without a name: every tutorial whose stored outputs do not fit its code. With `--check FOLDER`, nothing runs. Instead,
the stored outputs are compared with the notebooks in this folder. A build of the site with the real models leaves
these notebooks in build/jupyter_execute/tutorials. See docs/_ext/stored.py.
"""

import argparse
import ast
import contextlib
import difflib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs" / "_ext"))

from asserts import CELL, TITLE  # noqa: E402
from stored import STORED, cells_depending_on, misfit, stored_names  # noqa: E402

PART = re.compile(r"[^\W\d_]+|\d[\d,]*(?:\.\d+)?(?:e[-+]\d+)?")


def tutorials() -> list[Path]:
    """The tutorials that use a real model."""
    return [path for path in sorted((ROOT / "tutorials").glob("[0-9]*.md")) if stored_names(path.read_text("utf-8"))]


def store(path: Path) -> None:
    """Run a tutorial from top to bottom, and store the outputs of the cells that depend on a real model."""
    from numpy_attention.app.plots import save

    text = path.read_text("utf-8")
    names, namespace = stored_names(text), {"__name__": "__main__"}
    folder = STORED / path.stem
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for n, cell in enumerate(CELL.finditer(text), start=1):
        written = io.StringIO()
        with contextlib.redirect_stdout(written):
            shown = run_cell(cell["code"], namespace, f"{path.name}, cell {n}")
            if shown is not None and not hasattr(shown, "savefig"):
                print(repr(shown))
        if n in names:
            (folder / f"{names[n]}.txt").write_text(written.getvalue(), "utf-8")
            if hasattr(shown, "savefig"):
                save(shown, folder / f"{names[n]}.svg")
            print(f"{path.stem}/{names[n]}", flush=True)


def run_cell(code: str, namespace: dict[str, object], name: str) -> object:
    """Run a cell like a notebook, and return the value of its last line."""
    tree = ast.parse(code, filename=name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), namespace)
    return eval(compile(ast.Expression(last.value), name, "eval"), namespace) if last else None


def differences(path: Path, notebook: Path) -> list[str]:
    """Where an executed notebook has other outputs than the stored outputs."""
    text = path.read_text("utf-8")
    timed = cells_depending_on("perf_counter", text)
    cells = [one for one in json.loads(notebook.read_text("utf-8"))["cells"] if one["cell_type"] == "code"]
    cells = [one for one in cells if one["metadata"].get("mystnb", {}).get("code_prompt_show") != TITLE]
    found = []
    for n, name in stored_names(text).items():
        stored = (STORED / path.stem / f"{name}.txt").read_text("utf-8")
        if not alike(stored, text_of(cells[n - 1]), numbers=n not in timed):
            found.append(f"{path.name}, cell {n} now prints\n{text_of(cells[n - 1])}\ninstead of the stored\n{stored}")
    return found


def text_of(cell: dict) -> str:
    """What a cell of an executed notebook has printed, and the value of its last line if it is not a picture."""
    streams = ["".join(one["text"]) for one in cell["outputs"] if one.get("name") == "stdout"]
    values = [one["data"] for one in cell["outputs"] if one["output_type"] == "execute_result"]
    shown = ["".join(value["text/plain"]) for value in values if "image/png" not in value]
    return "\n".join([*streams[:1], *shown])  # MyST-NB copies all other streams to the end of the first


def alike(a: str, b: str, numbers: bool) -> bool:
    """Whether most words and numbers are equal: other rounding may change some digits, or one answer of a model.

    The asserts in the cells check each number that the prose mentions.
    """
    return difflib.SequenceMatcher(None, parts(a, numbers), parts(b, numbers), autojunk=False).ratio() > 0.75


def parts(text: str, numbers: bool) -> list[str]:
    """The words of a text and, with `numbers`, its numbers with two significant digits."""
    found = [match[0] for match in PART.finditer(text)]
    return [one if one.isalpha() else f"{float(one.replace(',', '')):.1e}" for one in found if numbers or one.isalpha()]


def main() -> int:
    """Store the outputs, each tutorial in its own process; or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tutorials", nargs="*", metavar="TUTORIAL", help="such as 17 or 17-a-real-language-model")
    parser.add_argument("--check", type=Path, metavar="FOLDER", help="compare the notebooks in this folder")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    known = tutorials()
    chosen = [path for path in known if path.stem.startswith(tuple(options.tutorials))]
    if options.tutorials and not chosen:
        parser.error(f"TUTORIAL must be one of {', '.join(path.stem for path in known)}, got {options.tutorials[0]}")
    if options.check:
        wrong = [line for path in known for line in differences(path, options.check / f"{path.stem}.ipynb")]
        print("\n".join(wrong) or f"{len(known)} tutorials: the outputs agree with the stored outputs")
        return bool(wrong)
    if options.here:
        store(*chosen)
        return 0
    if not options.tutorials:
        chosen = [path for path in known if misfit(path.read_text("utf-8"), path.stem)]
        for folder in {*STORED.glob("*")} - {STORED / path.stem for path in known}:
            shutil.rmtree(folder)
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "Agg",
                   "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    for path in chosen:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, Path(__file__).resolve(), "--here", path.stem]
            if subprocess.run(command, cwd=folder, env=environment, check=False).returncode:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
