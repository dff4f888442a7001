"""Chapter 10, appendix. The error function

The exact GELU needs the integral of the normal distribution, and NumPy has no erf:

    erf(x) = 2 / sqrt(pi) * integral from 0 to x of exp(-t^2) dt

No finite formula exists. Cody's approximation splits x >= 0 into three parts. R_1, R_2 and R_3 are quotients of two
polynomials, fitted so that the largest relative error is below 1e-16:

    x <= 0.46875        erf(x) = x R_1(x^2)
    0.46875 < x <= 4    erf(x) = 1 - exp(-x^2) R_2(x)
    x > 4               erf(x) = 1 - exp(-x^2) / x (1 / sqrt(pi) - R_3(1 / x^2) / x^2)

and erf(-x) = -erf(x). The code computes all three formulas for every element, with x clipped to the range of each
formula, and then selects the right one. This costs less than sorting the elements into three groups. In float32 the
same coefficients are accurate to the last digits of float32.

The derivative is the integrand: erf'(x) = 2 / sqrt(pi) exp(-x^2). gelu uses it; erf itself needs no backward here.

Why GELU can use tanh instead (Chapter 10): erf looks much like tanh, since both are odd and rise from -1 to 1. So take
the number u with tanh(u) = erf(x / sqrt(2)). Its power series begins with sqrt(2 / pi) (x + 0.0455 x^3). The tanh form
of GELU keeps these two terms, but has 0.044715 instead of 0.0455.
"""

import math

import numpy as np

from numpy_attention.shapes import check_shapes

SHAPES = "x: ..."

# Coefficients, highest power first: Cody 1969, tables II and III, with the digits of his later Fortran routine.
_R_1_ABOVE = (
    1.85777706184603153e-1, 3.16112374387056560, 1.13864154151050156e2, 3.77485237685302021e2, 3.20937758913846947e3,
)
_R_1_BELOW = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3)
_R_2_ABOVE = (
    2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594,
    6.61191906371416295e1, 2.98635138197400131e2, 8.81952221241769090e2,
    1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3,
)
_R_2_BELOW = (
    1.0, 1.57449261107098347e1, 1.17693950891312499e2,
    5.37181101862009858e2, 1.62138957456669019e3, 3.29079923573345963e3,
    4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3,
)
_R_3_ABOVE = (
    1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1,
    1.25781726111229246e-1, 1.60837851487422766e-2, 6.58749161529837803e-4,
)
_R_3_BELOW = (
    1.0, 2.56852019228982242, 1.87295284992346047,
    5.27905102951428412e-1, 6.05183413124413191e-2, 2.33520497626869185e-3,
)


def erf(x: np.ndarray) -> np.ndarray:
    """The error function, accurate to the last one or two digits of the dtype.

    Formula: erf(x) = 2 / sqrt(pi) * integral from 0 to x of exp(-t^2) dt

    Shapes: x of any shape -> the same shape

    Raises: TypeError when x is not an array of floats.

    Source: Cody, Rational Chebyshev Approximations for the Error Function, Math. Comp. 23 (1969).

    >>> erf(np.array([0.0, 0.5, -2.0])).round(12).tolist()
    [0.0, 0.520499877813, -0.995322265019]
    """
    check_shapes("erf", SHAPES, x=x)
    sign = 1.0 - 2.0 * (x < 0.0).astype(x.dtype)  # 1 or -1
    size = sign * x  # |x|, written so that the complex step can differentiate it

    near = np.minimum(size, 0.46875)
    square = near * near
    erf_near = near * _polynomial(square, _R_1_ABOVE) / _polynomial(square, _R_1_BELOW)

    middle = np.clip(size, 0.46875, 4.0)
    erfc_middle = np.exp(-middle * middle) * _polynomial(middle, _R_2_ABOVE) / _polynomial(middle, _R_2_BELOW)

    far = np.clip(size, 4.0, 10.0)  # for |x| > 10, erfc(x) = 1 - erf(x) is so small that 1 - erfc(x) rounds to 1
    inverse_square = 1.0 / (far * far)
    correction = inverse_square * _polynomial(inverse_square, _R_3_ABOVE) / _polynomial(inverse_square, _R_3_BELOW)
    erfc_far = np.exp(-far * far) / far * (1.0 / math.sqrt(math.pi) - correction)

    erf_size = np.where(size <= 0.46875, erf_near, 1.0 - np.where(size <= 4.0, erfc_middle, erfc_far))
    return sign * erf_size


def _polynomial(x: np.ndarray, coefficients: tuple[float, ...]) -> np.ndarray:
    """Horner's rule: ((c_0 x + c_1) x + c_2) x + ..."""
    value = x * coefficients[0]
    for c in coefficients[1:-1]:
        value += c
        value *= x
    return value + coefficients[-1]
