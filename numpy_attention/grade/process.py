"""The grader's side: starts the process that runs a student's file, and calls the functions of the file there.

    with Process(file, exercise, seconds) as module:
        y, cache = module.softmax(x)                 the student's function, called in the other process
        dx = module.softmax_backward(dy, cache)

A cache, a layer and an optimizer stay in the other process; here each is represented by a `Remote`. If a function
changes an array in place, the caller's array here is changed too, so the checks for such changes find it. The other
process sends only the results of the student's functions and never a grade. A patched NumPy, a replaced checker or an
early exit affects only the student's own process.

This does not protect you from a file that deletes your files, reads the memory of this process, or starts processes by
C code, which may leave the process group. The file runs with your permissions: grade files of people whom you do not
trust in a container.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from types import SimpleNamespace
from typing import Any, BinaryIO, Self, cast

import numpy as np

from numpy_attention.catalogue.exercise import Exercise
from numpy_attention.errors import InputError, escaped
from numpy_attention.grade.guard import NotOwnWork
from numpy_attention.grade.wire import MAX_TEXT, Encoder, InvalidMessage, Mutable, Reference, decode, read_line

MAX_STORED = 1 << 14  # bytes of printed text that are stored
MAX_PRINTED = 1 << 24  # bytes; if a file prints more, its process is killed
START_SECONDS = 60.0  # time limit for the start of Python and the import of NumPy
FILE_LIMIT = 6.0  # time limit for a whole file, and for its import, as a multiple of the time limit for one call
HAS_PROCESS_GROUPS = hasattr(os, "killpg")  # Windows has no process groups
GRACE = 0.5  # seconds after the time limit, in which the process writes its traceback
METHODS = ("forward", "backward", "step")
MAX_RELEASED = 1000  # limit of the stored objects that one request releases
KINDS = (  # base classes of exceptions that the tutor or the checker distinguishes
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, NotImplementedError, OSError,
    RuntimeError, TypeError, ValueError,
)
CANNOT_START = "cannot start another {}; stop other programs, or raise the limit on processes (ulimit -u)"


class Ended(BaseException):
    """The process has ended. A BaseException, so that `except Exception` does not treat it as a wrong answer."""


class Remote(Reference):
    """A cache, a layer or an optimizer in the other process.

    `watched` are the caller's arrays from which a cache was made: a backward may change them through the cache. `own`
    contains the arrays of an object by name; they are sent with every call of a method. `learn` contains the names of
    the trainable arrays.
    """

    __slots__ = ("learn", "own", "process", "watched")  # without __dict__, so that `same` calls __eq__

    def __init__(
        self, process: "Process", number: int, watched: Sequence[Mutable] = (), own: Mapping[str, Any] | None = None,
        learn: Sequence[str] = (),
    ) -> None:
        super().__init__(number)
        self.process, self.watched, self.learn = process, watched, learn
        self.own = SimpleNamespace(**(own or {}))

    def __getattr__(self, name: str) -> Any:
        if name not in METHODS:
            raise AttributeError(name)
        return lambda *args, **kwargs: self.process.call(name, args, kwargs, "pair" if name == "forward" else "", self)

    def parameters(self) -> dict[str, np.ndarray]:
        """The trainable arrays by name."""
        return {name: getattr(self.own, name) for name in self.learn}

    def arrays(self) -> Iterator[tuple[str, Any, str]]:
        """Every array, in the form of `Layer.arrays`: its name, the object that contains it, and its name there."""
        for name in vars(self.own):
            yield name, self.own, name

    def __deepcopy__(self, memo: dict[int, Any]) -> "Remote":
        """A copy in the other process, with the arrays of the memo in place of the original arrays."""
        own = {name: memo[id(array)] if id(array) in memo else array.copy() for name, array in vars(self.own).items()}
        reply, _ = self.process.ask({"do": "copy", "on": self.number, "own": list(own.values())})
        return type(self)(self.process, self.process.count(reply.get("number")), (), own, self.learn)

    def __eq__(self, other: object) -> bool:
        """Whether both objects of the other process are equal to the last bit."""
        if not isinstance(other, Remote):
            return False
        return self.process.ask({"do": "same", "two": [self.number, other.number]})[0].get("same") is True

    def __hash__(self) -> int:
        return self.number

    def __del__(self) -> None:
        self.process.released.append(self.number)


class Process:
    """A process that runs a student's file; the functions and classes of the file become attributes.

    `seconds` is the time limit for one call: an endless loop is one call that never returns.

    Raises: InputError if the system allows no further process, thread or temporary folder.
    """

    def __init__(self, file: Path, exercise: Exercise, seconds: float) -> None:
        self.file, self.exercise, self.seconds = file, exercise, seconds
        self.released: list[int] = []
        self.printed, self.size, self.broken = b"", 0, ""
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._where = Path(self._folder.name, "where.txt")
        guarded = " ".join(exercise.answers), " ".join(exercise.parts)
        command = [sys.executable, "-W", "ignore", "-m", "numpy_attention.grade.worker", *guarded]
        root = str(Path(__file__).parents[2])
        environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
            "OPENBLAS_NUM_THREADS": "1"
        }
        self.limit, self._deadline, self._end = START_SECONDS, 0.0, float("inf")
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(
                command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=HAS_PROCESS_GROUPS)
        except OSError as error:
            self._folder.cleanup()
            raise InputError(CANNOT_START.format(f"Python: {error.strerror or error}")) from None
        self._number = 0
        self._requests: SimpleQueue[bytes | None] = SimpleQueue()
        self._replies: SimpleQueue[bytes | Exception] = SimpleQueue()
        # Threads use the pipes: a read or a write may never return, if a child process keeps a pipe open.
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._exchange, self._listen)]
        try:
            for thread in self._threads:
                thread.start()
        except RuntimeError as error:
            with self._process:  # closes the pipes that no thread uses
                self.__exit__()
            raise InputError(CANNOT_START.format(f"thread: {error}")) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the process and all its children."""
        self._kill()
        self._process.wait()
        self._requests.put(None)
        for thread in filter(threading.Thread.is_alive, self._threads):  # each closes its own pipe
            thread.join(timeout=1.0)
        self._folder.cleanup()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if HAS_PROCESS_GROUPS:
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()

    def _exchange(self) -> None:
        """Write requests; read exactly one reply for each."""
        requests, replies = cast(BinaryIO, self._process.stdin), cast(BinaryIO, self._process.stdout)
        try:
            with requests, replies:
                while (line := self._requests.get()) is not None:
                    requests.write(line)
                    requests.flush()
                    self._replies.put(read_line(replies))
        except (EOFError, OSError) as error:
            self._replies.put(error)

    def _listen(self) -> None:
        stream: Any = self._process.stderr
        with stream, contextlib.suppress(OSError):
            while data := stream.read1(1 << 16):
                self.size += len(data)
                self.printed = (self.printed + data)[:MAX_STORED] if len(self.printed) < MAX_STORED else self.printed
                if self.size > MAX_PRINTED:
                    self._kill()
                    return

    def load(self) -> dict[str, Any]:
        """Import the file in the other process; if this fails, the reply contains the reason in `failed`."""
        self.ask({"do": "ready"})
        self.limit = self.file_limit
        self._end = time.monotonic() + self.file_limit + GRACE  # the student's time begins here
        needed = self.exercise.needed
        reply, _ = self.ask({
            "do": "load", "file": str(self.file.resolve()), "needed": needed, "where": str(self._where)})
        self.limit = self.seconds
        for name, kind in needed.items():
            of = "object" if kind == "class" else "pair" if f"{name}_backward" in needed else ""
            setattr(self, name, self._function(name, of))
        return reply

    @property
    def file_limit(self) -> float:
        """The time limit for the whole file, in seconds."""
        return FILE_LIMIT * self.seconds

    def _function(self, name: str, of: str) -> Callable[..., Any]:
        def f(*args: Any, **kwargs: Any) -> Any:
            return self.call(name, args, kwargs, of)

        f.__name__ = f.__qualname__ = name
        vars(f)["peak_memory"] = lambda *args: self.count(self.call(name, args, {}, "peak"))
        return f

    def call(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], of: str = "", on: Remote | None = None
    ) -> Any:
        """Call a function or a method in the other process, and make its in-place changes here too.

        `of` is "" for the plain result, "pair" if the second part of the result stays in the other process, "object"
        if the whole result stays there, or "peak" for the peak memory of the call.

        Raises: the exception of the function; AssertionError if the function changed an array's shape in place.
        """
        reply, watched = self.ask({
            "do": "call", "name": name, "as": of, "on": on.number if on is not None else 0,
            "own": list(vars(on.own).values()) if on is not None else [], "args": args, "kwargs": kwargs,
        })
        reshaped = []
        try:
            answer = self._object(name, watched, *reply["answer"]) if of == "object" else reply["answer"]
            for i, theirs in reply["changed"]:
                ours = watched[i]
                if isinstance(ours, np.random.Generator):
                    ours.bit_generator.state = theirs.bit_generator.state
                elif ours.shape == theirs.shape:
                    ours[...] = theirs
                else:
                    reshaped.append(ours.shape)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise self.invalid_reply(error) from None
        assert not reshaped, f"{name} changed the shape of the caller's array {reshaped[0]} in place"
        return answer

    def _object(self, name: str, made_from: list[Mutable], number: Any, own: Any, learn: Any) -> Remote:
        """An object with its arrays: for a layer, the arrays in the reply; otherwise the arrays in `made_from`."""
        if own is None:
            own = {str(i): one for i, one in enumerate(made_from) if isinstance(one, np.ndarray)}
        if not set(learn) <= own.keys() or not all(isinstance(one, np.ndarray) for one in own.values()):
            raise ValueError("a layer without its arrays")
        made: Remote = type(name, (Remote,), {"__slots__": ()})(self, self.count(number), (), own, learn)
        return made

    def count(self, number: Any) -> int:
        """The number in a reply, checked to be an int."""
        if not isinstance(number, int):
            raise self.invalid_reply(ValueError(f"expected a number, got {str(number)[:80]!r}"))
        return number

    def ask(self, request: dict[str, Any]) -> tuple[dict[str, Any], list[Mutable]]:
        """Send a request; return its reply, and the arrays and generators that the request may have changed.

        Raises: Ended if no reply comes; the exception of the student's function if there is one.
        """
        free = [self.released.pop() for _ in range(min(len(self.released), MAX_RELEASED))]
        self._number += 1
        sent = Encoder({**request, "number": self._number, "free": free, "seconds": self.limit})
        self._deadline = min(time.monotonic() + self.limit + GRACE, self._end)
        self._requests.put(sent.line)
        try:
            reply, _ = decode(self._reply(), lambda number: Remote(self, number, sent.mutables))
        except InvalidMessage as error:
            raise self.invalid_reply(error) from None
        if reply.get("to") != self._number:
            raise self.invalid_reply(ValueError("a reply to another request"))
        if "error" in reply:
            raise remote_error(reply, self.file.name)
        return reply, [*sent.mutables, *(one for remote in sent.references for one in remote.watched)]

    def _reply(self) -> bytes:
        """The next reply.

        Raises: Ended if no reply comes. The process may have ended while its child keeps the pipe open.
        """
        while True:
            left, ended = self._deadline - time.monotonic(), self._process.poll() is not None
            try:
                line = self._replies.get(timeout=min(max(left, 0.0), GRACE))
            except Empty:
                if ended or left <= 0:
                    raise Ended from None
                continue
            if isinstance(line, Exception):
                raise Ended
            return line

    def invalid_reply(self, error: Exception) -> Ended:
        """The exception to raise for an invalid reply."""
        said = escaped(str(error)[:MAX_TEXT])
        self.broken = f"{self.file.name} wrote to the pipe of the grader, so its reply cannot be read: {said}"
        return Ended()

    def why(self) -> str:
        """The traceback that the process wrote at the time limit of a call; "" if it ended for another reason."""
        with contextlib.suppress(OSError), self._where.open(encoding="utf-8", errors="replace") as where:
            if said := where.read(1 << 16):
                return said
        now = time.monotonic()
        return "Timeout of the file" if now >= self._end else "Timeout" if now >= self._deadline else ""


def remote_error(reply: Mapping[str, Any], file: str) -> Exception:
    """An exception like the one that a function of the file raised: the same name, and a base class of KINDS.

    Unprintable characters of its message are escaped. Its attribute `place` is the line of the file.
    """
    message = escaped(str(reply.get("message", ""))[:MAX_TEXT])
    if reply.get("refused"):
        return NotOwnWork(message)
    kinds = [str(kind) for kind in reply["error"]] if isinstance(reply["error"], list) else []
    base: type[Exception] = next((one for kind in kinds for one in KINDS if one.__name__ == kind), Exception)
    name = kinds[0] if kinds and kinds[0].isidentifier() else "Exception"
    line, text = reply.get("line"), escaped(str(reply.get("text", ""))[:200])
    place = f" ({file}, line {line}: {text})" if isinstance(line, int) and line > 0 else ""
    error: Exception = type(name, (base,), {"__str__": lambda _: message, "place": place})(message)
    return error
