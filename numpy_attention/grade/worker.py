"""The other process: imports a student's file and calls its functions when `process` sends a request.

    python -m numpy_attention.grade.worker          requests on standard input, replies on standard output

    ready     reply when NumPy and the package are imported
    load      import the file, and check that it defines everything that the exercise needs
    call      call a function, a class or a method; return the result and the in-place changes
    copy      copy a cache or a layer, with other arrays
    same      compare two caches

A forward returns (y, cache): y is sent; the cache is stored here and its number is sent. An object of a class, for
example a layer or an optimizer, is stored too. This process contains no right answers and gives no grade. It reports
in-place changes of arrays and the memory of a call. The grader decides from the arrays whether a gradient is right.
"""

import contextlib
import copy
import faulthandler
import importlib.util
import io
import os
import sys
import traceback
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from numpy_attention.catalogue.compare import same
from numpy_attention.catalogue.exercise import peak_memory
from numpy_attention.gradcheck.problem import arrays_of, with_parameters
from numpy_attention.grade.guard import (
    Calls,
    NotOwnWork,
    RefuseImports,
    guard_answers,
    refuse_complex_numbers,
    refuse_processes,
)
from numpy_attention.grade.wire import MAX_TEXT, Encoder, InvalidMessage, Mutable, Reference, decode, read_line

MEMORY = 1 << 31  # bytes of address space of this process, Python and NumPy included
Request = dict[str, Any]


class Watched:
    """An array or a generator among the arguments of a call, and its state when it was last sent."""

    def __init__(self, value: Mutable) -> None:
        self.value, self.state = value, _state(value)

    def changed(self) -> bool:
        """Whether the state has changed since the last call of `changed`."""
        before, self.state = self.state, _state(self.value)
        return bool(before != self.state)


@dataclass
class Stored:
    """A cache or an object that stays here, with the arrays that it was made from and its own arrays."""

    value: Any
    watched: list[Watched] = field(default_factory=list)
    own: dict[str, Any] = field(default_factory=dict)


class Worker:
    """The student's module, and its stored objects by number."""

    def __init__(self) -> None:
        self.module = types.ModuleType("nothing")
        self.path = Path()
        self.stored: dict[int, Stored] = {}
        self.next, self.calls = 1, Calls()
        self.where: int | None = None  # an open file, for the traceback at the time limit

    def answer(self, line: bytes) -> bytes:
        """The reply to a request; an exception of the student's code is a reply too.

        Raises: InvalidMessage for a line that is not a request.
        """
        used: list[Stored] = []

        def stored(number: int) -> Any:
            used.append(self.stored[number])
            return used[-1].value

        request, sent = decode(line, stored)
        for number in request["free"]:
            self.stored.pop(number, None)
        to = {"to": request["number"]}
        try:
            self.limit_time(request)
            match request["do"]:
                case "load":
                    reply = self.load(request)
                case "call":
                    reply = self.call(request, sent, used)
                case "copy":
                    reply = self.copy(request)
                case "same":
                    reply = self.same(request)
                case _:  # ready
                    reply = {}
            return Encoder({**reply, **to}).line
        except InvalidMessage as error:
            reply = {"error": ["ValueError"], "message": f"the returned value is {error}"}
        except BaseException as error:  # exits and interrupts too
            reply = error_reply(error, self.path)
        finally:
            if self.where is not None:
                faulthandler.cancel_dump_traceback_later()
        return Encoder({**reply, **to}).line

    def limit_time(self, request: Request) -> None:
        """At the time limit of this request, write the traceback and end the process."""
        if self.where is not None:
            faulthandler.dump_traceback_later(request["seconds"], exit=True, file=self.where)

    def load(self, request: Request) -> Request:
        """Import the file; the reply has a reason in `failed` if the import fails or a definition is missing."""
        self.path = Path(request["file"])
        if "where" in request:
            limit_process(request["seconds"])
            self.where = os.open(request["where"], os.O_WRONLY | os.O_CREAT)
            self.limit_time(request)
        try:
            self._import()
        except BaseException as error:  # an import may raise anything, SystemExit too
            failed = f"{self.path.name}{_import_failure(error)}"[:MAX_TEXT]
            line, text = place(error, self.path)
            if line and not isinstance(error, SyntaxError):
                failed += f" (line {line}: {text})"
            return {"failed": failed, "refused": isinstance(error, NotOwnWork)}
        needed: dict[str, str] = request["needed"]
        missing = [f"the {kind} {name}" for name, kind in needed.items() if not self._has(name, kind)]
        if missing:
            text = f"{self.path.name} must define {', '.join(missing)}; was it renamed or deleted?"
            return {"failed": text}
        for name, kind in needed.items():
            made = getattr(self.module, name)
            if kind == "function" and f"{name}_backward" in needed:
                setattr(self.module, name, self.calls.counted(made, name))
            elif kind == "class" and hasattr(made, "forward"):
                made.forward = self.calls.counted(made.forward, f"{name}.forward")
        return {}

    def _import(self) -> None:
        refuse_complex_numbers(self.path.read_text(encoding="utf-8", errors="replace"))
        sys.path.insert(0, str(self.path.parent))  # as `python FILE` does
        spec = importlib.util.spec_from_file_location(self.path.stem + "_answer", self.path)
        assert spec is not None
        assert spec.loader is not None
        self.module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)

    def _has(self, name: str, kind: str) -> bool:
        made = getattr(self.module, name, None)
        return isinstance(made, type) if kind == "class" else callable(made)

    def call(self, request: Request, sent: list[Mutable], used: list[Stored]) -> Request:
        """Call a function of the file, or a method of a stored object; `used` are the caches among its arguments."""
        name, on = request["name"], self.stored.get(request["on"])
        if on is not None:  # its arrays get the values of the caller's arrays
            for i, (own, array) in enumerate(zip(on.own.values(), request["own"], strict=True)):
                np.copyto(own, array)
                sent[i] = own
        args, kwargs, watched = request["args"], request["kwargs"], [Watched(one) for one in sent]
        f = getattr(self.module if on is None else on.value, name)
        if request["as"] == "peak":
            return {"answer": peak_memory(f, *args, **kwargs), "changed": []}
        answer = self.calls.during(name if name.endswith("backward") else "", f, *args, **kwargs)
        if request["as"] == "object":
            answer = self._object(answer, sent)
        elif request["as"] == "pair" and isinstance(answer, tuple) and len(answer) == 2:
            answer = answer[0], Reference(self._store(Stored(answer[1], watched)))
        every = [*watched, *(one for stored in used for one in stored.watched)]
        return {"answer": answer, "changed": [(i, one.value) for i, one in enumerate(every) if one.changed()]}

    def _object(self, made: Any, sent: list[Mutable]) -> tuple[int, dict[str, Any] | None, list[str]]:
        """The number of the object; for a layer also its arrays, and the names of the trainable arrays."""
        if callable(getattr(made, "parameters", None)):
            own = dict(arrays_of(made))
            return self._store(Stored(made, own=own)), own, list(made.parameters())
        own = {str(i): one for i, one in enumerate(sent) if isinstance(one, np.ndarray)}
        return self._store(Stored(made, own=own)), None, []

    def copy(self, request: Request) -> Request:
        """A copy of a stored object; for a layer, with the given arrays."""
        stored = self.stored[request["on"]]
        own = dict(zip(stored.own, request["own"]))
        value = with_parameters(stored.value, own) if own else copy.deepcopy(stored.value)
        return {"number": self._store(Stored(value, own=own))}

    def same(self, request: Request) -> Request:
        """Whether two stored objects are equal to the last bit."""
        one, other = (self.stored[number].value for number in request["two"])
        return {"same": bool(same(one, other))}

    def _store(self, stored: Stored) -> int:
        self.next += 1
        self.stored[self.next] = stored
        return self.next


def _state(value: Any) -> Any:
    return value.bit_generator.state if isinstance(value, np.random.Generator) else (value.shape, value.tobytes())


NULL_BYTES = "source code string cannot contain null bytes"  # a ValueError before Python 3.11.4


def _import_failure(error: BaseException) -> str:
    if isinstance(error, NotOwnWork):
        return f": {error}"
    not_text = isinstance(error, SyntaxError) and not error.lineno  # Python has not read any line
    if not_text or str(error) == NULL_BYTES:
        reason = getattr(error, "msg", error)
        return f" is not a text that Python can read ({reason}): save it again as plain text in UTF-8"
    if isinstance(error, SyntaxError):
        return f" is not valid Python: {error.msg}, line {error.lineno}: {(error.text or '').strip()}"
    if isinstance(error, ImportError):
        return f" cannot be imported: {message_of(error)}"
    return f" raises an error when it is imported, {type(error).__name__}: {message_of(error)}"


def error_reply(error: BaseException, path: Path) -> dict[str, Any]:
    """A reply that reports an exception: the names of its types, its message, its line in the student's file."""
    kinds = [cls.__name__[:80] for cls in type(error).__mro__][:12]
    line, text = place(error, path)
    refused = isinstance(error, NotOwnWork)
    return {"error": kinds, "message": message_of(error), "refused": refused, "line": line, "text": text}


def place(error: BaseException, path: Path) -> tuple[int, str]:
    """The innermost line of the student's own file; 0 if there is none."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return ((own[-1].lineno or 0), (own[-1].line or "")[:200]) if own else (0, "")


def message_of(error: BaseException) -> str:
    """The first MAX_TEXT characters of the message of an exception."""
    try:
        return str(error)[:MAX_TEXT]
    except BaseException:
        return "(its message cannot be shown)"


def limit_process(seconds: float, memory: int = MEMORY) -> None:
    """Limit memory and time of this process, from now on; a child process would get limits of the same size.

    Windows has no such limits.
    """
    try:
        import resource
    except ImportError:
        return
    for name, most in {"RLIMIT_AS": memory, "RLIMIT_CPU": int(seconds) + 2, "RLIMIT_CORE": 0}.items():
        with contextlib.suppress(AttributeError, OSError, ValueError):  # macOS has RLIMIT_AS but refuses a change
            kind = getattr(resource, name)
            _, hard = resource.getrlimit(kind)
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (most, most))


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer requests until there are no more."""
    worker, process = Worker(), os.getpid()
    # These errors mean that the grader has ended or the file has written to the pipe: the student needs no message.
    with contextlib.suppress(EOFError, OSError, InvalidMessage):
        while True:
            reply = worker.answer(read_line(requests))
            if os.getpid() != process:  # this is a child process that the student's code has forked
                os._exit(0)
            replies.write(reply)
            replies.flush()


def main() -> None:
    """Hide the two pipes from the file, redirect its prints to standard error, guard the answers, serve."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    assert isinstance(sys.stdout, io.TextIOWrapper)
    sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    for answer in ("pretrained.low_rank", "training.byte_pairs"):  # only imported modules can be guarded
        importlib.import_module(f"numpy_attention.{answer}")
    guard_answers(sys.argv[1].split(), sys.argv[2].split())
    sys.meta_path.insert(0, RefuseImports())
    refuse_processes()
    try:
        serve(requests, replies)
    finally:  # exit immediately, without waiting for threads of the file and without a traceback
        os._exit(0)


if __name__ == "__main__":
    main()
