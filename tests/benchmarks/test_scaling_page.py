"""The tables of docs/scaling.md show the stored measurements, and the model explains them."""

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
def test_tables_show_the_stored_measurements(name):
    assert block(name, "\n".join(tables(FOUND)[name])) in PAGE.read_text(encoding="utf-8")


def test_picture_exists_and_is_small():
    assert f"_static/{PICTURE.name}" in PAGE.read_text(encoding="utf-8")
    assert PICTURE.read_text(encoding="utf-8").startswith("<?xml")
    assert PICTURE.stat().st_size < 100_000


@pytest.mark.parametrize("case", CASES)
def test_model_agrees_with_the_measured_times(case):
    k, data = constants(FOUND, case), FOUND["cases"][case]
    for threads in (1, 2):
        assert predict_threads(k, threads) == pytest.approx(data["threads"][str(threads)]["step"], rel=0.15)
    for ranks in (1, 2):
        model = predict(k, ranks, *link(FOUND), FOUND["cores"])
        assert model == pytest.approx(data["ranks"][str(ranks)]["step"], rel=0.15)
    model = predict(k, 4, *link(FOUND), FOUND["cores"])  # four ranks on two cores
    assert model == pytest.approx(data["ranks"]["4"]["step"], rel=0.25)


def test_allreduce_is_free_for_one_rank_and_sends_less_than_twice_the_bytes():
    assert allreduce(1, 1e6, 1e-6, 1e9) == 0
    assert allreduce(2, 1e6, 0.0, 1e9) == pytest.approx(1e-3)
    assert allreduce(1024, 1e6, 0.0, 1e9) == pytest.approx(2e-3, rel=1e-2)
    assert allreduce(1024, 0, 1e-6, 1e9) == pytest.approx(2e-5)


@pytest.mark.parametrize("case", CASES)
def test_speed_up_is_at_most_the_ranks_and_grows_with_bandwidth(case):
    slow, fast = "10 Gbit/s Ethernet", "100 Gbit/s InfiniBand"
    for ranks in (1, 2, 16, 1024):
        assert strong(FOUND, case, ranks, slow) <= strong(FOUND, case, ranks, fast) <= ranks
        assert weak(FOUND, case, ranks, slow) <= weak(FOUND, case, ranks, fast) <= 1
