"""Damaged and hostile files: each loads correctly or is refused in one line, fast and with little memory."""

import json
import time
import tracemalloc

import pytest

from numpy_attention.app import train
from numpy_attention.app.main import main
from numpy_attention.errors import InputError
from numpy_attention.files import save_arrays
from numpy_attention.training import checkpoint
from numpy_attention.training.trainer import Trainer
from tests.app.commands import trained
from tests.training import corruptions

SECONDS = 20  # for what takes a hundredth of that, on a machine that has other work
SIZES = ["--layers=1", "--heads=2", "--d-model=64", "--context=16", "--batch=2", "--workers=1", "--steps=2"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The checkpoint of a finished run."""
    folder = tmp_path_factory.mktemp("faults")
    trained("--text", written(folder), "--out", folder / "run", *SIZES)
    return folder / "run" / checkpoint.NAME


@pytest.fixture
def text(tmp_path):
    return written(tmp_path)


def written(folder):
    path = folder / "text.txt"
    goethe = "W\u00e4re nicht das Auge sonnenhaft, die Sonne k\u00f6nnt\u2019 es nie erblicken.\n"
    path.write_text(goethe * 30, encoding="utf-8")
    return path


def only_build(trainer):
    """End the run before its first step, since the cost of training does not depend on the file."""
    return "SIGTERM"


def outcome(capsys, arguments):
    """The exit code, error line, seconds and peak memory of a command."""
    capsys.readouterr()
    tracemalloc.start()
    start = time.perf_counter()
    try:
        code = main([str(a) for a in arguments])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    out, err = capsys.readouterr()
    return code, out, err, time.perf_counter() - start, peak


def judge(result, honest_peak, right):
    """Require a refusal in one line or a correct result, in time and in twice the usual memory; True if refused."""
    code, out, err, seconds, peak = result
    assert seconds < SECONDS
    assert peak < 2 * honest_peak
    if code == 2:
        assert err.startswith("numpy-attention: ")
        assert err.count("\n") == 1
        assert len(err) < 3000
        assert "Traceback" not in err
        return True
    assert err == ""
    assert right(code, out)
    return False


@pytest.mark.parametrize("vocabulary", ["char", "bpe"])
@pytest.mark.parametrize("count", [20, pytest.param(100, marks=pytest.mark.slow)])
def test_corrupted_checkpoint_is_refused_in_one_line_or_loads_correctly(
    tmp_path, text, capsys, rng, monkeypatch, vocabulary, count
):
    directory = tmp_path / "run"
    more = ["--vocab-size=280"] if vocabulary == "bpe" else []
    trained("--text", text, "--out", directory, *SIZES, "--vocabulary", vocabulary, *more)
    monkeypatch.setattr(Trainer, "run", only_build)
    path = directory / checkpoint.NAME
    whole = path.read_bytes()
    commands = [["sample", directory, "--tokens", "2", "--prompt", "die"], ["train", "--resume", directory]]
    for command in commands:  # once for what is kept from the first time on
        outcome(capsys, command)
    for corrupt in corruptions.OF_A_CHECKPOINT:  # the first complaint of each kind may import a module
        path.write_bytes(corrupt(whole, rng))
        outcome(capsys, commands[0])
    path.write_bytes(whole)
    honest = [outcome(capsys, command) for command in commands]
    assert [result[0] for result in honest] == [0, 143]
    refused = dict.fromkeys(corruptions.OF_A_CHECKPOINT, 0)
    # A generator a trial: how many numbers a corruption draws hangs on the file's length, and that on where the run is.
    for trial, draws in enumerate(rng.spawn(count)):
        corrupt = corruptions.OF_A_CHECKPOINT[trial % len(refused)]
        path.write_bytes(corrupt(whole, draws))
        for command, (code, out, *_, peak) in zip(commands, honest):
            # a description may honestly say something else, another seed for example: then the arrays are right
            other = corrupt is corruptions.wrong_description

            def right(got, message, code=code, out=out, other=other):
                return got == code and (other or message == out)

            result = outcome(capsys, command)
            refused[corrupt] += judge(result, peak, right)
    for corrupt, times in refused.items():  # twice count / 10 at most
        assert times >= count / 20, corrupt.__name__


@pytest.mark.parametrize("count", [30, pytest.param(60, marks=pytest.mark.slow)])
def test_corrupted_settings_file_is_refused_in_one_line_or_read_correctly(
    tmp_path, capsys, rng, monkeypatch, count
):
    asked = []

    def built(*arguments):
        raise InputError("built")

    monkeypatch.setattr(train, "make_task", asked.append)
    monkeypatch.setattr(train, "Trainer", built)
    file = tmp_path / "run.toml"
    whole = b'# a run\nsteps = 300\nd_model = 64\nlearning_rate = 2.5e-3\noptimizer = "adam"\ndropout = 0.1\n'
    whole += b'positions = "rotary"\nbatch = 12\nseed = 7\n'
    file.write_bytes(whole)
    command = ["train", "--config", file, "--out", tmp_path / "out"]
    outcome(capsys, command)
    peak = outcome(capsys, command)[-1]
    refused = 0
    for trial in range(count):
        file.write_bytes(corruptions.OF_A_CONFIG[trial % len(corruptions.OF_A_CONFIG)](whole, rng))
        asked.clear()
        result = outcome(capsys, command)
        judge(result, max(peak, 1_000_000), lambda code, out: False)  # built or refused, it says one line here
        refused += not asked
        assert bool(asked) == (result[2] == "numpy-attention: built\n")
        if asked:
            json.dumps(asked[0].to_mapping(), allow_nan=False)
    assert count / 8 < refused < count
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("count", [24, pytest.param(40, marks=pytest.mark.slow)])
def test_corrupted_text_is_refused_in_one_line_or_read_correctly(
    tmp_path, text, capsys, rng, monkeypatch, count
):
    monkeypatch.setattr(Trainer, "run", only_build)
    whole = text.read_bytes()
    command = ["train", "--text", text, "--out", tmp_path / "out", *SIZES]
    outcome(capsys, command)
    peak = outcome(capsys, command)[-1]
    refused = 0
    for trial in range(count):
        damaged = corruptions.OF_ANY_FILE[trial % len(corruptions.OF_ANY_FILE)](whole, rng)
        text.write_bytes(damaged)

        def right(code, out, damaged=damaged):
            return f" {len(damaged.decode().removeprefix(chr(0xFEFF))):,} characters" in out

        refused += judge(outcome(capsys, command), peak, right)
    assert count / 8 < refused < count


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("model", "rotary_base"), "x", "rotary_base must be float, got a str"),
        (("model", "norm_eps"), [1], "norm_eps must be float or NoneType, got a list"),
        (("model", "num_heads"), True, "num_heads must be int, got a bool"),
        (("model", "window"), 2**63, "window is too large or not finite"),
        (("model", "rotary_base"), -1.0, "rotary_base must be above 0"),
        (("model", "context_length"), 10**9, "context of 1000000000 is too long"),
        (("config", "d_ff"), 10**7, "its sizes do not fit its arrays"),
        (("config", "d_ff"), 10**9,
         "--layers, --d-model, --d-ff and --vocab-size give at least 128,000,081,920 parameters"),
        (("config", "context"), 10**9, "--batch times --context must be at most 4,194,304"),
        (("config", "batch"), 2**62, "--batch times --context must be at most 4,194,304"),
        (("config", "workers"), 10**6, "--workers must be at least 0 and below 1025"),
        (("config", "text"), "a\0b", "--text must be a possible file name"),
        (("config", "text"), "\ud800", "--text must be a possible file name"),
        (("config", "seed"), 10**30, "--seed must be below 2**63"),
        (("config", "optimizer"), "sdg", "did you mean 'sgd'"),
    ],
)
def test_wrong_description_is_refused_before_a_model_is_built(
    tmp_path, run, capsys, place, value, message
):
    arrays, meta = checkpoint.load_arrays(run)
    part, name = place
    save_arrays(tmp_path / checkpoint.NAME, arrays, meta | {part: meta[part] | {name: value}})
    capsys.readouterr()
    assert main(["sample", str(tmp_path), "--prompt", "die"]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_lack_of_memory_gives_one_line(tmp_path, text, capsys, monkeypatch):
    def run(trainer):
        raise MemoryError("Unable to allocate 8.00 GiB for an array")

    monkeypatch.setattr(Trainer, "run", run)
    assert main(["train", "--text", str(text), "--out", str(tmp_path / "run"), *SIZES]) == 2
    assert capsys.readouterr().err == "numpy-attention: out of memory: Unable to allocate 8.00 GiB for an array\n"


def test_refuses_text_that_is_not_a_regular_file(capsys):
    assert main(["train", "--text", "/dev/zero"]) == 2
    assert "is not a regular file" in capsys.readouterr().err


def test_refuses_endless_settings_file(capsys):
    assert main(["train", "--config", "/dev/zero"]) == 2
    assert "it is not a regular file" in capsys.readouterr().err
