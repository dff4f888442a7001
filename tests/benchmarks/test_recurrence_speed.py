"""The tables of docs/recurrence_speed.md show the stored results, and the steps of the benchmark run."""

import numpy as np
import pytest

import numpy_attention as na
from tests.benchmarks import recurrence_speed
from tests.benchmarks.recurrence_speed import DELTA, LINEAR, PAGE, TILES, ahead, measure, ratio, read, table
from tests.generated import block


def test_tables_show_the_stored_results() -> None:
    assert block("recurrence speed", table(read())) in PAGE.read_text(encoding="utf-8")


def test_every_length_was_measured_in_every_round() -> None:
    rows = read()["rows"]
    assert [row["T"] for row in rows] == list(recurrence_speed.LENGTHS)
    assert {len(many) for row in rows for many in row["seconds"].values()} == {recurrence_speed.ROUNDS}


def test_stored_results_are_linear_in_the_length() -> None:
    """From 2,048 tokens to 16,384, eight times as many: seconds and memory grow eight times, of tiles 64 times."""
    last, first = ({row["T"]: row for row in read()["rows"]}[T] for T in (16_384, 2048))
    for name, least, most in ((LINEAR, 5, 12), (DELTA, 5, 12), (TILES, 30, 90)):
        assert least < np.median(last["seconds"][name]) / np.median(first["seconds"][name]) < most
        assert last["megabytes"][name] / first["megabytes"][name] < 9


def test_a_small_measurement_has_all_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrence_speed, "CHUNKS", (8,))
    found = measure(lengths=(16, 32), at_length=16, rounds=2)
    assert len(table(found).splitlines()) == 14
    assert [len(row["seconds"]) for row in found["rows"]] == [4, 4]


def test_ratio_is_the_median_over_the_rounds_and_ahead_finds_the_first_length() -> None:
    lengths = {8: 2.0, 16: 0.5, 32: 0.1}
    rows = [{"T": T, "seconds": {TILES: [1.0, 1.0, 2.0], LINEAR: [r, 9.0, 2 * r]}} for T, r in lengths.items()]
    assert [ratio(row, LINEAR) for row in rows] == [2.0, 0.5, 0.1]
    assert ahead(rows, LINEAR) == "from T = 16 on"
    assert ahead(rows[:1], LINEAR) == "at none of these lengths"


def test_chunks_and_tokens_compute_the_same_gradients() -> None:
    x = recurrence_speed.arrays(100)
    dy = x.pop("dy")
    found = na.chunked_linear_attention_backward(dy, na.chunked_linear_attention(**x)[1])
    expected = na.linear_attention_backward(dy, na.linear_attention(**x)[1])
    for one, other in zip(found[:5], expected[:5], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)
