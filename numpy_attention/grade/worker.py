"""The other process: it imports a student's file, last of all, and calls its functions as it is told.

    python -m numpy_attention.grade.worker          requests on standard input, replies on standard output

It knows no right answers and judges nothing. Each request is answered by what the file's own function gave:

    ready     that is all
    load      import the file; is all there that the exercise needs?
    call      a function, with arguments;  its result, and what it changed in place
    new       an object of a class, a layer or an optimizer, which stays here and has a number
    method    the same as call, of an object
    copy      of a cache or a layer, on other arrays;  same: are two caches equal?

Of a forward's (y, cache) the y is sent and the cache stays, by number too. Whether something was changed in place, and
how much memory a call took, is this process's word. Whether a gradient is right is judged elsewhere, from the arrays
that are sent.
"""

import contextlib
import copy
import faulthandler
import importlib
import importlib.util
import io
import os
import sys
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
from numpy_attention.grade.limits import limit_process
from numpy_attention.grade.stopped import LONGEST, message_of, place, tell
from numpy_attention.grade.wire import Parts, WireError, as_tree, from_tree, pack, unpack

Reply = tuple[dict[str, Any], list[np.ndarray]]


@dataclass
class Kept:
    """What stays here by number; `watched` are the arrays that it was made from, each beside a copy of it."""

    value: Any
    watched: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    own: dict[str, np.ndarray] = field(default_factory=dict)  # of a layer


class Worker:
    """The student's module, and what of it is kept."""

    def __init__(self) -> None:
        self.module = types.ModuleType("nothing")
        self.path = Path()
        self.kept: dict[int, Kept] = {}
        self.next, self.calls = 1, Calls()

    def ready(self, _: dict[str, Any], __: list[np.ndarray]) -> Reply:
        """Say so."""
        return {}, []

    def load(self, request: dict[str, Any], _: list[np.ndarray]) -> Reply:
        """Import the file; a reply without `failed` says that all is there."""
        self.path = Path(request["file"])
        if "seconds" in request:
            limit_process(request["seconds"])
            where = os.open(request["where"], os.O_WRONLY | os.O_CREAT)
            faulthandler.dump_traceback_later(request["seconds"], exit=True, file=where)
        try:
            look_for_complex_numbers(self.path.read_text(encoding="utf-8", errors="replace"))
            sys.path.insert(0, str(self.path.parent))  # as for `python FILE`: what lies beside it can be imported
            spec = importlib.util.spec_from_file_location(self.path.stem + "_answer", self.path)
            assert spec is not None
            assert spec.loader is not None
            self.module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(self.module)
        except NotYours as error:
            return {"failed": f"{self.path.name}: {error}{self._line(error)}", "refused": True}, []
        except SyntaxError as error:
            if not error.lineno:  # no line has been read
                text = f"is no text that Python reads ({error.msg})"
                return {"failed": f"{self.path.name} {text}: save it anew from an editor, as plain text in UTF-8"}, []
            text = f"is no Python yet: {error.msg}, line {error.lineno}: {(error.text or '').strip()}"
            return {"failed": f"{self.path.name} {text}"[:LONGEST]}, []
        except ImportError as error:
            return {"failed": f"{self.path.name} cannot be imported: {message_of(error)}{self._line(error)}"}, []
        except BaseException as error:
            name = type(error).__name__
            text = f"{self.path.name} stops while it is imported, with {name}: {message_of(error)}{self._line(error)}"
            return {"failed": text}, []
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

    def call(self, request: dict[str, Any], arrays: list[np.ndarray]) -> Reply:
        """Call a function, or a method of something kept."""
        parts, used = Parts(arrays), []

        def object_of(number: int) -> Any:
            used.append(number)
            return self.kept[number].value

        args, kwargs = from_tree(request["args"], parts, object_of), from_tree(request["kwargs"], parts, object_of)
        watched = [(array, array.copy()) for array in arrays]
        name: str = request["name"]
        if "on" in request:
            kept = self.kept[request["on"]]
            used.append(request["on"])
            for i, own in enumerate(kept.own.values(), start=len(arrays) - len(kept.own)):  # behind all others
                np.copyto(own, arrays[i])
                watched[i] = own, arrays[i]
            f = getattr(kept.value, name)
        else:
            f = getattr(self.module, name)
        if request.get("measured"):
            return {"peak": peak_memory(f, *args, **kwargs)}, []
        self.calls.count, self.calls.said = 0, ""
        self.calls.backward = name if name.endswith("backward") else ""
        try:
            with np.errstate(all="ignore"):
                answer = f(*args, **kwargs)
        finally:
            self.calls.backward = ""
        if self.calls.said:
            raise NotYours(self.calls.said)
        reply: dict[str, Any] = {}
        outgoing = Parts()
        if request.get("new"):
            of_layer = dict(arrays_of(answer)) if hasattr(answer, "parameters") and callable(answer.parameters) else {}
            reply["number"] = self._keep(answer, watched, of_layer)
            reply["own"] = as_tree(of_layer, outgoing, _nothing)
            reply["parameters"] = list(answer.parameters()) if of_layer else []
        elif request.get("pair") and isinstance(answer, tuple) and len(answer) == 2:
            y, cache = answer
            numbers = {id(cache): self._keep(cache, watched, {})}
            tree = [as_tree(y, outgoing, _nothing), as_tree(cache, outgoing, lambda one: numbers.get(id(one)))]
            reply["answer"] = {"tuple": tree}
        else:
            reply["answer"] = as_tree(answer, outgoing, _nothing)
        reply["generators"] = [one.bit_generator.state for one in parts.generators]
        reply["changed"] = list(self._changed(watched, 0, outgoing))
        for number in used:
            reply["changed"] += self._changed(self.kept[number].watched, number, outgoing)
        return reply, outgoing.arrays

    def copy(self, request: dict[str, Any], arrays: list[np.ndarray]) -> Reply:
        """Of something kept; a layer on the arrays given."""
        kept = self.kept[request["on"]]
        if not kept.own:
            return {"number": self._keep(copy.deepcopy(kept.value), [], {})}, []
        own = dict(zip(kept.own, arrays))
        return {"number": self._keep(with_parameters(kept.value, own), [], own)}, []

    def same(self, request: dict[str, Any], _: list[np.ndarray]) -> Reply:
        """Whether two that are kept are equal to the last bit."""
        one, other = (self.kept[number].value for number in request["two"])
        return {"same": bool(same(one, other))}, []

    def _keep(self, value: Any, watched: list[tuple[np.ndarray, np.ndarray]], own: dict[str, np.ndarray]) -> int:
        self.next += 1
        self.kept[self.next] = Kept(value, watched, own)
        return self.next

    def _changed(
        self, watched: list[tuple[np.ndarray, np.ndarray]], number: int, outgoing: Parts
    ) -> Iterator[tuple[int, int, Any]]:
        for i, (array, before) in enumerate(watched):
            if array.shape != before.shape or array.tobytes() != before.tobytes():
                yield number, i, as_tree(array, outgoing, _nothing)
                watched[i] = array, array.copy()

    def _has(self, name: str, kind: str) -> bool:
        made = getattr(self.module, name, None)
        return isinstance(made, type) if kind == "class" else callable(made)

    def _line(self, error: BaseException) -> str:
        line, text = place(error, self.path)
        return f" (line {line}: {text})" if line else ""


def _nothing(_: Any) -> None:
    return None


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer requests until there are no more."""

    def read(n: int) -> bytes:
        data = requests.read(n)
        if len(data) < n:
            raise EOFError
        return data

    worker, process = Worker(), os.getpid()
    answers: dict[str, Callable[..., Any]] = {
        "ready": worker.ready, "load": worker.load, "call": worker.call, "copy": worker.copy, "same": worker.same
    }
    # Nobody listens any more, or the file has written where it should not: no word of that is the student's.
    with contextlib.suppress(EOFError, OSError, WireError):
        while True:
            request, arrays = unpack(read)
            for number in request["free"]:
                worker.kept.pop(number, None)
            try:
                reply, found = answers[request["do"]](request, arrays)
                message = pack({**reply, "to": request["number"]}, found)
            except WireError as error:
                said = {"error": ["ValueError"], "message": f"what it returned is {error}"}
                message = pack({**said, "to": request["number"]}, [])
            except BaseException as error:  # of the student's, exits and interrupts among them
                message = pack({**tell(error, worker.path), "to": request["number"]}, [])
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
