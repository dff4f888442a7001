"""log.jsonl: complete lines, and none after the last checkpoint."""

import json
import math

from numpy_attention.training.log import Log, read_log


def test_incomplete_last_line_is_dropped(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 2.25}\n{"step": 3, "lo', encoding="utf-8")
    Log(path, 2).write({"step": 3, "loss": 2.0})
    assert [json.loads(line) for line in path.read_text("utf-8").splitlines()] == [
        {"step": 1, "loss": 2.5}, {"step": 2, "loss": 2.25}, {"step": 3, "loss": 2.0},
    ]


def test_numbers_that_json_does_not_have_become_null(tmp_path):
    """Other programs cannot read NaN; a log written with it is mended when its run is resumed."""
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1, "loss": NaN}\n', encoding="utf-8")
    Log(path, 1).write({"step": 2, "loss": math.inf, "grad_norm": math.nan, "seconds": 1.5})
    assert path.read_text("utf-8").splitlines() == [
        '{"step": 1, "loss": null}', '{"step": 2, "loss": null, "grad_norm": null, "seconds": 1.5}'
    ]  # fmt: skip


def test_resumed_log_ends_at_the_step_of_the_checkpoint(tmp_path):
    path = tmp_path / "log.jsonl"
    log = Log(path, 0)
    for step in range(1, 6):
        log.write({"step": step})
    Log(path, 3)
    assert [line["step"] for line in read_log(path)] == [1, 2, 3]
    assert [file.name for file in tmp_path.iterdir()] == ["log.jsonl"]
