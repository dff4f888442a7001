"""The tables of docs/performance.md and the README's sentence show the stored run of the benchmark."""

import pytest

from tests.benchmarks.__main__ import OTHERS
from tests.benchmarks.performance_page import OURS, PAGE, PEER, PICTURE, blocks, races, read
from tests.generated import block

FOUND, OF_PRETRAINED, ON_BUSY, PROFILE, BY_POSITION = read()


@pytest.mark.parametrize(
    ("path", "name", "content"),
    [pytest.param(*part, id=f"{part[0].stem} {part[1]}") for part in blocks(*read())],
)
def test_tables_show_the_stored_measurements(path, name, content):
    assert block(name, content) in path.read_text(encoding="utf-8")


def test_one_run_measured_everything():
    kinds = {race["case"]["kind"] for race in FOUND["races"]}
    assert kinds == {"import", "step", "op", "attention", "generation", "long"}
    assert {race["case"]["kind"] for race in OF_PRETRAINED["races"]} == {"pretrained"}
    assert {race["case"]["kind"] for race in ON_BUSY["races"]} == {"busy"}
    assert {race["case"]["others"] for race in ON_BUSY["races"]} == {*OTHERS}
    assert FOUND["not measured"] == OF_PRETRAINED["not measured"] == ON_BUSY["not measured"] == {}


def test_medians_have_seven_rounds_unless_the_call_takes_seconds():
    for kind in ("step", "op", "attention", "generation"):
        for case, results in races(FOUND, kind):
            longest = max(result.seconds for result in results.values())
            for name in (PEER, OURS):
                assert results[name].rounds >= 7 or longest > 5, (case, name)


def test_parts_of_a_step_sum_to_the_step():
    """Only approximately: each part is a median, and the whole step is also a median."""
    for parts in PROFILE.values():
        assert sum(parts.values()) - parts["all"] == pytest.approx(parts["all"], rel=0.05)


def test_earlier_text_lowers_the_loss_and_more_text_lowers_it_more():
    first, *others = BY_POSITION["rows"]
    assert first["worth"] == pytest.approx(0.0, abs=1e-5)  # no earlier text, so no difference
    assert all(row["worth"] > 3 * row["error"] for row in others)
    assert [row["worth"] for row in others] == sorted(row["worth"] for row in others)


def test_picture_exists_and_is_small():
    assert f"_static/{PICTURE.name}" in PAGE.read_text(encoding="utf-8")
    assert PICTURE.stat().st_size < 100_000
