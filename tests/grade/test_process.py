"""The other process starts, replies and ends; it cannot block the grader.

Its functions, layers and caches can be used like those of this process.
"""

import copy
import errno
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numpy_attention.catalogue.compare import same
from numpy_attention.catalogue.exercise import peak_memory
from numpy_attention.catalogue.table import EXERCISES
from numpy_attention.errors import InputError
from numpy_attention.gradcheck.problem import arrays_of, with_parameters
from numpy_attention.grade.guard import NotOwnWork
from numpy_attention.grade.process import MAX_PRINTED, MAX_STORED, Ended, Process, Remote, remote_error
from numpy_attention.grade.wire import Mutable
from tests.every import each
from tests.grade.hand_in import FOLDER

SOFTMAX = """
def softmax(x, axis=-1):
    return 2 * x, [x]
def softmax_backward(dy, cache):
    if dy.ndim == 1:
        cache[0] -= 1
    if dy.ndim == 2:
        dy.shape = (-1,)
    if dy.ndim == 3:
        (dy + 1).sum()
    return 2 * dy
"""
LOW_RANK = """
from numpy_attention.layers import Layer
class LowRank(Layer):
    frozen = ("w",)
    def __init__(self, w, rank, alpha, rng):
        self.w, self.a = w, rng.standard_normal((3, rank))
    def forward(self, x):
        return x @ self.w + self.a.sum(), x
    def backward(self, dy, cache):
        self.a *= 2
        return dy @ self.w.T, {"a": self.a + dy.sum()}
"""


def process(folder: Path, text: str, seconds: float = 60.0, name: str = "softmax") -> Process:
    file = folder / f"{name}.py"
    file.write_text(text)
    return Process(file, EXERCISES[name], seconds)


def with_more(text: str) -> str:
    return (FOLDER / "softmax.py").read_text("utf-8") + text


@pytest.fixture(scope="module")
def softmax(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with process(tmp_path_factory.mktemp("softmax"), SOFTMAX) as module:
        assert "failed" not in module.load()
        yield module


def test_exception_of_a_function_is_raised_here(tmp_path: Path) -> None:
    with process(tmp_path, with_more("")) as module:
        assert module.load().keys() == {"to"}
        y, cache = module.softmax(np.ones((2, 3)))
        with pytest.raises(NotImplementedError) as failure:
            module.softmax_backward(y, cache)
        with pytest.raises(ValueError, match="out of bounds"):
            module.softmax(np.ones(3), axis=4)
    assert failure.value.place.startswith(" (softmax.py, line ")


def test_call_returns_result_and_changes_our_arrays(softmax: Any, rng: np.random.Generator) -> None:
    x = rng.standard_normal(5)
    before, dy = x.copy(), rng.standard_normal(5)
    y, cache = softmax.softmax(x, axis=0)
    assert np.array_equal(y, 2 * x)
    assert softmax.softmax.__name__ == "softmax"
    kept = copy.deepcopy(cache)
    assert same(kept, cache)
    assert np.array_equal(softmax.softmax_backward(dy, cache), 2 * dy)
    assert np.array_equal(x, before - 1)  # the backward changed x through its cache
    assert not same(kept, cache)
    assert not same(cache, None)


def test_in_place_change_of_shape_is_an_error(softmax: Any, rng: np.random.Generator) -> None:
    dy = rng.standard_normal((2, 3))
    _, cache = softmax.softmax(dy)
    with pytest.raises(AssertionError, match=r"changed the shape of the caller's array \(2, 3\) in place"):
        softmax.softmax_backward(dy, cache)


def test_memory_is_measured_in_the_other_process(softmax: Any, rng: np.random.Generator) -> None:
    dy = rng.standard_normal((10, 20, 500))
    _, cache = softmax.softmax(dy)
    assert dy.nbytes <= peak_memory(softmax.softmax_backward, dy, cache) < 4 * dy.nbytes


def test_deleted_cache_is_released_in_the_other_process(tmp_path: Path, rng: np.random.Generator) -> None:
    with process(tmp_path, SOFTMAX) as module:
        module.load()
        _, cache = module.softmax(rng.standard_normal(3))
        other = Remote(module, cache.number)  # a second reference: deleting the first releases the cache
        del cache
        module.softmax(np.ones(1))  # the next request releases the cache in the other process
        with pytest.raises(Ended):  # this request needs the released cache
            module.softmax_backward(np.ones((1, 1, 1)), other)


def test_layer_computes_with_our_arrays(tmp_path: Path, rng: np.random.Generator) -> None:
    w, x, dy = rng.standard_normal((3, 2)), rng.standard_normal((4, 3)), rng.standard_normal((4, 2))
    draws = np.random.default_rng(8)
    with process(tmp_path, LOW_RANK, name="low_rank") as module:
        assert "failed" not in module.load()
        layer = module.LowRank(w, 5, 1.0, draws)
        again = np.random.default_rng(8)
        assert type(layer).__name__ == "LowRank"
        assert not hasattr(layer, "loss")
        assert list(layer.parameters()) == ["a"]
        assert np.array_equal(layer.parameters()["a"], again.standard_normal((3, 5)))
        assert draws.random() == again.random()  # our generator is in the same state as theirs
        held = arrays_of(layer)
        assert list(held) == ["a", "w"]
        held["a"][...] = rng.standard_normal((3, 5))
        y, cache = layer.forward(x)
        assert np.allclose(y, x @ w + held["a"].sum())
        moved = with_parameters(layer, {"a": held["a"] + 1, "w": held["w"]})
        assert np.allclose(moved.forward(x)[0], y + 15)
        before = held["a"].copy()
        dx, grads = layer.backward(dy, cache)
        assert np.allclose(dx, dy @ w.T)
        assert np.array_equal(held["a"], 2 * before)
        assert np.allclose(grads["a"], 2 * before + dy.sum())


class WrongReplies(Process):
    """A process that replies with a given dict."""

    def __init__(self, reply: dict[str, Any]) -> None:
        self.reply, self.file, self.released = reply, Path("softmax.py"), []

    def ask(self, request: dict[str, Any]) -> tuple[dict[str, Any], list[Mutable]]:
        return self.reply, [np.ones(2), np.random.default_rng(0)]


A, RNG = np.ones(2), np.random.default_rng(1)


@each([
    {}, {"answer": 1}, {"answer": None, "changed": 3}, {"answer": None, "changed": [[5, A]]},
    {"answer": None, "changed": [["0", A]]}, {"answer": None, "changed": [[0, "text"]]},
    {"answer": None, "changed": [[1, A]]}, {"answer": None, "changed": [[0, RNG]]},
    {"answer": [1, {}, ["w"]], "changed": []}, {"answer": [1, {"w": 3}, ["w"]], "changed": []},
    {"answer": ["x", {}, []], "changed": []}, {"answer": [1], "changed": []},
    {"answer": [1, {1: A}, []], "changed": []},
])
def test_invalid_reply_raises_ended(reply: dict[str, Any]) -> None:
    process_ = WrongReplies(reply)
    of = "object" if isinstance(reply.get("answer"), list) else ""
    with pytest.raises(Ended):
        process_.call("f", (), {}, of)
    assert "wrote to the pipe of the grader" in process_.broken


def test_invalid_replies_to_copy_and_comparison() -> None:
    process_ = WrongReplies({"number": "x"})
    with pytest.raises(Ended):
        copy.deepcopy(Remote(process_, 1))
    assert Remote(process_, 1) != Remote(process_, 2)


def test_message_with_wrong_request_number_raises_ended(tmp_path: Path) -> None:
    """A file can find the pipe and write a whole message; the message must have the number of the request."""
    text = """
import os
from numpy_attention.grade.wire import Encoder
def softmax(x, axis=-1):
    for i in range(3, 12):
        try:
            os.write(i, Encoder({"answer": 3, "changed": [], "to": 0}).line)
        except OSError:
            pass
    return x, x
"""
    with process(tmp_path, with_more(text)) as module:
        module.load()
        with pytest.raises(Ended):
            module.softmax(np.ones(2))
        assert "wrote to the pipe of the grader" in module.broken


def test_exit_is_noticed_before_the_time_limit(tmp_path: Path) -> None:
    began = time.monotonic()
    with process(tmp_path, with_more("import os\ndef softmax(x, axis=-1): os._exit(0)"), 3000.0) as module:
        module.load()
        with pytest.raises(Ended):
            module.softmax(np.ones(2))
        assert module.why() == ""
    assert time.monotonic() - began < 1000


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_stopped_process_raises_ended_at_the_time_limit(tmp_path: Path) -> None:
    """The request is larger than the buffer of a pipe, so writing it never returns."""
    with process(tmp_path, with_more("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)"), 0.2) as module:
        with pytest.raises(Ended):
            module.load()
        with pytest.raises(Ended):
            module.ask({"do": "ready", "large": np.zeros(1 << 18)})
        assert module.why() == "Timeout of the file"
    assert not any(thread.is_alive() for thread in module._threads)


def test_only_the_first_printed_bytes_are_stored(tmp_path: Path) -> None:
    with process(tmp_path, with_more("import os\nos.write(2, b'x' * 10**8)\n"), 3000.0) as module:
        with pytest.raises(Ended):
            module.load()
        assert module.size > MAX_PRINTED
        assert module.size < MAX_PRINTED + (1 << 20), "the rest is not even read"
        assert len(module.printed) == MAX_STORED


def test_traceback_at_the_time_limit_names_the_function(tmp_path: Path) -> None:
    with process(tmp_path, with_more("def softmax(x, axis=-1):\n    while True: pass\n"), 1.0) as module:
        module.load()
        with pytest.raises(Ended):
            module.softmax(np.ones(2))
        assert "in softmax" in module.why()
    assert module.released == []
    assert not Path(module._folder.name).exists()


def test_failed_start_of_a_process_is_an_error_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(subprocess, "Popen", none)
    with pytest.raises(InputError, match=r"^cannot start another Python: Resource temporarily unavailable; .*ulimit"):
        process(tmp_path, with_more(""))
    assert [path.name for path in tmp_path.iterdir()] == ["softmax.py"]


@pytest.mark.parametrize("granted", range(2))
def test_failed_start_of_a_thread_ends_the_process_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, granted: int
) -> None:
    processes, threads, popen, start = [], list(range(granted)), subprocess.Popen, threading.Thread.start

    def kept(*arguments: Any, **options: Any) -> Any:
        processes.append(popen(*arguments, **options))
        return processes[0]

    def begin(thread: threading.Thread) -> None:
        if not threads:
            raise RuntimeError("can't start new thread")
        threads.pop()
        start(thread)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(subprocess, "Popen", kept)
    monkeypatch.setattr(threading.Thread, "start", begin)
    with pytest.raises(InputError, match=r"^cannot start another thread: can't start new thread; .*ulimit"):
        process(tmp_path, with_more(""))
    assert processes[0].returncode is not None
    assert all(pipe.closed for pipe in (processes[0].stdin, processes[0].stdout, processes[0].stderr))
    assert [path.name for path in tmp_path.iterdir()] == ["softmax.py"]


def test_remote_error_has_type_message_and_line() -> None:
    reply = {"error": ["KeyError", "LookupError"], "message": "'w'", "line": 4, "text": "a['w']"}
    error: Any = remote_error(reply, "a.py")
    assert isinstance(error, LookupError)
    assert (str(error), type(error).__name__, error.place) == ("'w'", "KeyError", " (a.py, line 4: a['w'])")


def test_remote_error_keeps_not_implemented_and_refusal() -> None:
    assert isinstance(remote_error({"error": ["NotImplementedError"], "message": ""}, "a.py"), NotImplementedError)
    refusal = {"error": ["NotOwnWork"], "message": "derive it", "refused": True}
    assert isinstance(remote_error(refusal, "a.py"), NotOwnWork)


@each([
    ["AxisError", "ValueError"], ["UnicodeDecodeError", "UnicodeError", "ValueError"], ["SystemExit", "BaseException"],
    ["ExceptionGroup", "Exception"], ["print"], ["not a name", "ValueError"], [], "text", [None, 3], ["open", "dict"],
])
def test_remote_error_accepts_any_name(kinds: object) -> None:
    error = remote_error({"error": kinds, "message": "so"}, "a.py")
    assert isinstance(error, Exception)
    assert str(error) == "so"
    assert isinstance(error, ValueError) == (isinstance(kinds, list) and "ValueError" in kinds)


def test_remote_error_escapes_and_shortens_message() -> None:
    reply = {"error": ["ValueError"], "message": "a\x1b[31m\udc80\x07\nb" + "c" * 5000, "line": "no"}
    error: Any = remote_error(reply, "a.py")
    assert str(error).startswith("a\\x1b[31m\\udc80\\x07\nbccc")
    assert len(str(error)) < 2100
    assert error.place == ""
