"""docs/scaling.md: its tables are those of the stored measurements, and its model explains them."""

import json

import pytest

from tests.benchmarks.bench_scaling import (
    CASES,
    PAGE,
    PICTURE,
    RESULTS,
    allreduce,
    constants,
    link,
    predict,
    predict_threads,
)
from tests.benchmarks.scaling_page import strong, tables, weak
from tests.generated import block

FOUND = json.loads(RESULTS.read_text("utf-8"))


@pytest.mark.parametrize("name", ["constants", "measured", "predicted", "overlap"])
def test_the_tables_of_the_page_are_those_of_the_measurements(name):
    assert block(name, "\n".join(tables(FOUND)[name])) in PAGE.read_text(encoding="utf-8")


def test_the_picture_is_there_and_small():
    assert f"_static/{PICTURE.name}" in PAGE.read_text(encoding="utf-8")
    assert PICTURE.read_text(encoding="utf-8").startswith("<?xml")
    assert PICTURE.stat().st_size < 100_000


@pytest.mark.parametrize("case", CASES)
def test_the_model_explains_the_measured_times(case):
    k, data = constants(FOUND, case), FOUND["cases"][case]
    for threads in (1, 2):
        assert predict_threads(k, threads) == pytest.approx(data["threads"][str(threads)]["step"], rel=0.15)
    for ranks in (1, 2):
        model = predict(k, ranks, *link(FOUND), FOUND["cores"])
        assert model == pytest.approx(data["ranks"][str(ranks)]["step"], rel=0.15)
    model = predict(k, 4, *link(FOUND), FOUND["cores"])  # four ranks on two cores
    assert model == pytest.approx(data["ranks"]["4"]["step"], rel=0.25)


def test_an_allreduce_costs_nothing_alone_and_never_twice_the_bytes_over_the_bandwidth():
    assert allreduce(1, 1e6, 1e-6, 1e9) == 0
    assert allreduce(2, 1e6, 0.0, 1e9) == pytest.approx(1e-3)
    assert allreduce(1024, 1e6, 0.0, 1e9) == pytest.approx(2e-3, rel=1e-2)
    assert allreduce(1024, 0, 1e-6, 1e9) == pytest.approx(2e-5)


@pytest.mark.parametrize("case", CASES)
def test_speed_up_never_exceeds_the_ranks_and_more_bandwidth_never_hurts(case):
    slow, fast = "10 Gbit/s Ethernet", "100 Gbit/s InfiniBand"
    for ranks in (1, 2, 16, 1024):
        assert strong(FOUND, case, ranks, slow) <= strong(FOUND, case, ranks, fast) <= ranks
        assert weak(FOUND, case, ranks, slow) <= weak(FOUND, case, ranks, fast) <= 1
