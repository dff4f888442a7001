"""log.jsonl: complete lines, and none after the last checkpoint."""

import json
import math
import os
from pathlib import Path

import pytest

from numpy_attention.errors import InputError
from numpy_attention.training.log import Log, read_log


def test_incomplete_last_line_is_dropped(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 2.25}\n{"step": 3, "lo', encoding="utf-8")
    Log(path, 2).write({"step": 3, "loss": 2.0})
    assert [json.loads(line) for line in path.read_text("utf-8").splitlines()] == [
        {"step": 1, "loss": 2.5}, {"step": 2, "loss": 2.25}, {"step": 3, "loss": 2.0},
    ]


def test_resumed_log_ends_at_the_step_of_the_checkpoint(tmp_path):
    path = tmp_path / "log.jsonl"
    log = Log(path, 0)
    for step in range(1, 6):
        log.write({"step": step})
    Log(path, 3)
    assert [line["step"] for line in read_log(path)] == [1, 2, 3]
    assert [file.name for file in tmp_path.iterdir()] == ["log.jsonl"]


def test_invalid_lines_are_dropped(tmp_path):
    path = tmp_path / "log.jsonl"
    deep = "[" * 100_000
    lines = ['{"step": 1}', "[2]", '{"loss": 1.0}', '{"step": "3"}', deep, "", '{"step": 4}']
    path.write_text("\n".join(lines), encoding="utf-8")
    assert [line["step"] for line in read_log(path)] == [1, 4]
    assert read_log(tmp_path / "none.jsonl") == []


@pytest.mark.parametrize(
    "odd",
    [
        '{"step": 2, "loss": "low"}', '{"step": 2, "loss": [1.0]}', '{"step": 2, "loss": true}', '{"step": true}',
        '{"step": 2, "loss": {}}', '{"step": 2, "loss": null}', f'{{"step": 2, "loss": {10**400}}}', '{"step": -1}',
        f'{{"step": {10**400}}}', f'{{"step": {2**63}}}', '{"step": 2.0}', f'{{"step": 2, "loss": {"9" * 5000}}}',
        '{"step": 2, "loss": 1e308}', '{"step": 2, "skipped": 3}', "\ufffd", "x" * 100_000,
    ],
    ids=lambda odd: odd[:40],
)  # fmt: skip
def test_line_with_an_invalid_value_is_dropped_with_a_warning(tmp_path, capsys, odd):
    path = tmp_path / "log.jsonl"
    path.write_text(f'{{"step": 1, "loss": 2.5}}\n{odd}\n{{"step": 3, "loss": 2.0}}\n', encoding="utf-8")
    assert [line["step"] for line in read_log(path)] == [1, 3]
    assert capsys.readouterr() == ("", "numpy-attention: ignored 1 invalid line of log.jsonl\n")
    Log(path, 3)
    assert "1 invalid line" in capsys.readouterr().err
    assert [line["step"] for line in read_log(path)] == [1, 3]
    assert capsys.readouterr() == ("", "")  # the log that goes on has none any more


def test_lines_that_a_run_writes_are_valid(tmp_path, capsys):
    path = tmp_path / "log.jsonl"
    lines = [
        {"step": 1, "loss": math.inf, "grad_norm": math.nan}, {"step": 2, "skipped": "the loss is nan"},
        {"step": 10**15, "loss": 3.4e38, "seconds": 0},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 3, "lo', encoding="utf-8")
    assert [line["step"] for line in read_log(path)] == [1, 2, 10**15]
    assert capsys.readouterr() == ("", "")  # a line that a kill has cut off needs no word


def test_missing_log_has_no_lines(tmp_path):
    path = tmp_path / "log.jsonl"
    path.symlink_to("/dev/zero")
    assert read_log(path) == []


@pytest.mark.parametrize("make", [Path.mkdir, *([os.mkfifo] if hasattr(os, "mkfifo") else [])])  # pipes are of Unix
def test_error_names_a_log_that_cannot_be_written(tmp_path, make):
    path = tmp_path / "log.jsonl"
    log = Log(path, 0)
    path.unlink()
    make(path)
    with pytest.raises(InputError, match=r"cannot write to .*log\.jsonl: it is not a regular file"):
        Log(path, 0)
    if path.is_dir():
        with pytest.raises(InputError, match=r"cannot write to .*log\.jsonl: Is a directory"):
            log.write({"step": 1})


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="links and pipes of Unix")
def test_line_is_not_written_through_a_link_or_into_a_pipe(tmp_path):
    path, other = tmp_path / "log.jsonl", tmp_path / "other"
    log = Log(path, 0)
    other.write_text("private")
    path.unlink()
    path.symlink_to(other)
    with pytest.raises(InputError, match=r"cannot write to .*log\.jsonl: .*symbolic links"):
        log.write({"step": 1})
    assert other.read_text() == "private"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(InputError, match=r"cannot write to .*log\.jsonl: No such device"):
        log.write({"step": 1})
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(InputError, match=r"cannot write to .*log\.jsonl: it is not a regular file"):
            log.write({"step": 1})
    finally:
        os.close(reader)
