"""The other process is started, asked and ended; nothing that it does keeps this one waiting."""

import time
from pathlib import Path

import numpy as np
import pytest

from numpy_attention.grade.exercises import EXERCISES
from numpy_attention.grade.remote import FLOOD, SHOWN, Ended, Remote
from tests.grade.hand_in import FOLDER


def remote(tmp_path: Path, text: str, seconds: float = 60.0) -> Remote:
    file = tmp_path / "softmax.py"
    file.write_text((FOLDER / "softmax.py").read_text() + text)
    return Remote(file, EXERCISES["softmax"], seconds)


def test_what_a_function_raises_there_it_raises_here(tmp_path: Path) -> None:
    with remote(tmp_path, "") as module:
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
from numpy_attention.grade.wire import pack
def softmax(x, axis=-1):
    for i in range(3, 12):
        try:
            os.write(i, pack({"answer": 3, "changed": [], "generators": [], "to": 0}, []))
        except OSError:
            pass
    return x, x
"""
    with remote(tmp_path, text) as module:
        module.load()
        with pytest.raises(Ended):
            module.softmax(np.ones(2))
        assert "wrote where the grader listens" in module.broken


def test_a_process_that_left_is_noticed_before_its_time_is_over(tmp_path: Path) -> None:
    began = time.monotonic()
    with remote(tmp_path, "import os\ndef softmax(x, axis=-1): os._exit(0)", 3000.0) as module:
        module.load()
        with pytest.raises(Ended):
            module.softmax(np.ones(2))
        assert module.why() == ""
    assert time.monotonic() - began < 1000


def test_of_what_is_printed_at_once_little_is_kept(tmp_path: Path) -> None:
    with remote(tmp_path, "import os\nos.write(2, b'x' * 10**8)\n", 3000.0) as module:
        with pytest.raises(Ended):
            module.load()
        assert module.size > FLOOD
        assert module.size < FLOOD + (1 << 20), "the rest is not even read"
        assert len(module.printed) == SHOWN


def test_after_its_time_it_says_where_it_stood(tmp_path: Path) -> None:
    with remote(tmp_path, "def softmax(x, axis=-1):\n    while True: pass\n", 1.0) as module:
        module.load()
        with pytest.raises(Ended):
            module.softmax(np.ones(2))
        assert "in softmax" in module.why()
    assert module.released == []
    assert not Path(module._folder.name).exists()
