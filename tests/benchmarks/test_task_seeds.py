"""The table of docs/tasks.md shows the stored runs, and every row has all seeds."""

import json

from tests.benchmarks import task_seeds
from tests.benchmarks.task_seeds import PAGE, ROWS, SEEDS, measure, read, spread, table
from tests.generated import block


def test_table_shows_the_stored_runs() -> None:
    assert block("tasks", table(read())) in PAGE.read_text(encoding="utf-8")


def test_every_row_was_run_once_with_each_seed() -> None:
    runs = [(one["options"], one["seed"]) for one in read()]
    assert sorted(runs) == sorted((row.options, seed) for row in ROWS for seed in SEEDS)


def test_spread_is_median_lowest_and_highest() -> None:
    assert spread([99.4, 97.8, 98.9, 98.3, 98.6], 1) == "98.6 % (97.8 to 99.4)"
    assert spread([100.0] * 5, 2) == "100.00 %, every seed"


def test_interrupted_measurement_continues_with_the_next_run(tmp_path, monkeypatch) -> None:
    started = []

    def run(options, seed):
        started.append((options, seed))
        if len(started) == 4:
            raise KeyboardInterrupt
        return {"options": options, "seed": seed, "figure": 0.5, "seconds": 1.0}

    monkeypatch.setattr(task_seeds, "RESULTS", tmp_path / "tasks.json")
    monkeypatch.setattr(task_seeds, "run", run)
    try:
        measure()
    except KeyboardInterrupt:
        assert len(json.loads((tmp_path / "tasks.json").read_text("utf-8"))) == 3
    measure()
    assert len(started) == len(ROWS) * len(SEEDS) + 1
    assert started[3] == started[4]  # the interrupted run


def test_figure_is_the_last_one_in_the_log(monkeypatch, tmp_path) -> None:
    def train(command, cwd, **_):
        assert command[2:] == ["numpy_attention", "train", "--task", "copy", "--seed", "3", "--out", "run"]
        log = tmp_path / cwd / "run"
        log.mkdir()
        (log / "log.jsonl").write_text('{"step": 1, "val_exact": 0.5}\n{"step": 2, "val_exact": 0.75}\n')

    monkeypatch.setattr(task_seeds.subprocess, "run", train)
    assert task_seeds.run("copy", 3)["figure"] == 0.75
