"""The package metadata, the workflow and the page list the same versions of Python and NumPy."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CLASSIFIED = [found[1] for line in PROJECT["classifiers"] if (found := re.fullmatch(r".*:: Python :: (3\.\d+)", line))]
JOBS = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8"))["jobs"]


def rows() -> list[list[str]]:
    """The cells of the table of tested versions: Python, NumPy, system, outcome."""
    page = (ROOT / "docs" / "pythons.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- tested -->\n\|.*\n\|.*\n((?:\|.*\n)+)<!-- end of tested -->", page)
    assert found
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found[1].splitlines()]


def minor(version: str) -> str:
    """3.11.7 -> 3.11"""
    return ".".join(version.split(".")[:2])


def test_required_python_is_the_oldest_in_the_classifiers() -> None:
    assert PROJECT["requires-python"] == f">={CLASSIFIED[0]}"


def test_workflow_runs_every_python_of_the_classifiers_on_three_systems() -> None:
    matrix = JOBS["newest-numpy"]["strategy"]["matrix"]
    assert matrix["python"] == CLASSIFIED
    assert matrix["system"] == ["ubuntu-latest", "macos-latest", "windows-latest"]


def test_workflow_runs_every_python_of_the_classifiers_with_an_old_numpy() -> None:
    oldest = JOBS["oldest-numpy"]["strategy"]["matrix"]["include"]
    assert [one["python"] for one in oldest] == CLASSIFIED
    assert f"numpy>={oldest[0]['numpy']}" in PROJECT["dependencies"]


def test_page_has_a_passing_row_for_every_python_of_the_classifiers() -> None:
    assert sorted({minor(row[0]) for row in rows()}) == CLASSIFIED
    assert "2.0" in {minor(row[1]) for row in rows()}
    for row in rows():
        assert re.fullmatch(r"[\d,]+ passed", row[3]), row
