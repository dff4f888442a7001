"""log.jsonl: whole lines, none of them after the last checkpoint."""

import json

from numpy_attention.runs.log import Log, read_log


def test_a_line_cut_off_by_a_kill_is_dropped_from_the_log(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 2.25}\n{"step": 3, "lo', encoding="utf-8")
    Log(path, 2).write({"step": 3, "loss": 2.0})
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"step": 1, "loss": 2.5}, {"step": 2, "loss": 2.25}, {"step": 3, "loss": 2.0},
    ]


def test_a_log_that_goes_on_ends_with_the_step_of_the_checkpoint(tmp_path):
    path = tmp_path / "log.jsonl"
    log = Log(path, 0)
    for step in range(1, 6):
        log.write({"step": step})
    Log(path, 3)
    assert [line["step"] for line in read_log(path)] == [1, 2, 3]
    assert [file.name for file in tmp_path.iterdir()] == ["log.jsonl"]


def test_lines_that_are_no_entries_are_left_out(tmp_path):
    path = tmp_path / "log.jsonl"
    deep = "[" * 100_000
    lines = ['{"step": 1}', "[2]", '{"loss": 1.0}', '{"step": "3"}', deep, "", '{"step": 4}']
    path.write_text("\n".join(lines), encoding="utf-8")
    assert [line["step"] for line in read_log(path)] == [1, 4]
    assert read_log(tmp_path / "none.jsonl") == []
