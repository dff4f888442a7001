"""What came of a try: a result, a refusal in our own words, or a finding.

Our own words are one line that names the function or the argument, raised by a `raise` of this package: not by NumPy,
and not by whatever Python says when a text is added to a number.
"""

import contextlib
import dis
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from tests.fuzz.attack import LINE
from tests.fuzz.inside import held, resource

if sys.platform != "linux":
    pytest.skip("the bounds of these attacks need fork and /proc", allow_module_level=True)

PACKAGE = str(Path(na.__file__).parent)
RAISES = {dis.opmap["RAISE_VARARGS"]}
PUBLIC = {name.lower() for name in na.__all__}


class Finding(AssertionError):
    """A try that neither gives what it should nor says why not."""


@contextlib.contextmanager
def bounded(seconds: float, megabytes: int = 3000) -> Iterator[None]:
    """Within it a try that goes on for longer, or takes more memory, is broken off.

    Raises: Finding, when the time is over.
    """

    def over(*_: Any) -> None:
        raise Finding(f"no answer after {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.2)  # again, if whoever was interrupted went on
    try:
        with less_memory(megabytes):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def less_memory(megabytes: int) -> Iterator[None]:
    """Within it this process may take so much more memory than it has now."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (held().addresses + megabytes * 10**6, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def own_words(error: BaseException, names: set[str]) -> bool:
    """Whether the error is one line, names one of these, and was raised by us; what is wrong with it otherwise.

    Raises: Finding, which says what is wrong with it.
    """
    said, kind = str(error), type(error).__name__
    if not isinstance(error, (TypeError, ValueError)):
        raise Finding(f"{kind}: {said[:200]} at {place(error)}") from error
    if not raised_by_us(error):
        raise Finding(f"not in our own words: {kind}: {said[:200]} at {place(error)}") from error
    if "\n" in said or len(said) > LINE:
        raise Finding(f"no single line of at most {LINE} characters: {said[:200]!r}") from error
    words = set(re.findall(r"[a-z_][a-z_0-9]*", said.lower()))
    if not words & ({name.lower() for name in names} | PUBLIC):
        raise Finding(f"names neither the function nor an argument: {said!r}") from error
    return True


def raised_by_us(error: BaseException) -> bool:
    """Whether the innermost frame is one of this package, at a `raise`."""
    if error.__traceback__ is None:
        return False
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    last = error.__traceback__
    while last.tb_next is not None:
        last = last.tb_next
    code = frame.f_code
    return code.co_filename.startswith(PACKAGE) and code.co_code[last.tb_lasti] in RAISES


def place(error: BaseException) -> str:
    """The innermost frame of ours."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(PACKAGE)]
    return f"{Path(frames[-1].filename).relative_to(PACKAGE)}:{frames[-1].lineno}" if frames else "nowhere in ours"


def quietly(use: Callable[..., Any], strictly: bool, **arguments: Any) -> Any:
    """Call it; a warning is an error, but RuntimeWarnings only `strictly`: infinity less infinity may warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", PendingDeprecationWarning)  # of np.matrix, which is one of the odd things
        if not strictly:
            warnings.simplefilter("ignore", RuntimeWarning)
        return use(**arguments)


def alike(a: Any, b: Any) -> bool:
    """Equal but for rounding, through tuples, lists and dicts; the same dtype but for the order of bytes."""
    if isinstance(a, (tuple, list)):
        return isinstance(b, (tuple, list)) and len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(alike(a[key], b[key]) for key in a)
    if not isinstance(a, (np.ndarray, np.generic)):
        return bool(a == b) or (a != a and b != b)
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype.newbyteorder("=") != b.dtype.newbyteorder("="):
        return False
    if a.dtype.kind not in "fc":
        return bool(np.array_equal(a, b))
    tolerance = {2: 2e-2, 4: 2e-4, 8: 2e-4 if a.dtype.kind == "c" else 1e-8}.get(a.dtype.itemsize, 1e-8)
    with np.errstate(all="ignore"):
        size = float(np.max(np.abs(a[np.isfinite(a)]), initial=0.0))
        return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance * min(max(size, 1e-2), 1e300), equal_nan=True))


def numbers_in(thing: Any) -> Iterator[Any]:
    """Every array and number, through tuples, lists and dicts."""
    if isinstance(thing, dict):
        thing = list(thing.values())
    if isinstance(thing, (np.ndarray, np.generic)):
        yield thing
    elif isinstance(thing, float):
        yield np.float64(thing)
    elif isinstance(thing, (tuple, list)):
        for one in thing:
            yield from numbers_in(one)


def finite(thing: Any) -> bool:
    """Whether all floats in it are numbers."""
    return all(bool(np.isfinite(np.asarray(a)).all()) for a in numbers_in(thing) if a.dtype.kind in "fc")


def moderate(thing: Any) -> bool:
    """Whether no float in it is so large that its square or cube cannot be held."""
    with np.errstate(all="ignore"):
        return finite(thing) and all(
            bool(np.max(np.abs(np.asarray(a)), initial=0) < np.finfo(a.dtype).max ** 0.3)
            for a in numbers_in(thing) if a.dtype.kind in "fc"
        )


def foreign(thing: Any) -> bool:
    """Whether an array in it is none of NumPy's own."""
    return any(isinstance(a, np.ndarray) and type(a) not in (np.ndarray, np.memmap) for a in numbers_in(thing))
