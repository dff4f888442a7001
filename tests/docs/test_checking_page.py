"""docs/checking.md: the code blocks that the build of the page does not run give the stated results."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from numpy_attention.gradcheck import adapters
from tests.backend.strict_array import StrictBackend
from tests.docs.test_pages import cells_of

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "checking.md"
BLOCK = re.compile(r"^<!-- (?P<needs>[\w.: ]+) -->\n```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(needs: str) -> list[str]:
    """The blocks of the page that need this library; each runs alone."""
    return [match["code"] for match in BLOCK.finditer(PAGE.read_text("utf-8")) if match["needs"] == needs]


def run(needs: str, capsys: pytest.CaptureFixture[str]) -> str:
    found = blocks(needs)
    assert found
    for code in found:
        exec(compile(code, str(PAGE), "exec"), {"__name__": "page"})
    output = capsys.readouterr().out
    assert output.count("gradcheck ") == output.count(": right, ") == sum(code.count("print(check_") for code in found)
    return output


def test_every_block_is_a_cell_or_runs_here() -> None:
    marked = [match["needs"] for match in BLOCK.finditer(PAGE.read_text("utf-8"))]
    assert set(marked) == {"file: test_conv.py", "torch", "jax", "autograd", "cupy"}
    assert PAGE.read_text("utf-8").count("```python\n") == len(marked)


@pytest.mark.slow
def test_pytest_example_of_the_convolution_runs(tmp_path: Path) -> None:
    (conv,) = (code for _, code in cells_of(PAGE) if code.startswith("# conv.py\n"))
    (test,) = blocks("file: test_conv.py")
    (tmp_path / "conv.py").write_text(conv)
    (tmp_path / "test_conv.py").write_text(test)

    def pytest_output() -> str:
        plugin = ["-p", "numpy_attention.gradcheck.pytest_plugin"]  # an installed package loads it by itself
        command = [sys.executable, "-m", "pytest", *plugin, "-q", "--maxfail=1", "test_conv.py"]
        path = os.pathsep.join([str(ROOT), str(tmp_path)])
        done = subprocess.run(
            command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    assert "25 passed" in pytest_output()
    assert "rows : stride" in conv
    (tmp_path / "conv.py").write_text(conv.replace("w[:, :, i, j])", "w[:, :, j, i])"))
    output = pytest_output()
    assert "1 failed" in output
    assert "gradcheck conv2d: dx wrong" in output


def test_cupy_example_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "get_backend", lambda name: StrictBackend())
    assert "gradcheck f: right" in run("cupy", capsys)


@pytest.mark.slow
def test_torch_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    output = run("torch", capsys)
    assert "gradcheck Swish: right" in output
    assert "gradcheck Sequential: right" in output


@pytest.mark.slow
@pytest.mark.parametrize(("library", "name"), [("jax", "log1pexp"), ("autograd", "logsumexp")])
def test_jax_and_autograd_examples_run(library: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip(library)
    assert f"gradcheck {name}: right" in run(library, capsys)
