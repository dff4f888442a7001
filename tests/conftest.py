"""What every test shares: one BLAS thread, no window system, repeatable draws."""

import os
import zlib
from typing import Any

# Read by OpenBLAS when NumPy is first imported, so this stands above the import. The arrays of the tests are small:
# handing them to several threads costs more than it gains.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

import hypothesis
import numpy as np
import pytest

hypothesis.settings.register_profile("default", deadline=None, print_blob=True)
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=1000)
# On a build machine the same commit draws the same examples; at a desk every run tries new ones.
usual = "repeatable" if os.environ.get("CI") else "default"
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", usual))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--backend", choices=("strict", "cupy"), default="strict",
        help="where tests/backend computes: on a stand-in that keeps CuPy's rules (default), or on a real GPU",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Neighbours stay together, for what they share is made once; whoever has none left takes from another's end."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A generator of this test's own: the same draws on every run, other draws than its neighbours'."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))
