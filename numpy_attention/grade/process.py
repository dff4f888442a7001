"""The grader's end: the process that runs a student's file, and its functions as if they were here.

    with Process(file, exercise, seconds) as module:
        y, cache = module.softmax(x)                 the file's own function, called over there
        dx = module.softmax_backward(dy, cache)

A `cache`, a layer and an optimizer stay there: a `There` has the number of one. What a function changes in place is
changed here too, so that whoever looks for such changes finds them. Nothing that comes is believed to be more than the
arrays that a student's function gave: there is no word for "right" in what is sent. A patched NumPy, a replaced checker
or an early exit spoil the student's own process alone.

What this does not defend against: a file that sets out to leave its process group, to read this process's memory, or
to delete your files. It runs with your rights; do not grade the files of people whom you do not trust.
"""

import builtins
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from types import SimpleNamespace
from typing import Any, Self

import numpy as np

from numpy_attention.catalogue.exercise import Exercise
from numpy_attention.errors import InputError, printable
from numpy_attention.files import temporary_folder
from numpy_attention.grade.guard import NotYours
from numpy_attention.grade.messages import LONGEST, Garbled, Thing, Things, pack, unpack

SHOWN = 1 << 14  # bytes that are kept of what the file prints
FLOOD = 1 << 24  # more than that ends it
START = 60.0  # seconds until a Python is there, with NumPy
GROUPS = hasattr(os, "killpg")  # Windows has no process groups to end at once
GRACE = 0.5  # seconds beyond its time, in which it may say where it stands
METHODS = ("forward", "backward", "step")
NO_MORE = "cannot start another {}; end other programs, or raise the limit on processes (ulimit -u)"


class Ended(BaseException):
    """The process is no more: its time is over, or it left. No property may take that for a wrong answer."""


class There:
    """A cache, a layer or an optimizer in the other process, by its number.

    `watched` are our arrays from which a cache was made; `own` those that an object computes with, by name: it gets
    them with every call of a method, as they are then.
    """

    __slots__ = ("learn", "number", "own", "process", "watched")  # and no __dict__: two are compared over there

    def __init__(
        self, process: "Process", number: int, watched: Sequence[Thing] = (), own: Mapping[str, Any] | None = None,
        learn: Sequence[str] = (),
    ) -> None:
        self.process, self.number, self.watched = process, number, watched
        self.own, self.learn = SimpleNamespace(**(own or {})), learn

    def __getattr__(self, name: str) -> Any:
        """A method of the object, to be called over there."""
        if name not in METHODS:
            raise AttributeError(name)
        return lambda *args, **kwargs: self.process.call(name, args, kwargs, "pair" if name == "forward" else "", self)

    def parameters(self) -> dict[str, np.ndarray]:
        """Those of its arrays that learn."""
        return {name: getattr(self.own, name) for name in self.learn}

    def arrays(self) -> Iterator[tuple[str, Any, str]]:
        """Every array: its name, what holds it, and its name there."""
        for name in vars(self.own):
            yield name, self.own, name

    def __deepcopy__(self, memo: dict[int, Any]) -> "There":
        """A copy over there, on other arrays if the memo has some for its own."""
        own = {name: memo[id(array)] if id(array) in memo else array.copy() for name, array in vars(self.own).items()}
        number = self.process.ask({"do": "copy", "on": self.number}, list(own.values()))[0].get("number")
        return type(self)(self.process, self.process.count(number), (), own, self.learn)

    def __eq__(self, other: object) -> bool:
        """Equal to the last bit in all that it holds, as the other process says."""
        if not isinstance(other, There):
            return False
        return self.process.ask({"do": "same", "two": [self.number, other.number]})[0].get("same") is True

    def __hash__(self) -> int:
        return self.number

    def __del__(self) -> None:
        self.process.released.append(self.number)


class Process:
    """A process with a student's file in it; its functions and classes are attributes of this.

    Raises: InputError where the system lets no process, thread or temporary folder be made.
    """

    def __init__(self, file: Path, exercise: Exercise, seconds: float) -> None:
        self.file, self.exercise, self.seconds = file, exercise, seconds
        self.released: list[int] = []
        self.printed, self.size, self.broken = b"", 0, ""
        self._folder = temporary_folder()
        self._where = Path(self._folder.name, "where.txt")
        guarded = " ".join(exercise.answers), " ".join(exercise.parts)
        command = [sys.executable, "-W", "ignore", "-m", "numpy_attention.grade.worker", *guarded]
        root = str(Path(__file__).parents[2])
        environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
            "OPENBLAS_NUM_THREADS": "1"
        }
        self._deadline = time.monotonic() + START
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(
                command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=GROUPS)
        except OSError as error:
            self._folder.cleanup()
            raise InputError(NO_MORE.format(f"Python: {error.strerror or error}")) from None
        self._requests: Any = self._process.stdin
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
        with contextlib.suppress(OSError):  # what was not written yet nobody reads
            self._requests.close()
        self._folder.cleanup()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if GROUPS:
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()

    def _receive(self) -> None:
        stream: Any = self._process.stdout
        with stream:
            try:
                while self._asked.acquire():  # no more replies than requests
                    self._replies.put(unpack(stream))
            except (EOFError, OSError, Garbled) as error:
                self._replies.put(error)

    def _listen(self) -> None:
        stream: Any = self._process.stderr
        with stream, contextlib.suppress(OSError):
            while data := stream.read1(1 << 16):
                self.size += len(data)
                self.printed = (self.printed + data)[:SHOWN] if len(self.printed) < SHOWN else self.printed
                if self.size > FLOOD:
                    self._kill()
                    return

    def load(self) -> dict[str, Any]:
        """Import the file over there; `failed` in the reply says why that is not possible."""
        self.ask({"do": "ready"})
        self._deadline = time.monotonic() + self.seconds + GRACE  # the student's time begins here
        needed = self.exercise.needed
        reply, _ = self.ask({
            "do": "load", "file": str(self.file.resolve()), "needed": needed, "seconds": self.seconds,
            "where": str(self._where),
        })
        for name, kind in needed.items():
            of = "object" if kind == "class" else "pair" if f"{name}_backward" in needed else ""
            setattr(self, name, self._function(name, of))
        return reply

    def _function(self, name: str, of: str) -> Callable[..., Any]:
        def f(*args: Any, **kwargs: Any) -> Any:
            return self.call(name, args, kwargs, of)

        f.__name__ = f.__qualname__ = name
        vars(f)["peak_memory"] = lambda *args: self.count(self.call(name, args, {}, "peak"))
        return f

    def call(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], of: str = "", on: There | None = None
    ) -> Any:
        """Call something over there, and change here what that changed.

        `of` says what is wanted: a "pair" whose second stays there, an "object" that does, the "peak" of the memory, or
        "" for the answer.

        Raises: what the function raised; AssertionError where it gave an array another shape in place.
        """
        used: list[There] = []

        def number_of(value: Any) -> int | None:
            if not isinstance(value, There):
                return None
            used.append(value)
            return value.number

        sent = Things(number_of=number_of)
        form = {
            "do": "call", "name": name, "as": of, "on": on.number if on is not None else 0,
            "arguments": sent.tree([list(args), kwargs]),
            "own": [sent.tree(array)["thing"] for array in vars(on.own).values()] if on is not None else [],
        }
        reply, things = self.ask(form, sent.things)
        watched = [*sent.things, *(thing for one in used for thing in one.watched)]
        found = Things(things, kept_as=lambda number: There(self, number, sent.things))
        reshaped = []
        try:
            told = reply["answer"]
            answer = self._object(name, sent, found, *told) if of == "object" else found.value(told)
            for i, tree in reply["changed"]:
                ours, theirs = watched[i], found.value(tree)
                if isinstance(ours, np.random.Generator):
                    ours.bit_generator.state = theirs.bit_generator.state
                elif ours.shape == theirs.shape:
                    ours[...] = theirs
                else:
                    reshaped.append(ours.shape)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, Garbled) as error:
            raise self.garbled(error) from None
        assert not reshaped, f"{name} gave an array of its caller's, {reshaped[0]}, another shape in place"
        return answer

    def _object(self, name: str, sent: Things, found: Things, number: Any, tree: Any, learn: Any) -> There:
        """A new one, with the arrays of the layer that it is, or else those from which it was made."""
        made_from = [thing for thing in sent.things if isinstance(thing, np.ndarray)]
        own = found.value(tree) if tree is not None else {str(i): array for i, array in enumerate(made_from)}
        if not set(learn) <= own.keys() or not all(isinstance(one, np.ndarray) for one in own.values()):
            raise ValueError("a layer without its arrays")
        made: There = type(name, (There,), {"__slots__": ()})(self, self.count(number), (), own, learn)
        return made

    def count(self, number: Any) -> int:
        """A number of the other process, where it is one."""
        if not isinstance(number, int):
            raise self.garbled(ValueError(f"{str(number)[:80]!r} where a number was due"))
        return number

    def ask(self, form: dict[str, Any], things: list[Any] | None = None) -> tuple[dict[str, Any], list[Thing]]:
        """Send a request and wait for its reply.

        Raises: Ended where none comes; what the function raised, where it raised.
        """
        free, self.released = self.released, []
        self._number += 1
        message = pack({**form, "number": self._number, "free": free}, things or [])
        self._asked.release()
        try:
            self._requests.write(message)
            self._requests.flush()
        except OSError:
            raise Ended from None
        reply = self._reply()
        if isinstance(reply, Garbled):
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
        """What to raise at a reply that makes no sense: it is the end."""
        self.broken = f"{self.file.name} wrote where the grader listens, so that no answer can be read: {error}"
        return Ended()

    def why(self) -> str:
        """Where it stood when its time was over, as it said itself; "" where it ended for another reason."""
        with contextlib.suppress(OSError), self._where.open(encoding="utf-8", errors="replace") as where:
            if said := where.read(1 << 16):
                return said
        return "Timeout" if time.monotonic() >= self._deadline else ""


def stopped(reply: Mapping[str, Any], file: str) -> Exception:
    """What a function of the file raised, told by a reply: an exception of its name that is also what it was there.

    Its name and its message may be anything, and are made fit to print. `place` is its line.
    """
    message = printable(str(reply.get("message", ""))[:LONGEST])
    if reply.get("refused"):
        return NotYours(message)
    kinds = [str(kind) for kind in reply["error"]] if isinstance(reply["error"], list) else []
    base: type[Exception] = Exception
    for kind in kinds:
        found = getattr(builtins, kind, None)
        if isinstance(found, type) and issubclass(found, Exception) and not issubclass(found, UnicodeError):
            with contextlib.suppress(TypeError):  # a group asks for more than a message
                found(message)
                base = found
                break
    name = kinds[0] if kinds and kinds[0].isidentifier() else "Exception"
    line, text = reply.get("line"), printable(str(reply.get("text", ""))[:200])
    place = f" ({file}, line {line}: {text})" if isinstance(line, int) and line > 0 else ""
    error: Exception = type(name, (base,), {"__str__": lambda _: message, "place": place})(message)
    return error
