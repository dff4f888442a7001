"""docs/performance.md and the README: their tables are those of the stored run of the benchmark."""

import json

import pytest

from tests.benchmarks.performance_page import OURS, PAGE, PEER, PICTURE, RESULTS, blocks, races
from tests.generated import block

FOUND = json.loads(RESULTS.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("path", "name", "content"), [pytest.param(*part, id=part[1]) for part in blocks(FOUND)]
)
def test_the_tables_are_those_of_the_measurements(path, name, content):
    assert block(name, content) in path.read_text(encoding="utf-8")


def test_one_run_measured_everything():
    kinds = {race["case"]["kind"] for race in FOUND["races"]}
    assert kinds == {"import", "step", "op", "attention", "generation"}
    assert FOUND["not measured"] == {}


def test_a_median_is_of_seven_rounds_or_the_call_takes_seconds():
    for kind in ("step", "op", "attention", "generation"):
        for case, results in races(FOUND, kind):
            for name in (PEER, OURS):
                assert results[name].rounds >= 7 or results[name].seconds > 5, (case, name)


def test_the_picture_is_there_and_small():
    assert f"_static/{PICTURE.name}" in PAGE.read_text(encoding="utf-8")
    assert PICTURE.stat().st_size < 100_000
