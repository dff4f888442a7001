"""The grader's end of the wire: the process that runs a student's file, and its functions as if they were here.

    with Remote(file, exercise, seconds) as module:
        y, cache = module.softmax(x)                 the file's own function, called over there
        dx = module.softmax_backward(dy, cache)

A `cache` is the number of one that stays there. What a function changes in place is changed here too, so that whoever
looks for such changes finds them. Nothing that comes is believed to be more than the arrays that a student's function
gave: there is no word for "right" in what is sent. A patched NumPy, a replaced checker or an early exit spoil the
student's own process alone.

What this does not defend against: a file that sets out to leave its process group, to read this process's memory, or
to delete your files. It runs with your rights; do not grade the files of people whom you do not trust.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Self

import numpy as np

from numpy_attention.catalogue.exercise import Exercise
from numpy_attention.errors import InputError
from numpy_attention.files import temporary_folder
from numpy_attention.grade.proxies import Answer, Class, Function
from numpy_attention.grade.stopped import stopped
from numpy_attention.grade.wire import WireError, pack, unpack

SHOWN = 1 << 14  # bytes that are kept of what the file prints
FLOOD = 1 << 24  # more than that ends it
START = 60.0  # seconds until a Python is there, with NumPy
GROUPS = hasattr(os, "killpg")  # Windows has no process groups to end at once
GRACE = 0.5  # seconds beyond its time, in which it may say where it stands
NO_MORE = "cannot start another {}; end other programs, or raise the limit on processes (ulimit -u)"


class Ended(BaseException):
    """The process is no more: its time is over, or it left. No property may take that for a wrong answer."""


class Remote:
    """A process with a student's file in it; its functions and classes are attributes of this.

    Raises: InputError where the system lets no process, thread or temporary folder be made.
    """

    def __init__(self, file: Path, exercise: Exercise, seconds: float) -> None:
        self.file, self.exercise, self.seconds = file, exercise, seconds
        self.released: list[int] = []
        self.printed, self.size, self.broken = b"", 0, ""
        self._folder = temporary_folder()
        self._where = Path(self._folder.name, "where.txt")
        command = [
            sys.executable, "-W", "ignore", "-m", "numpy_attention.grade.worker", " ".join(exercise.answers),
            " ".join(exercise.parts)
        ]
        root = str(Path(__file__).parents[2])
        environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
            "OPENBLAS_NUM_THREADS": "1"
        }
        self._deadline = time.monotonic() + START
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(
                command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0,
                start_new_session=GROUPS
            )
        except OSError as error:
            self._folder.cleanup()
            raise InputError(NO_MORE.format(f"Python: {error.strerror or error}")) from None
        self._replies: SimpleQueue[Any] = SimpleQueue()
        self._asked, self._number = threading.Semaphore(0), 0
        # A read cannot be given up, a thread that reads can be: some process out of reach may hold the pipe open.
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._receive, self._listen)]
        self._alarm = threading.Timer(START + seconds + 2 * GRACE, self._kill)  # for a request that nobody takes
        self._alarm.daemon = True
        try:
            for thread in (*self._threads, self._alarm):
                thread.start()
        except RuntimeError as error:
            with self._process:  # closes the pipes that no thread has taken
                self.__exit__()
            raise InputError(NO_MORE.format(f"thread: {error}")) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End it with all its children; nothing of it is waited for."""
        self._alarm.cancel()
        self._kill()
        self._process.wait()
        self._asked.release()
        for thread in filter(threading.Thread.is_alive, self._threads):  # each closes its own pipe
            thread.join(timeout=1.0)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._folder.cleanup()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if GROUPS:
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()

    def _receive(self) -> None:
        stream = self._process.stdout
        assert stream is not None

        def read(n: int) -> bytes:
            data = bytearray()
            while len(data) < n:
                more = stream.read(min(n - len(data), 1 << 20))
                if not more:
                    raise EOFError
                data += more
            return bytes(data)

        with stream:
            try:
                while self._asked.acquire():  # no more replies than requests
                    self._replies.put(unpack(read))
            except (EOFError, OSError, WireError) as error:
                self._replies.put(error)

    def _listen(self) -> None:
        stream = self._process.stderr
        assert stream is not None
        with stream, contextlib.suppress(OSError):
            while data := stream.read(1 << 16):
                self.size += len(data)
                self.printed = (self.printed + data)[:SHOWN] if len(self.printed) < SHOWN else self.printed
                if self.size > FLOOD:
                    self._kill()
                    return

    def load(self) -> dict[str, Any]:
        """Import the file over there; `failed` in the reply says why that is not possible."""
        self.ask({"do": "ready"}, [])
        self._deadline = time.monotonic() + self.seconds + GRACE  # the student's time begins here
        reply, _ = self.ask({
            "do": "load", "file": str(self.file.resolve()), "needed": self.exercise.needed, "seconds": self.seconds,
            "where": str(self._where),
        }, [])
        for name, kind in self.exercise.needed.items():
            forward = f"{name}_backward" in self.exercise.needed
            setattr(self, name, Class(self, name) if kind == "class" else Function(self, name, forward))
        return reply

    def ask(self, form: dict[str, Any], arrays: list[np.ndarray]) -> Answer:
        """Send a request and wait for its reply.

        Raises: Ended where none comes; what the function raised, where it raised.
        """
        free, self.released = self.released, []
        stream = self._process.stdin
        assert stream is not None
        self._number += 1
        data = memoryview(pack({**form, "number": self._number, "free": free}, arrays))
        self._asked.release()
        try:
            while data:
                data = data[stream.write(data):]
        except OSError:
            raise Ended from None
        reply = self._reply()
        if isinstance(reply, WireError):
            raise self.garbled(reply)
        if isinstance(reply, Exception):
            raise Ended
        answer, found = reply
        if answer.get("to") != self._number:
            raise self.garbled(ValueError("a reply to another request"))
        if "error" in answer:
            raise stopped(answer, self.file.name)
        return answer, found

    def _reply(self) -> Any:
        """The next one; its process may end without one, and another hold the pipe open."""
        while True:
            left, ended = self._deadline - time.monotonic(), self._process.poll() is not None
            try:
                return self._replies.get(timeout=min(max(left, 0.0), GRACE))
            except Empty:
                if ended or left <= 0:
                    raise Ended from None

    def garbled(self, error: Exception) -> Ended:
        """What to raise at a reply that makes no sense."""
        self.broken = f"{self.file.name} wrote where the grader listens, so that no answer can be read: {error}"
        return Ended()

    def why(self) -> str:
        """Where it stood when its time was over, as it said itself; "" where it ended for another reason."""
        late = time.monotonic() >= self._deadline
        with contextlib.suppress(OSError), self._where.open(encoding="utf-8", errors="replace") as where:
            said = where.read(1 << 16)
            return said or ("Timeout" if late else "")
        return "Timeout" if late else ""
