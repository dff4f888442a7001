"""Hard corners: inputs at which a checker easily calls a wrong gradient right, or a right gradient wrong.

    corner      the record of one case
    poles       close to a pole: 1/(x-1), tan, an almost singular matrix
    company     large and tiny elements in one array
    precision   float32 in float64, no complex step, 1e-7 beside 1, gradients of 1e160
    kinks       several corners in one element, ties, scales below the step
    conduct     sizes that do not fit, inputs that cannot be used, backwards that raise errors, words of the report
"""

from tests.gradcheck.acceptance.corners.company import company
from tests.gradcheck.acceptance.corners.conduct import conduct
from tests.gradcheck.acceptance.corners.corner import Corner, counted
from tests.gradcheck.acceptance.corners.kinks import kinks
from tests.gradcheck.acceptance.corners.poles import poles
from tests.gradcheck.acceptance.corners.precision import precision

CORNERS = [corner for some in (poles, company, precision, kinks, conduct) for corner in some()]

__all__ = ["CORNERS", "Corner", "counted"]
