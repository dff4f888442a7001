"""What a judge finds, flat, becomes a report in the shape of the argument."""

import numpy as np

from numpy_attention.gradcheck.numbers.claims import Claim
from numpy_attention.gradcheck.numbers.point import Verdict


def test_a_verdict_without_a_look_is_nothing_and_its_report_has_the_shape_of_the_argument() -> None:
    found = Verdict.nothing(6)
    found.numeric[4], found.bar[4], found.wrong[4] = 2.0, 0.5, True
    claim = Claim("x", np.arange(6.0).reshape(2, 3), 2.0**-52, 0.0, np.zeros((2, 3)), 0.0)
    report = found.report(claim, calls=7, witness="complex step")
    assert (report.worst, report.calls, report.witness) == ((1, 1), 7, "complex step")
    assert np.isnan(report.numeric).sum() == 5
    assert not report.kinks.any()
    assert report.resolution.shape == report.doubt.shape == (2, 3)
    found.wrong[0] = True
    assert found.wrong.sum() == 2
    assert not found.kinks.any(), "two arrays, not one"
