"""Store what the tutorials print and draw with the real models: python -m docs.real_outputs [TUTORIAL...]

Without a name: every tutorial whose stored outputs do not fit its code. `git diff docs/stored` then shows what changed.
See docs/_ext/stored.py.
"""

import argparse
import ast
import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs" / "_ext"))

from asserts import CELL  # noqa: E402
from stored import STORED, misfit, stored_names  # noqa: E402


def tutorials() -> list[Path]:
    """The tutorials that use a real model."""
    return [path for path in sorted((ROOT / "tutorials").glob("[0-9]*.md")) if stored_names(path.read_text("utf-8"))]


def store(path: Path) -> None:
    """Run a tutorial from top to bottom, and store the outputs of the cells with the tag."""
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


def main() -> int:
    """Store the outputs, each tutorial in its own process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tutorials", nargs="*", metavar="TUTORIAL", help="such as 17 or 17-a-real-language-model")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    known = tutorials()
    chosen = [path for path in known if path.stem.startswith(tuple(options.tutorials))]
    if options.tutorials and not chosen:
        parser.error(f"TUTORIAL must be one of {', '.join(path.stem for path in known)}, got {options.tutorials[0]}")
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
