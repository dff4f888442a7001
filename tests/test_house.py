"""The rules of the house, read off the source files: who may import whom, and what every chapter holds."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "numpy_attention"
FILES = sorted(PACKAGE.rglob("*.py"))
PUBLIC = importlib.import_module("numpy_attention.ops").__all__
CHAPTERS = [path for path in sorted((PACKAGE / "ops").glob("*.py")) if path.name != "__init__.py"]

# From the ground up: a file may import from its own floor and from those below.
STOREYS = [
    "errors backend gradcheck", "blocks files plots", "ops training", "layers", "models", "runs pretrained catalogue",
    "tasks gallery", "grade", "cli", "__main__ __init__",
]
FLOORS = {room: floor for floor, rooms in enumerate(STOREYS) for room in rooms.split()}
EXTRAS = {
    "cupy", "hypothesis", "matplotlib", "mpi4py", "safetensors", "threadpoolctl", "tqdm",
}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imported_modules(path: Path) -> list[tuple[str, bool]]:
    """Every module that a file imports, by its absolute name, and whether that happens when the file is imported."""
    found = []
    tree = ast.parse(path.read_text())
    later = {id(node) for outer in ast.walk(tree) if runs_later(outer) for node in ast.walk(outer)}
    package = list(path.relative_to(ROOT).parent.parts)
    for node in ast.walk(tree):
        at_top = id(node) not in later
        if isinstance(node, ast.Import):
            found += [(alias.name, at_top) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found += [(resolve(module, alias.name), at_top) for alias in node.names]
    return found


def runs_later(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    return isinstance(node, (ast.FunctionDef, ast.Lambda))


def resolve(module: str, name: str) -> str:
    """`from numpy_attention.ops import linear` imports the module linear; `from math import sqrt` imports math."""
    inner = ROOT.joinpath(*module.split("."), name)
    return f"{module}.{name}" if inner.is_dir() or inner.with_suffix(".py").exists() else module


def floor_of(module: str) -> int:
    parts = module.split(".")
    return FLOORS[parts[1] if len(parts) > 1 else "__init__"]


def ours(path: Path, only_at_top: bool = False) -> list[str]:
    found = imported_modules(path)
    return [name for name, at_top in found if name.split(".")[0] == "numpy_attention" and (at_top or not only_at_top)]


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_run_one_way(path: Path) -> None:
    floor = FLOORS[path.relative_to(PACKAGE).with_suffix("").parts[0]]
    for module in ours(path):
        assert floor_of(module) <= floor, f"{name_of(path)} imports {module}, which stands above it"


@pytest.mark.parametrize("path", [path for path in FILES if path.parent.name == "gradcheck"], ids=name_of)
def test_the_checker_knows_nothing_of_this_package(path: Path) -> None:
    for module in ours(path):
        assert module.startswith("numpy_attention.gradcheck"), f"{name_of(path)} imports {module}"


def test_no_two_files_import_each_other() -> None:
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in FILES}
    imports = {name: [m for m in ours(path, only_at_top=True) if m in names] for name, path in names.items()}

    def walk(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, f"a ring of imports: {' -> '.join([*above, name])}"
        if name not in done:
            for module in imports[name]:
                walk(module, (*above, name))
            done.add(name)

    done: set[str] = set()
    for name in names:
        walk(name, ())


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_numpy_is_the_only_dependency_at_the_top_of_a_file(path: Path) -> None:
    at_the_top = sys.stdlib_module_names | {"numpy", "numpy_attention"}
    if path == PACKAGE / "gradcheck" / "strategies.py":
        at_the_top |= {"hypothesis"}
    for module, at_top in imported_modules(path):
        root = module.split(".")[0]
        assert root in (at_the_top if at_top else at_the_top | EXTRAS), f"{name_of(path)} imports {module}"
        assert root != "cupy" or path == PACKAGE / "backend.py", "only backend.py knows CuPy's name"
    numpy_lines = re.findall(r"^\s*(?:import|from) numpy\b(?!_).*$", path.read_text(), re.MULTILINE)
    assert {line.strip() for line in numpy_lines} <= {"import numpy as np"}


def test_the_package_and_its_command_line_import_with_numpy_alone() -> None:
    code = (
        "import sys, importlib.abc\n"
        "class Refuse(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] in {sorted(EXTRAS)!r}: raise ImportError(name + ' is not a dependency')\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "import numpy_attention, numpy_attention.cli, numpy_attention.catalogue.ops\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_chapters_are_numbered_in_order() -> None:
    numbers = []
    for path in CHAPTERS:
        docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
        heading = re.match(r"Chapter (\d+)(, appendix)?\. \S", docstring)
        assert heading, f"{name_of(path)} must begin with 'Chapter N. Title', begins {docstring[:40]!r}"
        if not heading[2]:
            numbers.append(int(heading[1]))
    assert sorted(numbers) == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("path", CHAPTERS, ids=name_of)
def test_every_backward_stands_below_its_forward(path: Path) -> None:
    functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    lines = {function.name: function.lineno for function in functions}
    for name, line in lines.items():
        if name.endswith("_backward") and not name.startswith("_"):
            forward = name.removesuffix("_backward")
            assert lines[forward] < line, f"{name} must stand below {forward}"


@pytest.mark.parametrize("path", CHAPTERS, ids=name_of)
def test_every_public_function_says_shapes_raises_and_source(path: Path) -> None:
    for function in ast.parse(path.read_text()).body:
        if not isinstance(function, ast.FunctionDef) or function.name not in PUBLIC:
            continue
        docstring = ast.get_docstring(function) or ""
        if function.name.endswith("_backward"):
            assert docstring, f"{function.name} has no docstring"
            continue
        for part in ("Shapes", "Raises", "Source"):
            assert re.search(rf"^{part}\b", docstring, re.MULTILINE), f"{function.name}: no '{part}' in its docstring"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_fits_in_the_head(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 260
    assert not re.search(r"#\s*(noqa|type:\s*ignore|TODO|FIXME)", text)


def test_the_top_level_holds_nothing_unexpected() -> None:
    made_by_tools = {"build", "dist", "runs", "__pycache__"}
    names = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")} - made_by_tools
    files = {"pyproject.toml", "README.md", "LICENSE", "CITATION.cff"}
    folders = {"numpy_attention", "tests", "tutorials", "docs"}
    assert {name for name in names if not name.endswith(".egg-info")} <= files | folders


def test_one_version_everywhere() -> None:
    import numpy_attention as na

    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert na.__version__ == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()


@pytest.mark.parametrize("marker", ["train command", "test command"])
def test_the_readme_holds_each_command_as_one_line(marker: str) -> None:
    block = re.search(rf"<!-- {marker} -->\s*```\w*\n([^\n]+)\n```", (ROOT / "README.md").read_text())
    assert block, f"README.md must have <!-- {marker} --> above a code block of one line"
    assert block[1].startswith("python3 -m venv .venv && ")


def test_the_readme_example_runs_and_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    block = re.search(r"<!-- example -->\s*```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block
    assert block[1].count("\n") <= 25, "the idea in twenty lines"
    exec(compile(block[1], "README.md", "exec"), {})
    said = capsys.readouterr().out
    assert said.startswith("gradcheck softmax: right")
    assert "dx wrong" in said
