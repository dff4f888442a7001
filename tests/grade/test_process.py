"""The other process is started, asked and ended; nothing that it does keeps this one waiting."""

import errno
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numpy_attention.catalogue.table import EXERCISES
from numpy_attention.errors import InputError
from numpy_attention.grade.process import FLOOD, SHOWN, Ended, Process
from tests.grade.hand_in import FOLDER


def process(tmp_path: Path, text: str, seconds: float = 60.0) -> Process:
    file = tmp_path / "softmax.py"
    file.write_text((FOLDER / "softmax.py").read_text("utf-8") + text)
    return Process(file, EXERCISES["softmax"], seconds)


def test_what_a_function_raises_there_it_raises_here(tmp_path: Path) -> None:
    with process(tmp_path, "") as module:
        assert module.load().keys() == {"to"}
        y, cache = module.softmax(np.ones((2, 3)))
        with pytest.raises(NotImplementedError) as failure:
            module.softmax_backward(y, cache)
        with pytest.raises(ValueError, match="out of bounds"):
            module.softmax(np.ones(3), axis=4)
    assert failure.value.place.startswith(" (softmax.py, line ")


def test_a_message_of_somebody_else_is_no_reply(tmp_path: Path) -> None:
    """Whoever finds the pipe can write a whole message into it; it must be a reply to this very request."""
    text = """
import os
from numpy_attention.grade.messages import pack
def softmax(x, axis=-1):
    for i in range(3, 12):
        try:
            os.write(i, pack({"answer": 3, "changed": [], "generators": [], "to": 0}, []))
        except OSError:
            pass
    return x, x
"""
    with process(tmp_path, text) as module:
        module.load()
        with pytest.raises(Ended):
            module.softmax(np.ones(2))
        assert "wrote where the grader listens" in module.broken


def test_a_process_that_left_is_noticed_before_its_time_is_over(tmp_path: Path) -> None:
    began = time.monotonic()
    with process(tmp_path, "import os\ndef softmax(x, axis=-1): os._exit(0)", 3000.0) as module:
        module.load()
        with pytest.raises(Ended):
            module.softmax(np.ones(2))
        assert module.why() == ""
    assert time.monotonic() - began < 1000


def test_of_what_is_printed_at_once_little_is_kept(tmp_path: Path) -> None:
    with process(tmp_path, "import os\nos.write(2, b'x' * 10**8)\n", 3000.0) as module:
        with pytest.raises(Ended):
            module.load()
        assert module.size > FLOOD
        assert module.size < FLOOD + (1 << 20), "the rest is not even read"
        assert len(module.printed) == SHOWN


def test_after_its_time_it_says_where_it_stood(tmp_path: Path) -> None:
    with process(tmp_path, "def softmax(x, axis=-1):\n    while True: pass\n", 1.0) as module:
        module.load()
        with pytest.raises(Ended):
            module.softmax(np.ones(2))
        assert "in softmax" in module.why()
    assert module.released == []
    assert not Path(module._folder.name).exists()


def test_where_no_process_can_be_started_that_is_said_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(subprocess, "Popen", none)
    with pytest.raises(InputError, match=r"^cannot start another Python: Resource temporarily unavailable; .*ulimit"):
        process(tmp_path, "")
    assert [path.name for path in tmp_path.iterdir()] == ["softmax.py"]


@pytest.mark.parametrize("granted", range(3))
def test_where_no_thread_can_be_started_the_process_ends_and_nothing_is_left(
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
        process(tmp_path, "")
    assert processes[0].returncode is not None
    assert all(pipe.closed for pipe in (processes[0].stdin, processes[0].stdout, processes[0].stderr))
    assert [path.name for path in tmp_path.iterdir()] == ["softmax.py"]
