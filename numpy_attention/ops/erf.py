"""Chapter 10, appendix. The error function

The exact GELU needs the normal distribution's integral, and NumPy has no erf:

    erf(x) = 2 / sqrt(pi) * integral from 0 to x of exp(-t^2) dt

No finite formula exists. But erf looks much like tanh: odd, and bent from -1 to 1. So ask at which u tanh has the value
of erf. That u is odd as well, starts as 2 x / sqrt(pi) and grows as x^2 / 2, so it is x times a function of x^2 that
varies slowly, and a quotient of two polynomials follows such a function closely:

    erf(x) = tanh(x P(x^2) / Q(x^2))

An error du in u is forgiven the more the farther out it is, since tanh passes on only (1 - tanh^2 u) du of it: that is
why few coefficients do. (P / Q begins 1.1284 + 0.1028 x^2. Stop there, put x / sqrt(2) for x, and what stands in the
tanh is sqrt(2 / pi) (x + 0.0455 x^3): GELU's tanh form, but for the last digits of one number.)

The coefficients are our own, from a fit in 60 digits: least squares, with weights moved until the peaks of erf's
relative error were equally high. The largest such error, over all x up to the end of the fit (beyond it, erf is 1 to
the last digit), is far below the last digit of the dtype. The rest is round-off, mostly tanh's own:

    float32    degrees 3 and 3, fitted up to 4    formula alone 4e-9     with round-off 4e-7, on average 3e-8
    float64    degrees 9 and 9, fitted up to 6    formula alone 3e-17    with round-off 5e-16, on average 5e-17

The derivative is the integrand: erf'(x) = 2 / sqrt(pi) exp(-x^2). The gelu uses it; erf itself needs no backward here.
"""

import numpy as np

from numpy_attention.errors import require_float
from numpy_attention.ops.sums import wide
from numpy_attention.pieces import in_pieces

# From the highest power down; the last of the first line is 2 / sqrt(pi).
_P_32 = (2.178291235e-3, 4.264664156e-2, 2.798069349e-1, 1.128379171)
_Q_32 = (3.249263605e-4, 2.36899932e-2, 1.568926718e-1, 1.0)
_P_64 = (
    4.6796436754618002e-10, 6.4547371107559842e-8, 2.2900005093330039e-6, 4.5905492000415610e-5,
    6.2678895597016618e-4, 6.0293939913277344e-3, 4.1598779166211935e-2, 0.2014273399179482,
    0.635579172438093, 1.1283791670955126,
)
_Q_64 = (
    2.8704393248878550e-11, 1.3824149920275689e-8, 8.0548456723730515e-7, 1.9085185797518166e-5,
    3.0312107417892797e-4, 3.2705960684563163e-3, 2.5117952125358729e-2, 0.13568895772104814,
    0.4721875276265668, 1.0,
)


def erf(x: np.ndarray) -> np.ndarray:
    """The error function, to the last digit or two of the dtype.

    Formula: erf(x) = 2 / sqrt(pi) * integral from 0 to x of exp(-t^2) dt

    Shapes: x of any shape -> the same shape

    Raises: TypeError when x is not an array of floats.

    Source: Abramowitz, Stegun, Handbook of Mathematical Functions (1964), 7.1.1, for the definition.

    >>> erf(np.array([0.0, 0.5, -2.0])).round(12).tolist()
    [0.0, 0.520499877813, -0.995322265019]

    Derivation: Chapter 10, appendix, the head of numpy_attention/ops/erf.py.
    """
    require_float("erf", x=x)
    y = np.empty_like(x, order="C")
    for x_piece, y_piece in in_pieces(x, y):
        near = np.clip(wide(x_piece), -6.0, 6.0)  # beyond 6, erf is 1 to the last digit, and high powers overflow
        P, Q = (_P_32, _Q_32) if near.dtype == np.float32 else (_P_64, _Q_64)
        square = near * near
        u = _polynomial(square, P)
        u /= _polynomial(square, Q)
        u *= near
        np.tanh(u, out=y_piece)
    return y


def _polynomial(x: np.ndarray, coefficients: tuple[float, ...]) -> np.ndarray:
    """Horner's rule: ((c_0 x + c_1) x + c_2) x + ..."""
    value = x * coefficients[0]
    for c in coefficients[1:-1]:
        value += c
        value *= x
    value += coefficients[-1]
    return value
