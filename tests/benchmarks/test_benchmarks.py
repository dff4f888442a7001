"""The benchmark, tested with our contenders only, since the other libraries may not be installed."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.benchmarks import race as racing
from tests.benchmarks import report, work
from tests.benchmarks.__main__ import _parser, _plan, main
from tests.benchmarks.race import InputError, processes, race

SMALL = {"kind": "attention", "T": 24, "causal": True}


def test_tiled_and_plain_attention_compute_the_same_results() -> None:
    for causal in (True, False):
        case = {**SMALL, "causal": causal}
        np.testing.assert_allclose(
            work.make(case, "ours", 2).results(), work.make(case, "plain", 1).results(), rtol=1e-5
        )


@pytest.mark.parametrize("name", work.OPS)
def test_two_shards_of_an_op_give_the_result_of_one(name: str) -> None:
    rng = np.random.default_rng(0)
    op, inputs, options = work.OPS[name]()
    smaller = {
        n: a if n in work.SHARED else (a[:6] if a.dtype.kind == "f" else rng.permutation(a)[:6])
        for n, a in inputs.items()
    }
    whole, halves = (work._op(op, smaller, options, threads).results() for threads in (1, 2))
    np.testing.assert_allclose(halves, whole, rtol=1e-4)


def test_contenders_take_turns_in_separate_processes() -> None:
    with processes(["numpy_attention", "plain NumPy"], 1) as contenders:
        results, missing = race(SMALL, contenders, rounds=3, turn=0.001)
    assert missing == {}
    assert results["numpy_attention"].ratio == 1.0
    for result in results.values():
        assert result.rounds == 3
        assert 0 < result.low <= result.seconds <= result.high


def test_other_processes_are_busy_during_the_measurement_and_end_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def noted(command: list[str], **options: Any) -> Any:
        started.append(popen(command, **options))
        return started[-1]

    with processes(["plain NumPy"], 1) as contenders:
        monkeypatch.setattr(subprocess, "Popen", noted)
        results, _ = race({"kind": "busy", "work": SMALL, "others": 2}, contenders, rounds=2, turn=0.001)
    assert results["plain NumPy"].rounds == 2
    assert [process.wait(10) for process in started] == [-signal.SIGKILL] * 2
    with racing.load(1):
        assert started[2].poll() is None
    assert started[2].poll() is not None


@pytest.mark.skipif(sys.platform != "linux", reason="the children of a process are in /proc")
def test_busy_processes_end_if_the_benchmark_is_killed() -> None:
    source = (
        "import os, signal\nfrom tests.benchmarks import race\nwith race.load(1):\n"
        "    print(open(f'/proc/self/task/{os.getpid()}/children').read(), flush=True)\n    os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == -9
    for _ in range(200):
        if not _is_running(int(done.stdout)):
            return
        time.sleep(0.05)
    raise AssertionError("still busy")


def _is_running(pid: int) -> bool:
    """False also for a process that has ended but stays in the list, because no process has asked for its status."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def test_race_reports_why_a_contender_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(racing.CONTENDERS, "missing", ("no_such_module", ""))
    with processes(["missing", "plain NumPy"], 1) as contenders:
        results, missing = race(SMALL, contenders, rounds=1, turn=0.001)
    assert list(results) == ["plain NumPy"]
    assert "no_such_module" in missing["missing"]


def test_free_threaded_contender_needs_a_python_without_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(racing.ITS_PYTHON, sys.executable)
    with processes([racing.FREE_THREADED], 1) as contenders:
        results, missing = race(SMALL, contenders, rounds=1, turn=0.001)
    if work.lock_is_on():
        assert "NUMPY_ATTENTION_FREE_THREADED must name a free-threaded Python" in missing[racing.FREE_THREADED]
    else:
        assert list(results) == [racing.FREE_THREADED]


def test_free_threaded_contender_takes_part_only_if_its_python_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def contenders() -> list[str]:
        return _plan(_parser().parse_args(["steps"]))[0][1][0][1]

    monkeypatch.delenv(racing.ITS_PYTHON, raising=False)
    without = contenders()
    monkeypatch.setenv(racing.ITS_PYTHON, sys.executable)
    assert contenders() == [*without, racing.FREE_THREADED]
    monkeypatch.setenv(racing.ITS_PYTHON, "/no/python")
    with pytest.raises(InputError, match="NUMPY_ATTENTION_FREE_THREADED: there is no program '/no/python'"):
        contenders()


def test_race_refuses_contenders_with_different_results() -> None:
    with pytest.raises(InputError, match="compute different results"):
        racing._assert_same_work(SMALL, {"a": [1.0, 2.0], "b": [1.0, 2.1]})


def test_operations_of_a_step_match_a_count_by_hand() -> None:
    V, T, B, d, layers, H = work.SIZES["nano"]
    rows = B * T
    forward = layers * (4 * rows * d * d + 2 * rows * 4 * d * d + 2 * B * T * T * d) + rows * d * V
    assert work.floating_point_operations("nano") == 2 * 3 * forward   # the backward is twice the forward
    assert H * (d // H) == d


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "KIND: there is no 'nothing'"),
        (["steps", "--sizes", "giant"], "--sizes: there is no 'giant'"),
        (["--rounds", "0"], "at least 1"),
        (["ops", "--only", "conv"], "no op has 'conv'"),
        (["attention", "--longest", "8"], "--longest must be at least 256"),
    ],
)
def test_invalid_arguments_print_one_line(arguments: list[str], message: str, capsys) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_missing_gpu_prints_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--backend", "cupy"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(("option", "file", "message"), [
    ("--json", "no/x.json", "--json: cannot write no/x.json: No such file"), ("--json", ".", "--json: cannot write"),
    ("--plot", "no/x.png", "--plot: cannot write"), ("--plot", "x.nothing", "--plot must end in .png, .svg or .pdf"),
])
def test_unwritable_result_file_is_refused_before_measuring(tmp_path, monkeypatch, capsys, option, file, message):
    monkeypatch.chdir(tmp_path)
    assert main([option, file]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


def test_command_prints_a_table_and_writes_json_and_a_plot(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("tests.benchmarks.__main__.ATTENTION_CONTENDERS", ["numpy_attention", "plain NumPy"])
    files = ["--json", str(tmp_path / "bench.json"), "--plot", str(tmp_path / "bench.png")]
    assert main(["attention", "--longest", "256", "--rounds", "1", "--threads", "1", "--quick", *files]) == 0
    assert "| T = 256, causal | numpy_attention |" in capsys.readouterr().out
    found = json.loads((tmp_path / "bench.json").read_text("utf-8"))
    assert found["races"][0]["results"]["plain NumPy"]["seconds"] > 0
    assert (tmp_path / "bench.png").stat().st_size > 5000


def test_import_times_are_medians_and_exclude_the_first_round(monkeypatch, capsys):
    seconds = {  # the first round, which fills the disk cache, and the three counted rounds
        "import numpy": iter([8.0, 0.25, 0.5, 0.25]), "import numpy, numpy_attention": iter([16.0, 0.375, 0.5, 0.75])
    }  # fmt: skip
    clock = [0.0]

    def run(command, **_):
        clock[0] += next(seconds[command[-1]])
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    found = racing.imports(3, quick=True)
    assert {name: (cost.seconds, cost.ratio, cost.rounds) for name, cost in found.items()} == {
        "numpy": (0.25, 1.0, 3), "numpy_attention": (0.5, 1.5, 3), "beyond numpy": (0.125, 0.5, 3)
    }  # fmt: skip
    report.print_imports(found)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "Import, with the interpreter's start: numpy 250 ms, numpy_attention 500 ms",
        "numpy_attention beyond numpy: 125 ms",
    ]


def test_imports_run_in_new_interpreters():
    found = racing.imports(1, quick=True)
    assert set(found) == {"numpy", "numpy_attention", "beyond numpy"}  # an import that fails has no result
    assert found["numpy"].seconds > 0
