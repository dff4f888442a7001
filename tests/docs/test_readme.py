"""The README's commands and links work, and its formulas and the tutor's answer are real."""

import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.tutor.catalogue import EXERCISES
from numpy_attention.tutor.child import grade_here
from numpy_attention.tutor.run import answer_text
from tests.every import each
from tests.tutor.hand_in import written

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def after(marker: str, page: str = README) -> str:
    """The code block below <!-- marker -->."""
    found = re.search(rf"^<!-- {marker} -->\n```\w+\n(.*?)```$", page, re.MULTILINE | re.DOTALL)
    assert found, f"a code block must follow <!-- {marker} -->"
    return found[1]


def test_two_lines_do_all_their_set_up_with_python_alone_and_the_same_with_uv() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for marker, uv in zip(["first command", "test command"], after("uv commands").splitlines()):
        venv, install, program = after(marker).strip().split(" && ")
        assert venv == "python3 -m venv .venv"
        named = re.fullmatch(r'\.venv/bin/pip install -q "\.\[([\w,]+)\]"', install)
        assert named
        assert set(named[1].split(",")) <= set(extras)
        with_extras = "".join(f"--extra {name} " for name in named[1].split(","))
        assert uv == f"uv run {with_extras}{program.removeprefix('.venv/bin/')}"


@each(["one page", "train command", "gradcheck command", "chat commands"])
def test_other_commands_install_nothing(marker: str) -> None:
    assert all(line.startswith(".venv/bin/python ") for line in after(marker).splitlines())


def test_every_file_that_the_readme_links_exists() -> None:
    targets = [target.partition("#")[0] for target in re.findall(r'(?:\]\(|src="|srcset=")([^)"]+)', README)]
    files = [target for target in targets if not target.startswith("https://")]
    assert len(files) > 10
    assert [file for file in files if not (ROOT / file).exists()] == []


def test_three_forward_lines_and_their_backward_lines_are_attention(rng: np.random.Generator) -> None:
    table = re.search(r"<!-- attention -->\n\|.*\n\|.*\n((?:\|.*\n){3})", README)
    assert table
    rows = [re.findall("`(.*?)`", row) for row in table[1].splitlines()]
    q, k, v, dy = (rng.standard_normal(shape) for shape in ((4, 3), (5, 3), (5, 2), (4, 2)))
    names = {
        "q": q, "k": k, "v": v, "dy": dy, "d": 3, "sqrt": np.sqrt, "softmax": lambda scores: na.softmax(scores)[0],
        "rowsum": lambda array: array.sum(axis=-1, keepdims=True),
    }  # fmt: skip
    forward, backward = [row[0] for row in rows], [line for row in reversed(rows) for line in row[1:]]
    exec("\n".join(forward + backward), names)
    y, cache = na.scaled_dot_product_attention(q, k, v)
    np.testing.assert_allclose(names["y"], y, rtol=1e-12)
    for name, expected in zip(("dq", "dk", "dv"), na.scaled_dot_product_attention_backward(dy, cache)):
        np.testing.assert_allclose(names[name], expected, rtol=1e-12, atol=1e-14)


def test_answer_of_the_tutor_is_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README breaks lines at other places, and leaves out text at each line of three dots."""
    answer = re.search(r"on the softmax was\s`(return .*)`", README)
    assert answer
    command, *parts = after("tutor").split("...\n")
    assert command == "$ .venv/bin/python -m numpy_attention grade tutorials/exercises/softmax.py\n"
    monkeypatch.setattr(sys, "path", [*sys.path])  # the folder of the file is added to it
    result = grade_here(written(tmp_path, "softmax", answer[1]), EXERCISES["softmax"])
    file = "grade tutorials/exercises/softmax.py"
    text = answer_text("softmax", result, f"python -m numpy_attention {file} --hint 1", f"{file} --solution softmax")
    printed = " ".join(text.split())
    for part in parts:
        _, found, printed = printed.partition(" ".join(part.split()))
        assert found, f"the tutor does not print this part, or not here:\n{part}\nbut:\n{printed}"


def test_example_of_the_start_page_prints_the_output_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The page breaks lines at other places; errors of round-off differ between machines."""
    page = (ROOT / "docs" / "index.md").read_text("utf-8")
    code = after("example", page)
    assert code.count("\n") <= 25, "the idea in twenty lines"
    exec(compile(code, "index.md", "exec"), {})
    texts = after("output", page), capsys.readouterr().out
    shown, printed = (re.sub(r"\d\.\de-1\d", "tiny", " ".join(text.split())) for text in texts)
    assert shown == printed
