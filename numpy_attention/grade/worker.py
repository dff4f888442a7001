"""The other process: it imports a student's file, last of all, and calls its functions as it is told.

    python -m numpy_attention.grade.worker          requests on standard input, replies on standard output

It knows no right answers and judges nothing. Each request is answered by what the file's own function gave:

    ready     that is all
    load      import the file; is all there that the exercise needs?
    call      a function, a class or a method: its result, and what it changed in place
    copy      of a cache or a layer, on other arrays;    same: are two caches equal?

Of a forward's (y, cache) the y is sent; the cache stays and has a number. So does an object of a class, a layer or an
optimizer. Whether something was changed in place, and how much memory a call took, is this process's word. Whether a
gradient is right is judged elsewhere, from the arrays that are sent.
"""

import contextlib
import copy
import faulthandler
import importlib
import importlib.util
import io
import os
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from numpy_attention.catalogue.compare import same
from numpy_attention.catalogue.exercise import peak_memory
from numpy_attention.gradcheck.problem import arrays_of, with_parameters
from numpy_attention.grade.guard import Calls, NotYours, RefuseImports, guard_answers, look_for_complex_numbers
from numpy_attention.grade.messages import LONGEST, Garbled, Thing, Things, pack, unpack

MEMORY = 1 << 31  # bytes of addresses, for this Python with NumPy and all
Reply = tuple[dict[str, Any], list[Thing]]
Watched = list[tuple[Thing, Thing]]  # what a call was given, each beside a copy of it


@dataclass
class Kept:
    """What stays here by number, with the arrays that it was made from, and those that it computes with."""

    value: Any
    watched: Watched = field(default_factory=list)
    own: dict[str, Any] = field(default_factory=dict)


class Worker:
    """The student's module, and what of it is kept."""

    def __init__(self) -> None:
        self.module = types.ModuleType("nothing")
        self.path = Path()
        self.kept: dict[int, Kept] = {}
        self.next, self.calls = 1, Calls()

    def ready(self, _: dict[str, Any], __: list[Thing]) -> Reply:
        """Say so."""
        return {}, []

    def load(self, request: dict[str, Any], _: list[Thing]) -> Reply:
        """Import the file; a reply without `failed` says that all is there."""
        self.path = Path(request["file"])
        if "seconds" in request:
            limit_process(request["seconds"])
            where = os.open(request["where"], os.O_WRONLY | os.O_CREAT)
            faulthandler.dump_traceback_later(request["seconds"], exit=True, file=where)
        try:
            self._import()
        except BaseException as error:  # whatever a file does while it is imported
            failed = f"{self.path.name}{_why_not_imported(error)}"[:LONGEST]
            line, text = place(error, self.path)
            if line and not isinstance(error, SyntaxError):
                failed += f" (line {line}: {text})"
            return {"failed": failed, "refused": isinstance(error, NotYours)}, []
        needed: dict[str, str] = request["needed"]
        missing = [f"the {kind} {name}" for name, kind in needed.items() if not self._has(name, kind)]
        if missing:
            text = f"{self.path.name} must define {', '.join(missing)}; was something renamed or deleted?"
            return {"failed": text}, []
        for name, kind in needed.items():
            made = getattr(self.module, name)
            if kind == "function" and f"{name}_backward" in needed:
                setattr(self.module, name, self.calls.counted(made, name))
            elif kind == "class" and hasattr(made, "forward"):
                made.forward = self.calls.counted(made.forward, f"{name}.forward")
        return {}, []

    def _import(self) -> None:
        look_for_complex_numbers(self.path.read_text(encoding="utf-8", errors="replace"))
        sys.path.insert(0, str(self.path.parent))  # as for `python FILE`: what lies beside it can be imported
        spec = importlib.util.spec_from_file_location(self.path.stem + "_answer", self.path)
        assert spec is not None
        assert spec.loader is not None
        self.module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)

    def _has(self, name: str, kind: str) -> bool:
        made = getattr(self.module, name, None)
        return isinstance(made, type) if kind == "class" else callable(made)

    def call(self, request: dict[str, Any], sent: list[Thing]) -> Reply:
        """Call a function of the file, or a method of something kept."""
        used: list[Kept] = []

        def kept_as(number: int) -> Any:
            used.append(self.kept[number])
            return used[-1].value

        name, on = request["name"], self.kept.get(request["on"])
        if on is not None:  # its arrays become what they are over there
            for i, own in zip(request["own"], on.own.values(), strict=True):
                np.copyto(own, sent[i])
                sent[i] = own
        args, kwargs = Things(sent, kept_as=kept_as).value(request["arguments"])
        watched: Watched = [(thing, copy.deepcopy(thing)) for thing in sent]
        f = getattr(self.module if on is None else on.value, name)
        if request["as"] == "peak":
            return {"answer": peak_memory(f, *args, **kwargs), "changed": []}, []
        answer = self.calls.during(name if name.endswith("backward") else "", f, *args, **kwargs)
        found = Things()
        if request["as"] == "object":
            layer = callable(getattr(answer, "parameters", None))
            own = dict(arrays_of(answer)) if layer else {
                str(i): thing for i, thing in enumerate(sent) if isinstance(thing, np.ndarray)}
            tree: Any = [self._keep(answer, own=own), None, []]
            if layer:
                tree[1:] = found.tree(own), list(answer.parameters())
        elif request["as"] == "pair" and isinstance(answer, tuple) and len(answer) == 2:
            tree = {"tuple": [found.tree(answer[0]), {"kept": self._keep(answer[1], watched)}]}
        else:
            tree = found.tree(answer)
        changed = _changed([watched, *(one.watched for one in used)], found)
        return {"answer": tree, "changed": list(changed)}, found.things

    def copy(self, request: dict[str, Any], arrays: list[Thing]) -> Reply:
        """Of something kept; a layer on the arrays given."""
        kept = self.kept[request["on"]]
        own = dict(zip(kept.own, arrays))
        value = with_parameters(kept.value, own) if own else copy.deepcopy(kept.value)
        return {"number": self._keep(value, own=own)}, []

    def same(self, request: dict[str, Any], _: list[Thing]) -> Reply:
        """Whether two that are kept are equal to the last bit."""
        one, other = (self.kept[number].value for number in request["two"])
        return {"same": bool(same(one, other))}, []

    def _keep(self, value: Any, watched: Watched | None = None, own: dict[str, Any] | None = None) -> int:
        self.next += 1
        self.kept[self.next] = Kept(value, watched or [], own or {})
        return self.next


def _changed(everything: list[Watched], found: Things) -> Iterator[tuple[int, Any]]:
    """The place of each thing that is no longer as it was, and what it is now."""
    at = 0
    for watched in everything:
        for i, (thing, before) in enumerate(watched):
            if _state(thing) != _state(before):
                watched[i] = thing, copy.deepcopy(thing)
                yield at + i, found.tree(watched[i][1])
        at += len(watched)


def _state(thing: Any) -> Any:
    return thing.bit_generator.state if isinstance(thing, np.random.Generator) else (thing.shape, thing.tobytes())


def _why_not_imported(error: BaseException) -> str:
    if isinstance(error, NotYours):
        return f": {error}"
    if isinstance(error, SyntaxError) and not error.lineno:  # no line has been read
        return f" is no text that Python reads ({error.msg}): save it anew from an editor, as plain text in UTF-8"
    if isinstance(error, SyntaxError):
        return f" is no Python yet: {error.msg}, line {error.lineno}: {(error.text or '').strip()}"
    if isinstance(error, ImportError):
        return f" cannot be imported: {message_of(error)}"
    return f" stops while it is imported, with {type(error).__name__}: {message_of(error)}"


def tell(error: BaseException, path: Path) -> dict[str, Any]:
    """What there is to say of an exception: the types it is of, its message, its line in the student's file."""
    kinds = [cls.__name__[:80] for cls in type(error).__mro__][:12]
    line, text = place(error, path)
    refused = isinstance(error, NotYours)
    return {"error": kinds, "message": message_of(error), "refused": refused, "line": line, "text": text}


def place(error: BaseException, path: Path) -> tuple[int, str]:
    """The innermost line of the student's own file; 0 where there is none."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return ((own[-1].lineno or 0), (own[-1].line or "")[:200]) if own else (0, "")


def message_of(error: BaseException) -> str:
    """Its message, not too much of it."""
    try:
        return str(error)[:LONGEST]
    except BaseException:
        return "(its message cannot be shown)"


def limit_process(seconds: float, memory: int = MEMORY) -> None:
    """From now on this process, and each of its children, is refused memory beyond that, and ended after that time.

    Where the system has no such limits (Windows), there are none.
    """
    try:
        import resource
    except ImportError:
        return
    wanted = {"RLIMIT_AS": memory, "RLIMIT_CPU": int(seconds) + 2, "RLIMIT_CORE": 0}
    for name, most in wanted.items():
        kind = getattr(resource, name, None)
        if kind is None:
            continue
        _, hard = resource.getrlimit(kind)
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
        with contextlib.suppress(OSError, ValueError):  # macOS knows RLIMIT_AS by name, and refuses it
            resource.setrlimit(kind, (most, most))


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer requests until there are no more."""
    worker, process = Worker(), os.getpid()
    answers: dict[str, Callable[..., Reply]] = {
        "ready": worker.ready, "load": worker.load, "call": worker.call, "copy": worker.copy, "same": worker.same
    }
    # Nobody listens any more, or the file has written where it should not: no word of that is the student's.
    with contextlib.suppress(EOFError, OSError, Garbled):
        while True:
            request, things = unpack(requests)
            to = {"to": request["number"]}
            for number in request["free"]:
                worker.kept.pop(number, None)
            try:
                reply, found = answers[request["do"]](request, things)
                message = pack({**reply, **to}, found)
            except Garbled as error:
                message = pack({"error": ["ValueError"], "message": f"what it returned is {error}", **to})
            except BaseException as error:  # of the student's, exits and interrupts among them
                message = pack({**tell(error, worker.path), **to})
            if os.getpid() != process:  # a fork of the student's came back here
                os._exit(0)
            replies.write(message)
            replies.flush()


def main() -> None:
    """Keep the two pipes for ourselves, set limits, and serve; what the file prints goes to standard error."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    assert isinstance(sys.stdout, io.TextIOWrapper)
    sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    for answer in ("pretrained.low_rank", "training.byte_pairs"):  # what is there already can be guarded
        importlib.import_module(f"numpy_attention.{answer}")
    guard_answers(sys.argv[1].split(), sys.argv[2].split())
    sys.meta_path.insert(0, RefuseImports())
    try:
        serve(requests, replies)
    finally:  # ends at once: threads of the file may wait, and a traceback of the grader's code helps no student
        os._exit(0)


if __name__ == "__main__":
    main()
