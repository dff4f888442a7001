"""Signals, sums along an axis, curves and images."""

import numpy as np

from tests.gradcheck.acceptance.third_party.function import MODEST, ROWS, Arrays, ThirdParty

PLACES = np.array([0.3, 1.0, 2.75, 3.5, 0.0])


def power_spectrum(x: np.ndarray) -> np.ndarray:
    spectrum = np.fft.fft(x)
    return spectrum.real**2 + spectrum.imag**2


def power_spectrum_vjp(dy: np.ndarray, x: np.ndarray) -> Arrays:
    return (2 * x.shape[-1] * np.fft.ifft(dy * np.fft.fft(x)).real.astype(x.dtype),)


def fft_filter(x: np.ndarray, h: np.ndarray) -> np.ndarray:  # circular convolution
    return np.fft.irfft(np.fft.rfft(x) * np.fft.rfft(h), x.shape[-1])


def fft_filter_vjp(dy: np.ndarray, x: np.ndarray, h: np.ndarray) -> Arrays:
    d, n = np.fft.rfft(dy), x.shape[-1]
    return np.fft.irfft(d * np.fft.rfft(h).conj(), n), np.fft.irfft(d * np.fft.rfft(x).conj(), n).sum(0)


def cumulative_sum(x: np.ndarray) -> np.ndarray:
    return np.cumsum(x, -1)


def cumulative_sum_vjp(dy: np.ndarray, x: np.ndarray) -> Arrays:
    return (np.cumsum(dy[..., ::-1], -1)[..., ::-1].copy(),)


def cumulative_product(x: np.ndarray) -> np.ndarray:
    return np.cumprod(x, -1)


def cumulative_product_vjp(dy: np.ndarray, x: np.ndarray) -> Arrays:
    dx = np.zeros_like(x)
    for i in range(x.shape[-1]):  # without a division, so zeros are allowed
        without = x.copy()
        without[..., i] = 1
        dx[..., i] = (dy * np.cumprod(without, -1))[..., i:].sum(-1)
    return (dx,)


def logsumexp(x: np.ndarray) -> np.ndarray:
    top = x.max(-1, keepdims=True)
    return (top + np.log(np.exp(x - top).sum(-1, keepdims=True)))[..., 0]


def logsumexp_vjp(dy: np.ndarray, x: np.ndarray) -> Arrays:
    return (dy[..., None] * np.exp(x - logsumexp(x)[..., None]),)


def interpolate(values: np.ndarray) -> np.ndarray:  # linear, at PLACES
    i = np.minimum(PLACES.astype(int), values.shape[-1] - 2)
    t = (PLACES - i).astype(values.dtype)
    return values[..., i] * (1 - t) + values[..., i + 1] * t


def interpolate_vjp(dy: np.ndarray, values: np.ndarray) -> Arrays:
    i = np.minimum(PLACES.astype(int), values.shape[-1] - 2)
    t, d = (PLACES - i).astype(values.dtype), np.zeros_like(values)
    np.add.at(d, (..., i), dy * (1 - t))
    np.add.at(d, (..., i + 1), dy * t)
    return (d,)


def spline(t: np.ndarray, p: np.ndarray) -> np.ndarray:  # Catmull and Rom, between the two middle points
    q = 2 * p[1] + t * (p[2] - p[0]) + t**2 * (2 * p[0] - 5 * p[1] + 4 * p[2] - p[3])
    return 0.5 * (q + t**3 * (3 * p[1] - p[0] - 3 * p[2] + p[3]))


def spline_vjp(dy: np.ndarray, t: np.ndarray, p: np.ndarray) -> Arrays:
    slope = p[2] - p[0] + 2 * t * (2 * p[0] - 5 * p[1] + 4 * p[2] - p[3])
    slope = slope + 3 * t**2 * (3 * p[1] - p[0] - 3 * p[2] + p[3])
    basis = np.stack([-t + 2 * t**2 - t**3, 2 - 5 * t**2 + 3 * t**3, t + 4 * t**2 - 3 * t**3, -(t**2) + t**3])
    return 0.5 * dy * slope, 0.5 * basis @ dy


def bilinear_resize(x: np.ndarray) -> np.ndarray:  # (H, W) to (2 H - 1, 2 W - 1)
    return _middles(_middles(x).T).T


def bilinear_resize_vjp(dy: np.ndarray, x: np.ndarray) -> Arrays:
    return (_gathered(_gathered(dy.T).T),)


def _middles(x: np.ndarray) -> np.ndarray:
    y = np.zeros((2 * len(x) - 1, x.shape[1]), x.dtype)
    y[::2], y[1::2] = x, (x[1:] + x[:-1]) / 2
    return y


def _gathered(dy: np.ndarray) -> np.ndarray:
    dx = dy[::2].copy()
    dx[1:] += dy[1::2] / 2
    dx[:-1] += dy[1::2] / 2
    return dx


def autocorrelation(x: np.ndarray) -> np.ndarray:
    n = len(x)
    return np.stack([x[: n - k] @ x[k:] for k in range(4)])


def autocorrelation_vjp(dy: np.ndarray, x: np.ndarray) -> Arrays:
    dx, n = np.zeros_like(x), len(x)
    for k in range(4):
        dx[: n - k] += dy[k] * x[k:]
        dx[k:] += dy[k] * x[: n - k]
    return (dx,)


def total_variation(x: np.ndarray) -> np.ndarray:  # smooth: sqrt(d d + 0.01)
    return np.sqrt(np.diff(x) ** 2 + 0.01).sum(-1)


def total_variation_vjp(dy: np.ndarray, x: np.ndarray) -> Arrays:
    d = np.diff(x)
    g = dy[..., None] * d / np.sqrt(d**2 + 0.01)
    dx = np.zeros_like(x)
    dx[..., 1:] += g
    dx[..., :-1] -= g
    return (dx,)


def softplus(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def softplus_vjp(dy: np.ndarray, x: np.ndarray) -> Arrays:
    return (dy * np.exp(-np.logaddexp(0, -x)),)


def elu(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def elu_vjp(dy: np.ndarray, x: np.ndarray) -> Arrays:
    return (dy * np.where(x > 0, 1, np.exp(np.minimum(x, 0))),)


def gelu_by_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))


def gelu_by_tanh_vjp(dy: np.ndarray, x: np.ndarray) -> Arrays:
    t = np.tanh(0.7978845608 * (x + 0.044715 * x**3))
    return (dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608 * (1 + 3 * 0.044715 * x**2)),)


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def unit_vjp(dy: np.ndarray, x: np.ndarray) -> Arrays:
    y = unit(x)
    return ((dy - y * (dy * y).sum(-1, keepdims=True)) / np.linalg.norm(x, axis=-1, keepdims=True),)


def polynomial(c: np.ndarray, x: np.ndarray) -> np.ndarray:  # Horner; c from the highest power down
    y = np.zeros_like(x)
    for one in c:
        y = y * x + one
    return y


def polynomial_vjp(dy: np.ndarray, c: np.ndarray, x: np.ndarray) -> Arrays:
    powers = x[None] ** np.arange(len(c))[::-1, None]
    slope = np.zeros_like(x)
    for k, one in enumerate(c[:-1]):
        slope = slope * x + one * (len(c) - 1 - k)
    return powers @ dy, dy * slope


def rotate(q: np.ndarray, v: np.ndarray) -> np.ndarray:  # by an unnormalised quaternion (w, u)
    w, u = q[:1], q[1:]
    return (w * w - u @ u) * v + 2 * np.outer(v @ u, u) + 2 * w * np.cross(u, v)


def rotate_vjp(dy: np.ndarray, q: np.ndarray, v: np.ndarray) -> Arrays:
    w, u = q[:1], q[1:]
    dw = 2 * w * (dy * v).sum() + 2 * (dy * np.cross(u, v)).sum()
    du = -2 * u * (dy * v).sum() + 2 * ((dy @ u) @ v + (v @ u) @ dy) + 2 * w * np.cross(v, dy).sum(0)
    return np.concatenate([dw, du]), (w * w - u @ u) * dy + 2 * np.outer(dy @ u, u) + 2 * w * np.cross(dy, u)


def oscillator(x: np.ndarray, k: np.ndarray) -> np.ndarray:  # ten steps of leapfrog; x (2, N): place and speed
    place, speed = x
    for _ in range(10):
        speed = speed - 0.1 * k * np.sin(place)
        place = place + 0.1 * speed
    return np.stack([place, speed])


def oscillator_vjp(dy: np.ndarray, x: np.ndarray, k: np.ndarray) -> Arrays:
    place, speed = x
    places = []
    for _ in range(10):
        places.append(place)
        speed = speed - 0.1 * k * np.sin(place)
        place = place + 0.1 * speed
    dplace, dspeed = dy
    dk = np.zeros_like(k)
    for before in reversed(places):
        dspeed = dspeed + 0.1 * dplace
        dk = dk - 0.1 * np.sin(before) * dspeed
        dplace = dplace - 0.1 * k * np.cos(before) * dspeed
    return np.stack([dplace, dspeed]), dk


R = "real"
SIGNALS = [
    ThirdParty(power_spectrum, power_spectrum_vjp, ((R, (2, 7)),), ROWS),
    ThirdParty(fft_filter, fft_filter_vjp, ((R, (2, 8)), (R, (8,)))),
    ThirdParty(cumulative_sum, cumulative_sum_vjp, ((R, (3, 5)),), ROWS),
    ThirdParty(cumulative_product, cumulative_product_vjp, ((R, (3, 5)),), ROWS),
    ThirdParty(logsumexp, logsumexp_vjp, ((R, (3, 5)),), ROWS),
    ThirdParty(interpolate, interpolate_vjp, ((R, (2, 5)),), ROWS),
    ThirdParty(spline, spline_vjp, (("unit interval", (6,)), (R, (4,)))),
    ThirdParty(bilinear_resize, bilinear_resize_vjp, ((R, (3, 4)),)),
    ThirdParty(autocorrelation, autocorrelation_vjp, ((R, (9,)),)),
    ThirdParty(total_variation, total_variation_vjp, ((R, (2, 7)),), ROWS),
    ThirdParty(softplus, softplus_vjp, ((R, (3, 5)),), ROWS),
    ThirdParty(elu, elu_vjp, ((R, (3, 5)),), ROWS),
    ThirdParty(gelu_by_tanh, gelu_by_tanh_vjp, ((R, (3, 5)),), MODEST),
    ThirdParty(unit, unit_vjp, ((R, (3, 5)),), ("normal", "small", "large", "mixed", "float32")),
    ThirdParty(polynomial, polynomial_vjp, ((R, (5,)), (R, (6,))), MODEST),
    ThirdParty(rotate, rotate_vjp, ((R, (4,)), (R, (5, 3)))),
    ThirdParty(oscillator, oscillator_vjp, ((R, (2, 4)), (R, (4,))), MODEST),
]
