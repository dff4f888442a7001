"""Settings for all tests: one BLAS thread, no window system, repeatable random numbers."""

import os
import sys
import sysconfig
import zlib
from typing import Any

# OpenBLAS reads this at the first import of NumPy, so these lines come before the import. The arrays of the tests are
# small, so several threads would cost more time than they save.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

import hypothesis
import numpy as np
import pytest

# A few examples, equal in every run; HYPOTHESIS_PROFILE=thorough draws a hundred new ones.
hypothesis.settings.register_profile("default", deadline=None, max_examples=15, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=100, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--backend", choices=("strict", "cupy"), default="strict",
        help="where tests/backend computes: on a simulation with CuPy's rules (default), or on a real GPU",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run neighbouring tests in one worker, so shared objects are made once; an idle worker takes tests from others."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """On free-threaded Python, fail after a test that has imported a module that turns the interpreter lock on."""
    assert not sysconfig.get_config_var("Py_GIL_DISABLED") or not sys._is_gil_enabled()


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A random generator for this test: equal numbers in every run, different numbers for different tests."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))
