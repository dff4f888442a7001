"""docs/other_languages.md: a reader who runs its commands in an empty folder sees exactly its outputs."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "other_languages.md").read_text("utf-8")
STEP = re.compile(
    r"<!-- walk(?:: (?P<kind>\w+))? -->\n```sh\n(?P<commands>.*?)^```\n\n"
    r"<!-- output -->\n```text\n(?P<output>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@pytest.mark.skipif(not (shutil.which("cc") and shutil.which("node")), reason="the page needs cc and node")
def test_the_walk(tmp_path: Path) -> None:
    (tmp_path / "numpy_attention").symlink_to(ROOT)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    steps = list(STEP.finditer(PAGE))
    assert len(steps) == PAGE.count("<!-- walk") == 5
    for step in steps:
        done = subprocess.run(
            ["sh", "-c", step["commands"]], cwd=tmp_path, env=os.environ | {"LC_ALL": "C"}, capture_output=True,
            text=True, check=False,
        )
        assert done.returncode == (step["kind"] == "wrong"), done.stderr
        assert without_last_digits(done.stdout) == without_last_digits(step["output"])


def without_last_digits(text: str) -> str:
    """The text in one line; round-off differs from machine to machine."""
    text = " ".join(text.split())
    return re.sub(r"(?<=worst relative difference )\S+|(?<=resolution )\S+|(?<=\.\d{5})\d+", "...", text)


@pytest.mark.slow
def test_the_torch_example() -> None:
    (code,) = re.findall(r"<!-- torch -->\n```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    space: dict[str, Any] = {}
    exec(compile(code, "page", "exec"), space)
    space["test_softmax"]()
    wrong = code.replace("y * (dy - (dy * y).sum(-1, keepdim=True))", "y * (1 - y) * dy")
    assert wrong != code
    exec(compile(wrong, "page", "exec"), space)
    with pytest.raises(AssertionError, match="the known mistake diagonal_only"):
        space["test_softmax"]()
