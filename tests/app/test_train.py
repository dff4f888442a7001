"""`train` from outside: what it writes, what it says, and how it refuses."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from numpy_attention.app.main import main
from numpy_attention.app.tasks import TASKS
from numpy_attention.errors import InputError
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.trainer import Trainer
from tests.app.commands import SIZES, last_lines, no_pictures, refused, run_directory, text, trained

__all__ = ["no_pictures", "run_directory", "text"]


def test_training_writes_log_config_checkpoint_and_picture(tmp_path, text, capsys):
    directory = tmp_path / "deep" / "run"
    assert main(["train", "--text", str(text), "--out", str(directory), *SIZES]) == 0
    out, _ = capsys.readouterr()
    for message in ("bigram", "trigram", "4-gram", "this GPT", "nats per character", "a sample:", str(directory)):
        assert message in out
    assert {path.name for path in directory.iterdir()} >= {"log.jsonl", "config.json", "checkpoint.npz", "loss.png"}
    assert not list(directory.glob("*.tmp*"))
    log = [json.loads(line) for line in (directory / "log.jsonl").read_text("utf-8").splitlines()]
    assert [entry["step"] for entry in log] == [1, 4, 8]
    assert "val_loss" in log[-1]
    config = json.loads((directory / "config.json").read_text("utf-8"))
    assert config["d_model"] == 16
    assert config["model"]["vocab_size"] == len(set(text.read_text("utf-8")))
    assert (directory / "loss.png").read_bytes().startswith(b"\x89PNG")
    with np.load(directory / "checkpoint.npz", allow_pickle=False) as checkpoint:
        assert "parameters.token_embedding.table" in checkpoint


def test_default_directory_is_new_for_each_run(tmp_path, text, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        trained("--text", text, *SIZES, "--steps", "1")
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_training_completes_when_the_clock_does_not_advance(tmp_path, text, monkeypatch, capsys):
    monkeypatch.setattr(time, "perf_counter", lambda: 5.0)
    trained("--text", text, "--out", tmp_path / "run", *SIZES)
    assert "0 tokens/s  0 s left" in capsys.readouterr().out


@pytest.mark.usefixtures("no_pictures")
def test_same_seed_gives_the_same_run_and_another_seed_differs(tmp_path, text, capsys):
    samples = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        assert main(["train", "--text", str(text), "--out", str(tmp_path / name), *SIZES, "--seed", str(seed)]) == 0
        samples.append(re.search("a sample:\n(.*)\nin ", capsys.readouterr().out, re.DOTALL).group(1))
    assert samples[0] == samples[1] != samples[2]


def test_tiled_attention_gives_the_same_training(tmp_path, text, capsys):
    last = []
    for how in ("dense", "tiled"):
        out = tmp_path / how
        one = ["--batch", "1", "--workers", "2", "--attention", how]
        trained("--text", text, "--out", out, *SIZES, *one)
        assert json.loads((out / "config.json").read_text("utf-8"))["model"]["attention"] == how
        last.append(json.loads((out / "log.jsonl").read_text("utf-8").splitlines()[-1])["val_loss"])
    assert last[0] == pytest.approx(last[1], rel=1e-3)


@pytest.mark.usefixtures("no_pictures")
def test_smallest_run_can_be_trained_sampled_and_drawn(tmp_path, text, capsys):
    sizes = ["--layers=1", "--heads=1", "--d-model=3", "--positions=learned", "--context=1", "--batch=1", "--workers=3"]
    run = str(tmp_path / "run")
    assert main(["train", "--text", str(text), "--out", run, *sizes, "--steps=2", "--eval-every=1"]) == 0
    capsys.readouterr()
    assert main(["sample", run, "--prompt", "T", "--tokens", "5"]) == 0
    assert len(capsys.readouterr().out) == len("T") + 5 + 1
    assert main(["attend", run, "--text", "T"]) == 0
    capsys.readouterr()
    assert "at most 1" in refused(capsys, "attend", run, "--text", "Th")


def test_cpu_setting_of_nanogpt_is_accepted(tmp_path, text, capsys):
    setting = [
        "--layers=4", "--heads=4", "--d-model=128", "--context=64", "--batch=12", "--learning-rate=1e-3",
        "--min-learning-rate=1e-4", "--warmup=100", "--positions=learned",
        "--beta2=0.99", "--dropout=0", "--weight-decay=0.1", "--steps=1",
    ]
    trained("--text", text, "--out", tmp_path / "run", *setting)
    assert json.loads((tmp_path / "run" / "config.json").read_text("utf-8"))["beta2"] == 0.99


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"too short", "too few"),
        (b"abc\xff" * 99, "offset 3"),
        (None, "No such file"),
        ("dir", "directory"),
    ],
)
def test_unusable_text_is_refused_and_writes_nothing(tmp_path, monkeypatch, capsys, content, message):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "bad.txt"
    if content == "dir":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    assert message in refused(capsys, "train", "--text", path, *SIZES)
    assert message in refused(capsys, "train", "--text", path, *SIZES, "--out", tmp_path / "new")
    assert not (tmp_path / "runs").exists()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--d-model", "16", "--heads", "3"], "divisible"),
        (["--steps", "0"], "--steps must be at least 1, got 0"),
        (["--steps", "many"], "invalid int value: 'many'"),
        (["--learning-rate", "nan"], "--learning-rate must be at least 0"),
        (["--learning-rate", "-1"], "--learning-rate"),
        (["--dropout", "1"], "below 1"),
        (["--optimizer", "adamax"], "did you mean 'adam"),
        (["--task", "txt"], "did you mean 'text'"),
        (["--attention", "flash"], "--attention must be one of auto, dense, tiled, got 'flash'"),
        (["--colour", "red"], "unrecognized arguments: --colour"),
        (["--step", "3"], "unrecognized arguments"),
        (["--positions", "rotary", "--d-model", "6", "--heads", "2"], "even"),
        (["--batch", str(2**63 - 1)], "--batch times --context must be at most 4,194,304 tokens in a step"),
        (["--batch", "9" * 5000], "--batch: invalid int value: '999"),
        (["--task", "sum", "--context", "20000", "--d-model", "8"], "--context must be at most 16384"),
        (["--task", "reverse", "--context", "2000"], "--context must be at most 1118"),
        (["--task", "copy", "--batch", "1", "--context", "70000", "--d-model", "8"], "at most 67108 to hold 1,000"),
        (["--task", "x" * 5000], "--task must be one of text, sum, reverse, copy, dates, digits, induction, got 'xxx"),
        (["y" * 5000], "unrecognized arguments: yyy"),
    ],
    ids=lambda one: " ".join(one)[:30] if isinstance(one, list) else "",
)
def test_refuses_impossible_settings_in_one_line(tmp_path, text, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    err = refused(capsys, "train", *arguments, *(() if "--task" in arguments else ("--text", text)))
    assert message in err
    assert len(err) < 800
    assert not (tmp_path / "runs").exists()


def test_as_in_the_lesson_is_refused_with_resume(run_directory, capsys):
    message = "--as-in-the-lesson is for a new run; leave it out"
    assert message in refused(capsys, "train", "--resume", run_directory, "--as-in-the-lesson")


def test_diverging_run_ends_with_one_line(tmp_path, text, capsys):
    command = ["--text", text, "--out", tmp_path / "run", *SIZES, "--workers=2", "--learning-rate=1e5", "--warmup=0"]
    err = last_lines(capsys, 1, "train", *command).err
    assert err.startswith("numpy-attention: stopped at step 3: the loss is nan")
    assert err.count("\n") == 1


@pytest.mark.skipif(os.name == "nt", reason="Windows does not move a directory that is in use")
def test_directory_replaced_after_the_last_step_gets_no_result(tmp_path, text, capsys, monkeypatch):
    out = tmp_path / "run"

    def report(*_):
        out.rename(tmp_path / "moved")
        out.mkdir()
        return ""

    monkeypatch.setattr(TASKS["text"], "report", report)
    err = last_lines(capsys, 2, "train", "--text", text, "--out", out, *SIZES).err
    assert "run has been moved or replaced" in err
    assert list(out.iterdir()) == []


def test_odd_lines_in_a_log_do_not_stop_a_resumed_run(run_directory, capsys):
    with open(run_directory / "log.jsonl", "a", encoding="utf-8") as log:
        log.write('{"step": 1, "loss": "low"}\n[]\n{"step": 5, "val_loss": 1e400}\n')
    err = last_lines(capsys, 0, "train", "--resume", run_directory).err
    assert err == "numpy-attention: ignored 2 invalid lines of log.jsonl\n"
    assert (run_directory / "loss.png").exists()


def test_directory_that_holds_a_run_is_not_overwritten(run_directory, text, capsys):
    before = (run_directory / "checkpoint.npz").read_bytes()
    assert "--resume" in refused(capsys, "train", "--text", text, "--out", run_directory, *SIZES)
    assert "is a file" in refused(capsys, "train", "--text", text, "--out", text, *SIZES)
    assert (run_directory / "checkpoint.npz").read_bytes() == before


def test_options_override_settings_from_a_file(tmp_path, text, capsys):
    file = tmp_path / "run.toml"
    file.write_text('steps = 3\nd_model = 8\nheads = 1\nlayers = 1\ncontext = 4\nbatch = 2\nworkers = 1\n')
    arguments = ["--config", str(file), "--text", str(text), "--steps", "2", "--out", str(tmp_path / "run")]
    trained(*arguments)
    config = json.loads((tmp_path / "run" / "config.json").read_text("utf-8"))
    assert (config["steps"], config["d_model"], config["text"]) == (2, 8, str(text))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"stpes = 3", "there is no setting 'stpes'; did you mean 'steps'?"),
        (b"steps = 'three'", "--steps must be a whole number, got 'three'"),
        (b"steps = true", "--steps must be a whole number, got True"),
        (b"steps = ", "is not TOML"),
        (b"text = '\xff'", "not UTF-8"),
        (b"[train]\nsteps = 3", "there is no setting 'train'"),
        (b"task = ['text']", "--task must be a text, got a list"),
        (b"task = {a = 1}", "--task must be a text, got a dict"),
        (b"task = 3", "--task must be a text, got 3"),
        (b"from = ['m']", "--from must be a text, got a list"),
        (b"steps = 1979-05-27", "--steps must be a whole number, got a date"),
        (b"steps = " + b"7" * 6000, "is not TOML: Exceeds the limit"),
        (b"steps = 0x" + b"f" * 6000, "--steps must be below 2**63, got a very long int"),
        (b"a" + b".a" * 10_000 + b" = 1", "has a line with 10000 dots"),
        (b"a" + b".a" * 100_000 + b" = 1", "longer than 65,536 bytes"),
        (b"steps = " + b"[" * 50_000, "is not TOML"),
        (b"steps = [" + b"{a = " * 10_000, "is not TOML"),
        (b"'" + b"x" * 50_000 + b"' = 1", "there is no setting 'xxx"),
        ("# é".encode() * 2**14 + b"\nsteps = 3", "longer than 65,536 bytes"),  # of fewer characters
        ("#é".encode() * 2**15 + b"\nsteps = 3", "longer than 65,536 bytes"),  # which the limit cuts in two
    ],
    ids=[
        "misspelt", "text", "true", "nothing", "bytes", "table", "list", "dict", "number", "from", "date", "digits",
        "hex digits", "dots", "many dots", "deep", "deep tables", "long key", "too long", "too long, cut",
    ],
)  # fmt: skip
def test_refuses_unusable_settings_file(tmp_path, monkeypatch, capsys, content, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_bytes(content)
    start = time.perf_counter()
    err = refused(capsys, "train", "--config", "run.toml")
    assert time.perf_counter() - start < 5  # of which none takes a tenth on an idle machine
    assert message in err
    assert "run.toml" in err
    assert len(err) < 800
    assert not (tmp_path / "runs").exists()


def test_refuses_missing_settings_file(tmp_path, capsys):
    assert "cannot read" in refused(capsys, "train", "--config", tmp_path / "none.toml")


@pytest.mark.usefixtures("no_pictures")
def test_resumed_finished_run_prints_its_report_and_refuses_new_settings(run_directory, text, capsys):
    assert main(["train", "--resume", str(run_directory)]) == 0
    assert "this GPT" in capsys.readouterr().out
    changed = ["--steps", 9, "--batch", 5]
    assert "--steps, --batch cannot change" in refused(capsys, "train", "--resume", run_directory, *changed)
    assert "leave --out" in refused(capsys, "train", "--resume", run_directory, "--out", run_directory)
    text.unlink()
    assert "No such file" in refused(capsys, "train", "--resume", run_directory)


def test_recompute_can_change_in_a_resumed_run(tmp_path, text, capsys):
    def setting(run):
        with np.load(run / "checkpoint.npz", allow_pickle=False) as checkpoint:
            return json.loads(checkpoint["meta"].tobytes())["config"]["recompute"]

    run, settings = tmp_path / "run", tmp_path / "run.toml"
    settings.write_text("recompute = true\n")
    trained("--text", text, "--out", run, *SIZES, "--config", settings, "--skip-bad-steps=1")
    assert setting(run) is True
    for flag in ("--no-recompute", "--recompute"):
        trained("--resume", run, flag)
    capsys.readouterr()
    settings.write_text("recompute = 1\n")
    refusal = refused(capsys, "train", "--text", text, "--out", tmp_path / "other", "--config", settings)
    assert "--recompute must be true or false, got 1" in refusal


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_the_run_after_saving(tmp_path, text, number, code):
    directory = tmp_path / "my run"
    command = [sys.executable, "-m", "numpy_attention", "train", "--text", str(text), "--out", str(directory), *SIZES]
    command += ["--steps", "100000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not (directory / "checkpoint.previous.npz").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(process.pid, number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in err
    step = int(re.search(r"after step (\d+), which is saved", out).group(1))
    assert f"  python -m numpy_attention train --resume '{directory}'\n" in out
    with np.load(directory / "checkpoint.npz", allow_pickle=False) as checkpoint:
        assert json.loads(checkpoint["meta"].tobytes())["step"] == step


@pytest.mark.parametrize(("arguments", "message"), [
    (["--task=reverse", "--text=/nonexistent"],
     "--text has an effect only with --task text, not with reverse; leave --text out"),
    (["--task=sum", "--text=t.txt"], "--text has an effect only with --task text, not with sum"),
    (["--task=digits", "--vocabulary=byte"], "--vocabulary has an effect only with --task text, not with digits"),
    (["--vocab-size=300"], "--vocab-size has an effect only with --vocabulary bpe, not with char"),
    (["--task=copy", "--vocab-size=300"], "--vocab-size has an effect only with --vocabulary bpe, not with char"),
    (["--optimizer=sgd", "--beta2=0.5"],
     "--beta2 has an effect only with --optimizer adamw or adam, not with sgd"),
    (["--task=sum", "--weight-decay=0.5"],
     "--weight-decay has an effect only with --optimizer adamw, not with adam"),
    (["--min-learning-rate=1"], "--min-learning-rate must be at most --learning-rate, the peak, which is 0.004, got 1"),
    (["--task=dates", "--from=smollm2", "--text=t.txt"],
     "--text has an effect only with --task text, not with dates"),
], ids=lambda one: " ".join(one) if isinstance(one, list) else "")
@pytest.mark.parametrize("place", ["options", "file"])
def test_refuses_settings_without_effect(
    tmp_path, monkeypatch, capsys, arguments, message, place
):
    monkeypatch.chdir(tmp_path)
    if place == "file":
        settings = [one.removeprefix("--").split("=") for one in arguments]
        lines = [f"{name.replace('-', '_')} = {v if v[0].isdigit() else json.dumps(v)}" for name, v in settings]
        (tmp_path / "run.toml").write_text("\n".join(lines))
        arguments = ["--config", "run.toml"]
    assert message in refused(capsys, "train", *arguments)
    assert not (tmp_path / "runs").exists()


@pytest.fixture
def begun(monkeypatch):
    """The configurations of runs that would begin; none does."""
    configs = []

    def run(trainer):
        configs.append(trainer.config)
        raise InputError("enough")

    monkeypatch.setattr(Trainer, "run", run)
    return configs


@pytest.mark.parametrize("task", [task for task in TASKS if task != "digits"])
def test_settings_file_may_hold_all_default_settings(tmp_path, capsys, begun, task):
    for usual in (TrainConfig(), TrainConfig(task=task, **TASKS[task].defaults)):
        values = {name: value for name, value in dataclasses.asdict(usual).items() if value is not None}
        positions = TASKS[task].defaults.get("positions", "rotary")
        values |= {"task": task, "context": 40, "d_model": 8, "positions": positions}
        (tmp_path / "run.toml").write_text("\n".join(f"{name} = {json.dumps(one)}" for name, one in values.items()))
        assert "enough" in refused_late(capsys, "--config", tmp_path / "run.toml", "--out", tmp_path / "run")
    assert [config.task for config in begun] == [task] * 2


def refused_late(capsys, *arguments):
    return last_lines(capsys, 2, "train", *arguments).err


def test_accepts_learning_rate_below_the_default_minimum(tmp_path, capsys, begun):
    for number, task in enumerate([[], ["--task=sum", "--as-in-the-lesson"]]):
        assert "enough" in refused_late(capsys, *task, "--learning-rate=1e-6", "--out", tmp_path / str(number))
    assert [config.learning_rate for config in begun] == [1e-6] * 2
    assert begun[0].min_learning_rate > 1e-6


def test_error_for_wrong_sizes_names_the_options(tmp_path, text, capsys):
    even = "--d-model / --heads must be an even width per head for rotary positions, got 128 / 128"
    for heads, message in ((3, "--d-model must be divisible by --heads, got 128 and 3"), (128, even)):
        err = refused(capsys, "train", "--text", text, "--heads", heads, "--out", tmp_path / "run")
        assert err == f"numpy-attention: {message}\n"
    err = refused(capsys, "train", "--task=copy", "--positions=rotary", "--out", tmp_path / "run")
    assert err.startswith("numpy-attention: --positions must be one of ")
