"""The rules for the package, checked on the source files: the layers of imports, and the contents of every chapter."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.every import each

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "numpy_attention"
FILES = sorted(PACKAGE.rglob("*.py"))
OPS = ("ops", "recent", "beyond")  # the packages of functions with a backward
PUBLIC = [name for package in OPS for name in importlib.import_module(f"numpy_attention.{package}").__all__]
CHAPTERS = [path for package in OPS for path in sorted((PACKAGE / package).glob("[!_]*.py"))]

# From the bottom up: a file may import from its own layer and from the layers below.
LAYERS = [
    "errors backend shapes gradcheck", "pieces threads files", "ops", "layers", "models",
    "inside recent", "training", "beyond", "pretrained", "tutor", "app", "__main__ __init__",
]
LEVEL_OF = {package: level for level, packages in enumerate(LAYERS) for package in packages.split()}
EXTRAS = {
    "autograd", "cupy", "gguf", "hypothesis", "jax", "matplotlib", "mpi4py", "safetensors", "threadpoolctl",
    "tokenizers", "torch", "tqdm",
}

WITHOUT_A_SOURCE = {"Layer", "KeyValueCache", "Linear", "Embedding", "PositionEmbedding"}  # or the op has the source
BOOK = ("ops", "layers", "models", "training", "pretrained", "inside", "recent", "beyond")
TITLE = re.compile(r"Chapter (\d+)(, continued|, appendix)?\. (\S.*)")
NUMBERED = re.compile(r"c(\d\d)([a-z]?)_\w+")  # the name of a chapter's file; a letter: a continuation or an appendix
PARAGRAPHS = ["Formula", "Shapes", "Units", "Raises", "Source"]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_map_on_the_contributing_page_shows_these_layers() -> None:
    page = (ROOT / "docs" / "contributing.md").read_text("utf-8")
    section = page[page.index("## Package layout") : page.index("## The rules")]
    found = re.search(r"```text\n(.*?)```", section, re.DOTALL)
    assert found, "no map"
    drawn = [line[:37].split() for line in found[1].splitlines()]
    assert [set(packages) for packages in drawn] == [set(packages.split()) for packages in reversed(LAYERS[:-1])]


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def statements(body: list[ast.stmt], at_top: bool = True) -> Iterator[tuple[ast.stmt, bool]]:
    """Every statement of a file, and whether it runs at the import of the file."""
    for node in body:
        yield node, at_top
        later = isinstance(node, ast.FunctionDef) or (
            isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
        for part in ("body", "orelse", "finalbody"):
            yield from statements(getattr(node, part, []), at_top and not later)
        for handler in getattr(node, "handlers", []):
            yield from statements(handler.body, at_top)


@cache
def imported_modules(path: Path) -> list[tuple[str, bool]]:
    """Every module that a file imports, by absolute name, and whether it is imported at the top of the file."""
    found = []
    package = list(path.relative_to(ROOT).parent.parts)
    for node, at_top in statements(tree_of(path).body):
        if isinstance(node, ast.Import):
            found += [(alias.name, at_top) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found += [(resolve(module, alias.name), at_top) for alias in node.names]
    return found


def resolve(module: str, name: str) -> str:
    """`from numpy_attention.ops import linear` imports the module linear; `from math import sqrt` imports math."""
    inner = ROOT.joinpath(*module.split("."), name)
    return f"{module}.{name}" if inner.is_dir() or inner.with_suffix(".py").exists() else module


def level_of(module: str) -> int:
    parts = module.split(".")
    return LEVEL_OF[parts[1] if len(parts) > 1 else "__init__"]


def ours(path: Path, only_at_top: bool = False) -> list[str]:
    found = imported_modules(path)
    return [name for name, at_top in found if name.split(".")[0] == "numpy_attention" and (at_top or not only_at_top)]


@each(FILES, name_of)
def test_no_file_imports_from_a_layer_above(path: Path) -> None:
    level = LEVEL_OF[path.relative_to(PACKAGE).with_suffix("").parts[0]]
    for module in ours(path):
        assert level_of(module) <= level, f"{name_of(path)} imports {module} from a layer above"


@each([path for path in FILES if "gradcheck" in path.parent.parts], name_of)
def test_checker_imports_nothing_else_from_the_package_except_backend_and_shapes(path: Path) -> None:
    backend = ("numpy_attention.backend",) if path.name in ("adapters.py", "derivative.py") else ()
    shapes = ("numpy_attention.shapes",) if path.name == "spec.py" else ()
    for module in ours(path):
        assert module.startswith(("numpy_attention.gradcheck", *backend, *shapes)), f"{name_of(path)} imports {module}"


def circle(imports: dict[str, list[str]]) -> str:
    """The first circle in a table of imports, or "" if there is no circle."""
    done: set[str] = set()

    def walk(name: str, above: tuple[str, ...]) -> str:
        if name in above:
            return " -> ".join([*above[above.index(name) :], name])
        if name not in done:
            done.add(name)
            for module in imports[name]:
                if found := walk(module, (*above, name)):
                    return found
        return ""

    return next(filter(None, (walk(name, ()) for name in imports)), "")


def test_no_two_files_import_each_other() -> None:
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in FILES}
    imports = {name: [m for m in ours(path, only_at_top=True) if m in names] for name, path in names.items()}
    assert not circle(imports)


@each(FILES, name_of)
def test_numpy_is_the_only_dependency_at_the_top_of_a_file(path: Path) -> None:
    at_the_top = sys.stdlib_module_names | {"numpy", "numpy_attention"}
    own = {"gradcheck/strategies.py": {"hypothesis"}, "gradcheck/pytest_plugin.py": {"pytest"}}
    at_the_top |= own.get(path.relative_to(PACKAGE).as_posix(), set())
    for module, at_top in imported_modules(path):
        root = module.split(".")[0]
        assert root in (at_the_top if at_top else at_the_top | EXTRAS), f"{name_of(path)} imports {module}"
        assert root != "cupy" or path == PACKAGE / "backend.py", "only backend.py may import CuPy"
    numpy_lines = re.findall(r"^\s*(?:import|from) numpy\b(?!_).*$", path.read_text("utf-8"), re.MULTILINE)
    assert {line.strip() for line in numpy_lines} <= {"import numpy as np"}


@pytest.mark.slow
def test_the_package_and_its_command_line_import_with_numpy_alone() -> None:
    code = (
        "import sys, importlib.abc\n"
        "class Refuse(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] in {sorted(EXTRAS)!r}: raise ImportError(name + ' is not a dependency')\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "import numpy_attention, numpy_attention.app.main, numpy_attention.tutor.gallery\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def title_of(path: Path) -> str:
    return (ast.get_docstring(tree_of(path)) or "").split("\n", 1)[0]


def chapters() -> dict[int, list[str]]:
    """For every chapter number: its files as `package/file`, without continuations and appendices."""
    found: dict[int, list[str]] = {}
    for path in FILES:
        title = TITLE.fullmatch(title_of(path))
        if title and not title[2]:
            found.setdefault(int(title[1]), []).append(f"{path.parent.name}/{path.stem.partition('_')[2]}")
    return found


@each(CHAPTERS, name_of)
def test_every_file_of_functions_is_a_chapter(path: Path) -> None:
    assert TITLE.fullmatch(title_of(path)), f"begins with {title_of(path)!r}, not with 'Chapter N. Title'"


CHAPTER_FILES = [path for path in FILES if NUMBERED.fullmatch(path.stem)]


@each(CHAPTER_FILES, name_of)
def test_the_name_of_a_chapter_begins_with_its_number(path: Path) -> None:
    number, letter = re.findall(NUMBERED, path.stem)[0]
    title = TITLE.fullmatch(title_of(path))
    assert title, f"begins with {title_of(path)!r}, not with 'Chapter N. Title'"
    assert (int(title[1]), bool(title[2])) == (int(number), bool(letter))


@each(CHAPTER_FILES, name_of)
def test_the_reading_order_is_the_order_of_imports(path: Path) -> None:
    """A chapter imports from its own package only chapters that are read before it, and its own continuations."""
    for module in ours(path):
        stem = module.rpartition(".")[2]
        if NUMBERED.fullmatch(stem) and module.split(".")[1] == path.parent.name:
            assert int(stem[1:3]) <= int(path.stem[1:3]), f"{name_of(path)} imports {module}, a later chapter"


@each(FILES, name_of)
def test_no_module_is_hidden_by_its_function(path: Path) -> None:
    if path.stem not in ("__init__", "__main__"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        package, _, name = module.rpartition(".")
        importlib.import_module(module)
        assert getattr(importlib.import_module(package), name) is sys.modules[module]


def test_chapters_are_numbered_without_gaps_in_the_order_of_packages() -> None:
    numbers = chapters()
    assert sorted(numbers) == list(range(1, len(numbers) + 1))
    assert {number: files for number, files in numbers.items() if len(files) > 1} == {}
    packages = [BOOK.index(numbers[number][0].split("/")[0]) for number in sorted(numbers)]
    assert packages == sorted(packages), "a chapter is in the wrong package for its number"


def test_package_docstring_lists_all_chapters() -> None:
    listed, package = {}, ""
    for line in (importlib.import_module("numpy_attention").__doc__ or "").splitlines():
        names = set(re.findall(r"\b[a-z]+\b", line)) & set(BOOK)
        package = names.pop() if re.match(r"(Part \w+)? +[a-z]+ +\d", line) and names else package
        listed |= {int(number): f"{package}/{name}" for number, name in re.findall(r"\b(\d+) ([a-z_0-9]+)\b", line)}
    assert listed == {number: files[0] for number, files in sorted(chapters().items())}


@each(CHAPTERS, name_of)
def test_every_public_function_documents_shapes_raises_and_source(path: Path) -> None:
    for function in tree_of(path).body:
        if not isinstance(function, ast.FunctionDef) or function.name not in PUBLIC:
            continue
        docstring = ast.get_docstring(function) or ""
        if function.name.endswith("_backward"):
            assert docstring, f"{function.name} has no docstring"
            continue
        for part in ("Shapes", "Raises", "Source"):
            assert re.search(rf"^{part}\b", docstring, re.MULTILINE), f"{function.name}: no '{part}' in its docstring"


def documented(path: Path) -> list[tuple[str, ast.FunctionDef | ast.ClassDef, str]]:
    """Every public function, class and method of a file, by name, with its docstring."""
    found = []
    for node in tree_of(path).body:
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or node.name.startswith("_"):
            continue
        methods = [m for m in node.body if isinstance(m, ast.FunctionDef)] if isinstance(node, ast.ClassDef) else []
        members = [(f"{node.name}.{m.name}", m) for m in methods if not m.name.startswith("_")]
        found += [(name, n, ast.get_docstring(n) or "") for name, n in [(node.name, node), *members]]
    return found


def paragraphs_of(docstring: str) -> list[str]:
    return re.findall(rf"^({'|'.join(PARAGRAPHS)}):", docstring, re.MULTILINE)


@each(FILES, name_of)
def test_docstrings_have_one_form(path: Path) -> None:
    for name, _, docstring in documented(path):
        parts = paragraphs_of(docstring)
        assert parts == sorted(set(parts), key=PARAGRAPHS.index), f"{name}: {parts}, not in the order {PARAGRAPHS}"
        for part in parts:
            assert re.search(rf"\n\n{part}: \S", docstring), f"{name}: {part} must be a separate paragraph"
        assert not re.search(r"`\w*Error`", docstring), f"{name}: an error's name needs no backticks"
        assert "Raises" in parts or "Error" not in docstring, f"{name}: errors belong under 'Raises: '"


PUBLIC_CLASSES = {
    name: obj
    for package in ("layers", "models", "training", "recent", "beyond")
    for name, obj in vars(importlib.import_module(f"numpy_attention.{package}")).items()
    if inspect.isclass(obj) and obj.__module__.startswith("numpy_attention.")
}


@each(PUBLIC_CLASSES)
def test_every_layer_and_model_documents_shapes_and_source(name: str) -> None:
    cls = PUBLIC_CLASSES[name]
    docstrings = [inspect.getdoc(one) or "" for one in (*cls.__mro__[:-1], sys.modules[cls.__module__])]
    text = "\n\n".join(docstrings)
    if hasattr(cls, "forward") and name != "Layer":
        assert "Shapes" in paragraphs_of(text + "\n\n" + (inspect.getdoc(cls.forward) or ""))
    if not name.endswith("Config") and name not in WITHOUT_A_SOURCE:
        assert "Source" in paragraphs_of(text)


def test_public_names_are_unique_documented_and_complete() -> None:
    import numpy_attention as na

    assert len(set(na.__all__)) == len(na.__all__)
    for package in ("ops", "layers", "models", "training", "recent", "beyond"):
        assert set(importlib.import_module(f"numpy_attention.{package}").__all__) <= set(na.__all__)
    parts = {"gradcheck", "plots", "load_pretrained", "export_safetensors", "import_safetensors"}
    assert parts <= set(na.__all__) <= set(dir(na))
    for name in na.__all__:
        assert inspect.getdoc(getattr(na, name)), f"na.{name} has no docstring"
    with pytest.raises(AttributeError, match=r"numpy_attention.*'sofmax'"):
        _ = na.sofmax


def test_version_is_equal_in_all_files() -> None:
    import numpy_attention as na

    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert na.__version__ == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
