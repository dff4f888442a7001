"""docs/teaching.md and docs/slides.md: minutes, exercises and mistakes agree with the book; the sandbox works."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from numpy_attention.catalogue import MISTAKES
from numpy_attention.catalogue.table import EXERCISES

ROOT = Path(__file__).parents[2]
TEACHING = (ROOT / "docs" / "teaching.md").read_text("utf-8")


def rows_after(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading."""
    table = TEACHING.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]
    return rows[2:]


def minutes_of(number: str) -> int:
    """The minutes at the top of a tutorial."""
    (page,) = ROOT.glob(f"tutorials/{int(number):02d}-*.md")
    found = re.search(r"\*\*You need\*\*.*?About\s+(\d+)\s+minutes", page.read_text("utf-8"), re.DOTALL)
    assert found
    return int(found[1])


def test_minutes_and_exercises_of_a_week_are_those_of_its_tutorials() -> None:
    rows = rows_after("Four weeks")
    assert [row[0] for row in rows] == ["1", "2", "3", "4"]
    for _, tutorials, minutes, exercises, _ in rows:
        numbers = re.findall(r"\d+", tutorials)
        assert int(minutes) == sum(map(minutes_of, numbers))
        for name in re.findall(r"`(\w+)`", exercises):
            assert str(EXERCISES[name].tutorial) in numbers, name


def test_named_mistakes_are_known_and_belong_to_the_exercise() -> None:
    for exercise, _, mistake, _ in rows_after("What students get wrong"):
        assert MISTAKES[mistake.strip("`")] in EXERCISES[exercise.strip("`")].mistakes


def test_there_are_ten_slides_and_each_asks_something() -> None:
    slides = (ROOT / "docs" / "slides.md").read_text("utf-8").split("\n## ")[1:]
    assert len(slides) == 10
    for slide in slides:
        assert "\n*Question: " in slide or "\n*Exercise: " in slide


HOSTILE = '''
import pathlib, socket
done = []
for name, attempt in {{
    "write": lambda: pathlib.Path("{folder}/new").write_text("x"),
    "delete": lambda: pathlib.Path("{folder}/kept").unlink(),
    "connect": lambda: socket.create_connection(("127.0.0.1", {port}), timeout=5),
}}.items():
    try:
        attempt()
        done.append(name)
    except OSError:
        pass
print("attempts that worked:", done)
'''


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_sandbox_of_the_page_stops_writing_deleting_and_connecting(tmp_path: Path) -> None:
    import socket

    options = re.search(r"bwrap (--.*?)\\\n", TEACHING)
    assert options
    sandbox = ["bwrap", *options[1].replace("--tmpfs /tmp", "").split()]  # pytest's folder may be in /tmp
    (tmp_path / "kept").touch()
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = HOSTILE.format(folder=tmp_path, port=server.getsockname()[1])
        if subprocess.run([*sandbox, "true"], check=False, capture_output=True, timeout=60).returncode:
            pytest.skip("this system does not allow namespaces")
        for before, expected in [(sandbox, "[]"), ([], "['write', 'delete', 'connect']")]:
            command = [*before, sys.executable, "-c", code]
            found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
            assert found.stdout == f"attempts that worked: {expected}\n"
    assert not (tmp_path / "kept").exists()  # the second run, without the sandbox, deletes it
