"""Judge a try: a result, a refusal by one of our errors, or a finding.

Our errors are one line with the name of the function or the argument, raised by a `raise` statement of this package,
not by NumPy, and not by Python (as when a text is added to a number).
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
    """A try with a wrong result, or without a proper error."""


@contextlib.contextmanager
def bounded(seconds: float, megabytes: int = 3000) -> Iterator[None]:
    """Stop the code inside after a time limit, or above a memory limit.

    Raises: Finding, when the time is over.
    """

    def over(*_: Any) -> None:
        raise Finding(f"no result after {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.2)  # again, if the interrupted code continued
    try:
        with less_memory(megabytes):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def less_memory(megabytes: int) -> Iterator[None]:
    """Limit the additional memory of this process inside the context."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (held().addresses + megabytes * 10**6, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def require_our_error(error: BaseException, names: set[str]) -> bool:
    """Require that the error is one line, contains one of these names, and was raised by this package.

    Raises: Finding, with the broken rule.
    """
    said, kind = str(error), type(error).__name__
    if not isinstance(error, (TypeError, ValueError)):
        raise Finding(f"{kind}: {said[:200]} at {place(error)}") from error
    if not raised_by_us(error):
        raise Finding(f"not one of our errors: {kind}: {said[:200]} at {place(error)}") from error
    if "\n" in said or len(said) > LINE:
        raise Finding(f"not a single line of at most {LINE} characters: {said[:200]!r}") from error
    words = set(re.findall(r"[a-z_][a-z_0-9]*", said.lower()))
    if not words & ({name.lower() for name in names} | PUBLIC):
        raise Finding(f"without the name of the function or of an argument: {said!r}") from error
    return True


def raised_by_us(error: BaseException) -> bool:
    """Whether the innermost frame is a `raise` statement of this package."""
    if error.__traceback__ is None:
        return False
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    last = error.__traceback__
    while last.tb_next is not None:
        last = last.tb_next
    code = frame.f_code
    return code.co_filename.startswith(PACKAGE) and code.co_code[last.tb_lasti] in RAISES


def place(error: BaseException) -> str:
    """The innermost frame of this package."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(PACKAGE)]
    return f"{Path(frames[-1].filename).relative_to(PACKAGE)}:{frames[-1].lineno}" if frames else "nowhere in ours"


def call_without_warnings(use: Callable[..., Any], strictly: bool, **arguments: Any) -> Any:
    """Call a function. Warnings are errors; RuntimeWarnings only with `strictly`, since inf - inf may warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", PendingDeprecationWarning)  # of np.matrix, which is one of the odd values
        if not strictly:
            warnings.simplefilter("ignore", RuntimeWarning)
        return use(**arguments)


def alike(a: Any, b: Any) -> bool:
    """Whether values are equal up to rounding, also in tuples, lists and dicts; dtypes up to byte order."""
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
    """All arrays and numbers, also in tuples, lists and dicts."""
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
    """Whether all floats are finite."""
    return all(bool(np.isfinite(np.asarray(a)).all()) for a in numbers_in(thing) if a.dtype.kind in "fc")


def moderate(thing: Any) -> bool:
    """Whether squares and cubes of all floats are finite."""
    with np.errstate(all="ignore"):
        return finite(thing) and all(
            bool(np.max(np.abs(np.asarray(a)), initial=0) < np.finfo(a.dtype).max ** 0.3)
            for a in numbers_in(thing) if a.dtype.kind in "fc"
        )


def foreign(thing: Any) -> bool:
    """Whether there is an array that is not a plain NumPy array."""
    return any(isinstance(a, np.ndarray) and type(a) not in (np.ndarray, np.memmap) for a in numbers_in(thing))
