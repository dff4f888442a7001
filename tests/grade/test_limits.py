"""Memory has a bound in the process of the student's file, and is measured there."""

import subprocess
import sys

import numpy as np
import pytest
from numpy_attention.grade.limits import peak_memory

WITHIN = """
import numpy as np
from numpy_attention.grade.limits import limit_process
limit_process(30.0)
try:
    held = np.ones(1 << 29)
except MemoryError:
    print("refused")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have no limit on addresses")
def test_an_array_of_four_gigabytes_is_refused() -> None:
    done = subprocess.run([sys.executable, "-c", WITHIN], capture_output=True, text=True, check=True)
    assert done.stdout == "refused\n"


def test_the_peak_of_a_call_is_its_largest_array() -> None:
    def wasteful(n: int) -> float:
        return float(np.ones(n).sum())

    peaks = [peak_memory(wasteful, n) for n in (10_000, 100_000)]
    assert peaks[0] > 80_000
    assert 5 < peaks[1] / peaks[0] < 15


def test_a_function_that_is_elsewhere_is_asked_there() -> None:
    class There:
        def __call__(self) -> None:
            raise AssertionError("called here")

        def peak_memory(self, *args: int) -> int:
            return 7 + sum(args)

    assert peak_memory(There(), 1, 2) == 10
