"""Chapter 8: three ways to add the position of a token."""

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.ops.c08_positions import rotary_tables


@pytest.mark.parametrize("d_model", [6, 7, 1])
def test_table_holds_sines_and_cosines_from_fast_to_slow(d_model: int) -> None:
    table = na.sinusoidal_positions(5, d_model, dtype=np.float64)
    for column in range(d_model):
        frequency = 10000.0 ** (-(column - column % 2) / d_model)
        np.testing.assert_allclose(table[:, column], (np.cos if column % 2 else np.sin)(np.arange(5) * frequency))


def test_moving_forward_turns_each_pair_by_an_angle_independent_of_position() -> None:
    table = na.sinusoidal_positions(9, 6, dtype=np.float64)
    pairs = table[:, 0::2] * 1j + table[:, 1::2]  # cos + i sin
    turns = pairs[3:] / pairs[:-3]
    np.testing.assert_allclose(turns, np.broadcast_to(turns[0], turns.shape))


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rotary_keeps_lengths_and_its_backward_turns_back(rng: np.random.Generator, pairing: str, dtype: type) -> None:
    x, positions = rng.standard_normal((2, 3, 5, 8)).astype(dtype), rng.integers(0, 1000, 5)
    y, cache = na.rotary(x, positions, pairing=pairing)
    assert y.dtype == dtype
    np.testing.assert_allclose(np.linalg.norm(y, axis=-1), np.linalg.norm(x, axis=-1), rtol=1e-5)
    np.testing.assert_allclose(na.rotary_backward(y, cache), x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_scores_of_turned_vectors_depend_only_on_distance(rng: np.random.Generator, pairing: str) -> None:
    q, k = rng.standard_normal((2, 1, 8))

    def score(t: int, s: int) -> float:
        turned = [na.rotary(x, np.array([p]), pairing=pairing)[0][0] for x, p in ((q, t), (k, s))]
        return float(turned[0] @ turned[1])

    np.testing.assert_allclose(score(7, 3), score(104, 100))
    assert abs(score(7, 3) - score(3, 7)) > 1e-3


def test_rotary_changes_nothing_at_position_zero(rng: np.random.Generator) -> None:
    x = rng.standard_normal((4, 6))
    np.testing.assert_array_equal(na.rotary(x, np.zeros(4, int))[0], x)


def test_pairings_differ_only_in_the_order_of_columns(rng: np.random.Generator) -> None:
    x, positions = rng.standard_normal((5, 8)), np.arange(5)
    order = np.arange(8).reshape(4, 2).T.reshape(-1)  # 0 2 4 6 1 3 5 7
    half, _ = na.rotary(x[:, order], positions)
    np.testing.assert_allclose(half, na.rotary(x, positions, pairing="interleaved")[0][:, order])


def test_far_positions_are_accurate_in_float32(rng: np.random.Generator) -> None:
    x, positions = rng.standard_normal((3, 8)), np.array([10**6, 10**6 + 1, 10**7])
    exact = na.rotary(x, positions)[0]
    np.testing.assert_allclose(na.rotary(x.astype(np.float32), positions)[0], exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_columns_without_a_frequency_pass_unchanged_and_the_others_turn_alone(
    rng: np.random.Generator, pairing: str
) -> None:
    x, positions, frequencies = rng.standard_normal((2, 3, 5, 9)), rng.integers(0, 1000, 5), rng.random(3)
    y, cache = na.rotary(x, positions, pairing=pairing, frequencies=frequencies)
    np.testing.assert_array_equal(y[..., 6:], x[..., 6:])
    alone, _ = na.rotary(x[..., :6], positions, pairing=pairing, frequencies=frequencies)
    np.testing.assert_array_equal(y[..., :6], alone)
    np.testing.assert_allclose(na.rotary_backward(y, cache), x, rtol=1e-12, atol=1e-13)


def test_rotary_turns_by_the_cosines_and_sines_of_position_times_frequency(rng: np.random.Generator) -> None:
    x, positions, frequencies = rng.standard_normal((4, 5, 6)), np.arange(5) * 1.5, rng.random(3)
    angles = positions[:, None] * frequencies
    turned, _ = na.rotate(x, np.cos(angles), np.sin(angles))
    np.testing.assert_array_equal(na.rotary(x, positions, frequencies=frequencies)[0], turned)
    np.testing.assert_array_equal(na.rotary(x, positions, frequencies=na.rotary_frequencies(6))[0],
                                  na.rotary(x, positions)[0])


def test_no_frequencies_turn_nothing(rng: np.random.Generator) -> None:
    x = rng.standard_normal((4, 3))
    y, cache = na.rotary(x, np.arange(4), frequencies=np.zeros(0))
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(na.rotary_backward(x, cache), x)


# Computed by transformers 5.23.0 in float32: `ROPE_INIT_FUNCTIONS[type](config)` of modeling_rope_utils.py, for a
# LlamaConfig with head_dim = width and rope_theta = base. transformers has no "ntk"; these numbers are its "dynamic"
# with a factor of 2 for a text of twice max_position_embeddings, which makes the factor 2 * 2 - (2 - 1) = 3.
PUBLISHED = {
    "linear": (12, 1e4, {"factor": 4.0}, [
        0.25, 0.0538608618, 0.011603971, 0.00249999994, 0.000538608583, 0.000116039737]),
    "ntk": (12, 1e4, {"factor": 3.0}, [
        1.0, 0.17294541, 0.0299101174, 0.00517281843, 0.000894615077, 0.000154719659]),
    "ntk, four columns": (4, 1e4, {"factor": 3.0}, [1.0, 0.00333333341]),
    "llama3": (24, 5e5, {
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}, [
        1.0, 0.335031629, 0.112246193, 0.0376060307, 0.0125992084, 0.00422113482, 0.000524846022, 5.92258002e-05,
        1.98425078e-05, 6.64786967e-06, 2.22724748e-06, 7.46197941e-07]),
    "llama3, a wide ramp": (12, 1e4, {
        "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 16.0, "original_max_position_embeddings": 512}, [
        1.0, 0.215443447, 0.00979099516, 0.000312499993, 6.73260729e-05, 1.45049671e-05]),
    "yarn": (24, 1e4, {"factor": 4.0, "original_max_position_embeddings": 2048}, [
        1.0, 0.464158893, 0.215443447, 0.100000001, 0.039453499, 0.0150810443, 0.00549999997, 0.00185663579,
        0.000538608583, 0.000250000012, 0.000116039737, 5.38608547e-05]),
    "yarn, other limits": (16, 1e6, {
        "factor": 16.0, "original_max_position_embeddings": 4096, "beta_fast": 24.0, "beta_slow": 2.0}, [
        1.0, 0.177827939, 0.0217406601, 0.00210877974, 6.2500003e-05, 1.11142463e-05, 1.97642339e-06, 3.51463342e-07]),
    "yarn, a short text": (12, 1e4, {"factor": 4.0, "original_max_position_embeddings": 100}, [
        1.0, 0.134652153, 0.011603971, 0.00249999994, 0.000538608583, 0.000116039737]),
    "yarn, a small base": (12, 10.0, {"factor": 4.0, "original_max_position_embeddings": 4096, "beta_fast": 500.0}, [
        1.0, 0.63484031, 0.400864512, 0.251544833, 0.156686142, 0.0967413113]),
    "yarn, limits between pairs": (16, 1.5e5, {
        "factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False}, [
        1.0, 0.225418001, 0.0508132726, 0.00679495931, 0.000456483918, 1.8188337e-05, 4.09997847e-06, 9.24208962e-07]),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_scaled_frequencies_equal_those_of_the_published_code(name: str) -> None:
    width, base, scaling, published = PUBLISHED[name]
    for key in ("type", "rope_type"):
        found = na.rotary_frequencies(width, base, {key: name.partition(",")[0], **scaling})
        np.testing.assert_allclose(found, published, rtol=1e-6)


def test_ntk_keeps_the_first_frequency_divides_the_last_and_equals_a_larger_base() -> None:
    f, scaled = na.rotary_frequencies(8, 100.0), na.rotary_frequencies(8, 100.0, {"type": "ntk", "factor": 5.0})
    np.testing.assert_allclose((f / scaled)[[0, -1]], [1.0, 5.0])
    np.testing.assert_allclose(scaled, na.rotary_frequencies(8, 100.0 * 5.0 ** (8 / 6)))


@pytest.mark.parametrize("scaling", [
    {"type": "linear"}, {"type": "ntk"}, {"type": "yarn", "original_max_position_embeddings": 100},
    {"type": "llama3", "original_max_position_embeddings": 100, "low_freq_factor": 1, "high_freq_factor": 4},
], ids=lambda scaling: scaling["type"])
@pytest.mark.parametrize("width", [0, 2, 4, 26])
def test_larger_factors_only_lower_frequencies(scaling: dict[str, object], width: int) -> None:
    f = na.rotary_frequencies(width)
    assert f.shape == (width // 2,)
    np.testing.assert_allclose(na.rotary_frequencies(width, scaling={**scaling, "factor": 1}), f)
    slower = na.rotary_frequencies(width, scaling={**scaling, "factor": 7})
    assert (slower <= f).all()
    assert (slower >= f / 7 * (1 - 1e-12)).all()


def test_scaling_positions_by_the_factor_undoes_linear_scaling(rng: np.random.Generator) -> None:
    x, scaled = rng.standard_normal((5, 6)), na.rotary_frequencies(6, scaling={"type": "linear", "factor": 4.0})
    np.testing.assert_allclose(na.rotary(x, 4 * np.arange(5), frequencies=scaled)[0], na.rotary(x, np.arange(5))[0])


def test_yarn_temperature_equals_that_of_the_published_code() -> None:
    factors, published = (1.0, 4.0, 16.0, 32.0), (1.0, 1.138629436111989, 1.2772588722239782, 1.3465735902799727)
    np.testing.assert_allclose([na.yarn_temperature(factor) for factor in factors], published, rtol=1e-15)


@pytest.mark.parametrize("num_heads", [1, 2, 6, 8, 12, 16])
def test_slopes_decrease_and_are_between_zero_and_one(num_heads: int) -> None:
    slopes = na.alibi_slopes(num_heads)
    assert slopes.shape == (num_heads,)
    assert len(set(slopes.tolist())) == num_heads
    assert ((slopes > 0) & (slopes < 1)).all()
    lower = 2 ** (num_heads.bit_length() - 1)
    np.testing.assert_allclose(slopes[1:lower] / slopes[: lower - 1], 2.0 ** (-8.0 / lower))
    assert (np.diff(slopes[lower:]) < 0).all()


def test_alibi_bias_is_minus_slope_times_distance() -> None:
    bias = na.alibi_bias(3, 2, 5, dtype=np.float64)
    distance = np.array([[3, 2, 1, 0, 1], [4, 3, 2, 1, 0]])
    np.testing.assert_allclose(bias, -na.alibi_slopes(3)[:, None, None] * distance)


TEXT = {"factor": 2.0, "original_max_position_embeddings": 64}


def scaled(kind: str, base: float = 1e4, **numbers: float) -> np.ndarray:
    return na.rotary_frequencies(6, base, {"type": kind, **numbers})


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tables_depend_on_the_dtype_but_not_on_the_numbers(rng: np.random.Generator, dtype: type) -> None:
    x, positions = rng.standard_normal((2, 3, 5, 8)).astype(dtype), rng.integers(0, 1000, (2, 1, 5))
    _, cache = na.rotary(x, positions, 50.0)
    for other in (x, 3 * x, x[:, :1]):
        tables = rotary_tables(other, positions, 50.0)
        for found, expected in zip(tables, (cache.cos, cache.sin), strict=True):
            assert (found.shape, found.dtype) == ((2, 1, 5, 4), dtype)
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda x: na.rotary(x[:, :7], np.arange(5)), ValueError, "with even d_k, got"),
    (lambda x: na.rotary(x, np.arange(5), pairing="other"), ValueError, 'pairing must be "half" or "interleaved"'),
    (lambda x: na.rotary(x, np.arange(4)), ValueError, r"positions must be broadcastable to \(\.\.\., T\) = \(5,\)"),
    (lambda x: na.rotary(x, np.zeros((5, 1), int)), ValueError, "positions must be broadcastable"),
    (lambda x: na.rotary(x, np.ones(5, bool)), TypeError, "positions must be an array of numbers, got bool"),
    (lambda x: na.rotary(x, range(5)), TypeError, "positions must be an array of numbers, got range"),
    (lambda x: na.rotary(x, np.arange(5), frequencies=np.ones(5)), ValueError, r"frequencies must be \(n,\) with 2 n"),
    (lambda x: na.rotary(x, np.arange(5), frequencies=[1.0]), TypeError, "frequencies must be an array of floats"),
    (lambda x: na.rotate(x, np.ones(5), np.ones(5)), ValueError, r"rotate: cos must be .* with 2 n <= d_k, for x"),
    (lambda x: na.rotate(x, np.ones(3), np.ones(2)), ValueError, "rotate: sin must be broadcastable"),
    (lambda x: na.rotate(x, np.ones((4, 3)), np.ones(3)), ValueError, "rotate: cos must be broadcastable"),
    (lambda x: na.rotary_frequencies(5), ValueError, "width must be even, got 5"),
    (lambda x: scaled("linear", factor=0.5), ValueError, r'scaling\["factor"\] must be at least 1'),
    (lambda x: scaled("linear"), TypeError, r'scaling\["factor"\] must be a number above 0 and finite, got None'),
    (lambda x: scaled("longrope"), ValueError, "must be one of linear, ntk, llama3, yarn, got 'longrope'"),
    (lambda x: scaled("ntk", factor=2.0, mscale=1.0), ValueError, "scaling must be made of type, factor, got mscale"),
    (lambda x: scaled("yarn", factor=2.0), TypeError, "original_max_position_embeddings.* got None"),
    (lambda x: scaled("yarn", **TEXT, beta_slow=40), ValueError, "beta_fast.* must be above 40.0 and finite"),
    (lambda x: scaled("yarn", **TEXT, truncate="no"), TypeError, r'scaling\["truncate"\] must be True or False'),
    (lambda x: scaled("yarn", 0.5, **TEXT), ValueError, "base must be above 1"),
    (lambda x: scaled("llama3", **TEXT, low_freq_factor=1, high_freq_factor=1), ValueError, "high_freq.* above 1.0"),
    (lambda x: na.rotary_frequencies(4, scaling=2.0), TypeError, "scaling must be a dict or None, got float"),
    (lambda x: na.yarn_temperature(0.5), ValueError, "yarn_temperature: factor must be at least 1"),
    (lambda x: na.sinusoidal_positions(-1, 4), ValueError, "length must be at least 0, got -1"),
    (lambda x: na.sinusoidal_positions(3, 0), ValueError, "d_model must be at least 1, got 0"),
    (lambda x: na.alibi_slopes(0), ValueError, "alibi_slopes: num_heads must be at least 1, got 0"),
    (lambda x: na.alibi_bias(0, 3), ValueError, "alibi_bias: num_heads must be at least 1, got 0"),
    (lambda x: na.alibi_bias(2, 3, -1), ValueError, "T_k must be at least 0, got -1"),
], ids=[
    "odd d_k", "another pairing", "four for five", "two axes for one", "bool", "a range",
    "five frequencies for three pairs", "a list", "five angles for three pairs", "three and two", "four for five rows",
    "odd width", "factor below 1", "no factor", "unknown type", "unknown key", "no length", "limits of yarn", "a text",
    "base of yarn", "limits of llama3", "a number", "temperature", "length -1", "no width",
    "slopes of no heads", "bias of no heads", "T_k -1",
])
def test_refuses_invalid_positions_and_sizes(call: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(np.ones((5, 8)))
