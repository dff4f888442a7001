"""The worker imports a file before it is graded; the tutor explains every problem of the import."""

import subprocess
import sys
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numpy_attention.catalogue.table import EXERCISES
from numpy_attention.grade.run import grade_file, main
from numpy_attention.grade.wire import Encoder, Reference, decode
from numpy_attention.grade.worker import Worker, limit_process, serve
from tests.grade.hand_in import FOLDER, grade


@pytest.mark.parametrize(("before", "words"), [
    ("import numpi\n", "cannot be imported: No module named 'numpi' (line 1: import numpi)"),
    ("def softmax(:\n", "is not valid Python: invalid syntax, line 1"),
    ("1 / 0\n", "raises an error when it is imported, ZeroDivisionError"),
    ("import os\nos._exit(3)\n", "ended the Python process"),
    ("raise SystemExit(5)\n", "raises an error when it is imported, SystemExit"),
])
def test_failed_import_is_explained(tmp_path: Path, before: str, words: str) -> None:
    code, output = grade(tmp_path, "softmax", "pass", before=before)
    assert code == 1
    assert words in output
    assert "Traceback" not in output


@pytest.mark.parametrize("data", ["x = 1\n".encode("utf-16"), b"\x7fELF\0\0", b"# coding: utf-99\n"])
def test_file_that_is_not_text_is_explained(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "softmax.py"
    file.write_bytes(data)
    graded = grade_file(file, EXERCISES["softmax"])
    assert graded.state == "broken"
    assert graded.text.startswith("  softmax.py is not a text that Python can read (")
    assert graded.text.endswith("): save it again as plain text in UTF-8")


def test_file_can_import_modules_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "my_helper.py").write_text("print('from the helper')\n")
    _, output = grade(tmp_path, "softmax", "pass", before="import my_helper\n")
    assert "from the helper" in output
    assert "cannot be imported" not in output


def test_missing_function_is_named(tmp_path: Path) -> None:
    file = tmp_path / "softmax_mine.py"
    file.write_text("def softmax(x):\n    pass\n")
    out = StringIO()
    assert main([str(file)], stream=out) == 1
    assert "must define the function softmax_backward" in out.getvalue()


def test_printed_text_is_shown(tmp_path: Path) -> None:
    _, output = grade(tmp_path, "softmax", "print('here', dy.shape)\n    return dy")
    assert "The file printed:" in output
    assert "here (" in output


def test_only_first_printed_lines_are_shown(tmp_path: Path) -> None:
    file = tmp_path / "softmax.py"
    file.write_text("for i in range(20): print('line', i)\n" + (FOLDER / "softmax.py").read_text("utf-8"))
    grade = grade_file(file, EXERCISES["softmax"])
    assert (grade.exercise, grade.state) == ("softmax", "to do")
    assert "    line 11" in grade.lines
    assert grade.lines[-1].strip() == "... and 8 more lines"


def test_function_in_place_of_a_class_is_named(tmp_path: Path) -> None:
    file = tmp_path / "adam.py"
    file.write_text("def Adam(): pass\n")
    assert "must define the class Adam" in grade_file(file, EXERCISES["adam"]).text


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    file = tmp_path / "softmax.py"
    file.write_text(
        "import numpy as np\n"
        "def softmax(x, axis=-1):\n    return 2 * x, {'x': x}\n"
        "def softmax_backward(dy, cache):\n    cache['x'] += 1\n    dy *= 3\n    return dy\n"
        "class Both:\n    def __init__(self, p):\n        self.p = p\n    def step(self, g):\n        self.p -= g\n"
    )
    worker = Worker()
    needed = {"softmax": "function", "softmax_backward": "function", "Both": "class"}
    assert worker.load({"file": str(file), "needed": needed}) == {}
    return worker


def ask(worker: Worker, do: str, **request: Any) -> dict[str, Any]:
    """The reply to a request."""
    line = Encoder({"do": do, **request, "number": 3, "free": []}).line
    reply, _ = decode(worker.answer(line), Reference)
    assert reply.pop("to") == 3
    return reply


def call(worker: Worker, name: str, *args: Any, of: str = "", on: int = 0, own: Any = ()) -> tuple[Any, list[Any]]:
    """Call a function; return its result, and the changed arrays with their indices."""
    reply = ask(worker, "call", name=name, **{"as": of, "on": on, "own": list(own), "args": args, "kwargs": {}})
    return reply["answer"], reply["changed"]


def test_cache_is_stored_and_changed_arrays_are_reported_by_index(
    worker: Worker, rng: np.random.Generator
) -> None:
    x, dy = rng.standard_normal((2, 3)), rng.standard_normal((2, 3))
    (y, cache), changed = call(worker, "softmax", x.copy(), of="pair")
    assert np.array_equal(y, 2 * x)
    assert changed == []
    answer, changed = call(worker, "softmax_backward", dy.copy(), cache)
    assert np.array_equal(answer, 3 * dy)
    assert [i for i, _ in changed] == [0, 1], "first dy, then the x that the cache was made from"
    assert np.array_equal(changed[0][1], 3 * dy)
    assert np.array_equal(changed[1][1], x + 1)
    assert call(worker, "softmax", x, of="peak")[0] > x.nbytes


def test_caches_are_copied_and_compared(worker: Worker, rng: np.random.Generator) -> None:
    (_, cache), _ = call(worker, "softmax", rng.standard_normal(4), of="pair")
    copied = ask(worker, "copy", on=cache.number, own=[])["number"]
    assert copied != cache.number
    assert ask(worker, "same", two=[cache.number, copied]) == {"same": True}
    call(worker, "softmax_backward", rng.standard_normal(4), cache)
    assert ask(worker, "same", two=[cache.number, copied]) == {"same": False}


def test_object_is_stored_and_changes_its_arrays(worker: Worker, rng: np.random.Generator) -> None:
    p, g = rng.standard_normal(3), rng.standard_normal(3)
    (number, own, learn), _ = call(worker, "Both", p.copy(), of="object")
    assert (own, learn) == (None, [])
    p += 1  # the request contains the new values of our array
    _, changed = call(worker, "step", g, on=number, own=[p])
    (i, moved), = changed
    assert i == 0
    assert np.array_equal(moved, p - g)


def test_error_reply_has_types_message_and_line(worker: Worker) -> None:
    wanted = {"as": "", "on": 0, "own": [], "args": (np.ones(2), None), "kwargs": {}}
    output = ask(worker, "call", name="softmax_backward", **wanted)
    assert output["error"][:2] == ["TypeError", "Exception"]
    assert "not subscriptable" in output["message"]
    assert (output["line"], output["text"]) == (5, "cache['x'] += 1")


class Gone(BytesIO):
    """A pipe whose reading process has ended."""

    def write(self, data: Any) -> int:
        raise BrokenPipeError


@pytest.mark.parametrize(("requests", "replies"), [
    (Encoder({"do": "ready", "number": 1, "free": []}).line, Gone()), (b"right\n" * 100, BytesIO()), (b"", BytesIO()),
], ids=["no reader", "invalid", "closed"])
def test_serve_ends_silently_with_closed_or_invalid_pipe(requests: bytes, replies: BytesIO) -> None:
    serve(BytesIO(requests), replies)


WITHIN = """
import numpy as np
from numpy_attention.grade.worker import limit_process
limit_process(30.0)
try:
    held = np.ones(1 << 29)
except MemoryError:
    print("refused")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have no limit on addresses")
def test_an_array_of_four_gigabytes_is_refused() -> None:
    done = subprocess.run([sys.executable, "-c", WITHIN], capture_output=True, text=True, check=True)
    assert done.stdout == "refused\n"


def test_other_limits_hold_on_a_system_that_refuses_a_limit_of_memory_as_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    resource, limited = pytest.importorskip("resource"), []

    def refuse_memory(kind: int, limits: tuple[int, int]) -> None:
        if kind == resource.RLIMIT_AS:
            raise ValueError("current limit exceeds maximum limit")
        limited.append((kind, limits[0]))

    monkeypatch.setattr(resource, "setrlimit", refuse_memory)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    limit_process(30.0)
    assert limited == [(resource.RLIMIT_CPU, 32), (resource.RLIMIT_CORE, 0)]
