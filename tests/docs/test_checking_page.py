"""The page for whoever checks a gradient of their own: the blocks that its build does not run do what they say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from numpy_attention.gradcheck import adapters
from tests.backend.devices import StrictBackend
from tests.docs.test_pages import cells_of

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "checking.md"
BLOCK = re.compile(r"^<!-- (?P<needs>[\w.: ]+) -->\n```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(needs: str) -> list[str]:
    """The blocks of the page that need a library, each whole in itself."""
    return [match["code"] for match in BLOCK.finditer(PAGE.read_text("utf-8")) if match["needs"] == needs]


def run(needs: str, capsys: pytest.CaptureFixture[str]) -> str:
    found = blocks(needs)
    assert found
    for code in found:
        exec(compile(code, str(PAGE), "exec"), {"__name__": "page"})
    said = capsys.readouterr().out
    assert said.count("gradcheck ") == said.count(": right, ") == sum(code.count("print(check_") for code in found)
    return said


def test_every_block_is_either_a_cell_or_run_here() -> None:
    marked = [match["needs"] for match in BLOCK.finditer(PAGE.read_text("utf-8"))]
    assert set(marked) == {"file: test_conv.py", "torch", "jax", "autograd", "cupy"}
    assert PAGE.read_text("utf-8").count("```python\n") == len(marked)


def test_the_test_file_beside_the_convolution(tmp_path: Path) -> None:
    (conv,) = (code for _, code in cells_of(PAGE) if code.startswith("# conv.py\n"))
    (test,) = blocks("file: test_conv.py")
    (tmp_path / "conv.py").write_text(conv)
    (tmp_path / "test_conv.py").write_text(test)

    def pytest_says() -> str:
        plugin = ["-p", "numpy_attention.gradcheck.pytest_plugin"]  # what an installed package does by itself
        command = [sys.executable, "-m", "pytest", *plugin, "-q", "--maxfail=1", "test_conv.py"]
        path = os.pathsep.join([str(ROOT), str(tmp_path)])
        done = subprocess.run(
            command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    assert "25 passed" in pytest_says()
    assert "rows : stride" in conv
    (tmp_path / "conv.py").write_text(conv.replace("w[:, :, i, j])", "w[:, :, j, i])"))
    said = pytest_says()
    assert "1 failed" in said
    assert "gradcheck conv2d: dx wrong" in said


def test_the_functions_on_a_gpu(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "get_backend", lambda name: StrictBackend())
    assert "gradcheck f: right" in run("cupy", capsys)


@pytest.mark.slow
def test_the_functions_of_torch(capsys: pytest.CaptureFixture[str]) -> None:
    said = run("torch", capsys)
    assert "gradcheck Swish: right" in said
    assert "gradcheck Sequential: right" in said


@pytest.mark.slow
@pytest.mark.parametrize(("library", "name"), [("jax", "log1pexp"), ("autograd", "logsumexp")])
def test_the_functions_of(library: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip(library)
    assert f"gradcheck {name}: right" in run(library, capsys)
