"""Specs: equal names give equal sizes, masks have rows of all False, ids repeat; a mistake in a spec is quoted.

Arrays of each kind have the property of their kind. A seed repeats its example, and 25 examples find most mistakes at
single values.
"""

from collections.abc import Callable

import numpy as np
import pytest

from numpy_attention.gradcheck import GradientError, gradcheck_vjp
from numpy_attention.gradcheck.spec import (
    NUMBERS,
    DrawnInputs,
    draw_example,
    draw_inputs,
    draw_numbers,
    draw_sizes,
    parse,
)

SHAPES = {"spd": [(1, 1), (4, 4), (2, 3, 3)], "orthogonal": [(1, 1), (4, 4), (2, 3, 3)]}
OF_ROWS = [(1,), (5,), (3, 4), (2, 3, 1)]


def drawn(kind: str, rng: np.random.Generator, dtype: type, special: bool) -> list[np.ndarray]:
    return [draw_numbers(kind, shape, rng, dtype, special) for shape in SHAPES.get(kind, OF_ROWS) for _ in range(20)]


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
class TestKinds:
    @pytest.mark.parametrize("kind", NUMBERS)
    def test_dtype_and_finite(self, kind: str, rng: np.random.Generator, dtype: type, special: bool) -> None:
        for x in drawn(kind, rng, dtype, special):
            assert x.dtype == (np.result_type(dtype, np.complex64) if kind == "complex" else dtype)
            assert np.isfinite(x).all()
            assert np.iscomplexobj(x) == (kind == "complex")

    def test_positive_and_simplex(self, rng: np.random.Generator, dtype: type, special: bool) -> None:
        assert all((x > 0).all() for x in drawn("positive", rng, dtype, special))
        for x in drawn("simplex", rng, dtype, special):
            assert (x > 0).all()
            np.testing.assert_allclose(x.sum(-1), 1, rtol=1e-6)

    def test_distinct_values_differ_from_each_other_and_from_zero(
        self, rng: np.random.Generator, dtype: type, special: bool
    ) -> None:
        for x in drawn("distinct", rng, dtype, special):
            ordered = np.sort(np.append(x, 0))
            assert np.diff(ordered).min() > 0.02 * np.abs(x).max()
            assert x.size < 3 or x.min() < 0 < x.max()

    def test_orthogonal_and_spd(self, rng: np.random.Generator, dtype: type, special: bool) -> None:
        for q in drawn("orthogonal", rng, dtype, special):
            np.testing.assert_allclose(q @ q.swapaxes(-1, -2), np.broadcast_to(np.eye(q.shape[-1]), q.shape), atol=1e-5)
        for a in drawn("spd", rng, dtype, special):
            assert np.array_equal(a, a.swapaxes(-1, -2))
            assert (np.linalg.eigvalsh(a.astype(np.float64)) > 0).all()


ATTENTION = "q: B H T_q d_k, k: B H_kv T_k d_k, v: B H_kv T_k d_v, mask: bool B 1 T_q T_k; H = G*H_kv"


def test_equal_names_give_equal_sizes_and_different_names_differ(rng: np.random.Generator) -> None:
    spec = parse(ATTENTION)
    assert spec.size_names == ("B", "G", "H_kv", "T_q", "d_k", "T_k", "d_v")
    for _ in range(50):
        sizes = draw_sizes(spec, rng)
        assert len(set(sizes.values())) == len(sizes)
        shapes = spec.shapes(sizes)
        assert shapes["q"][1] == sizes["G"] * shapes["k"][1]
        assert shapes["mask"] == (sizes["B"], 1, sizes["T_q"], sizes["T_k"])
        assert {name: array.shape for name, array in draw_inputs(spec, sizes, rng).items()} == shapes


def test_sizes_can_be_fixed_and_bounded(rng: np.random.Generator) -> None:
    for _ in range(20):
        sizes = draw_sizes("x: ... T d, w: 2*d d+1", rng, fixed={"T": 9}, at_least={"d": 4})
        assert sizes["T"] == 9
        assert isinstance(sizes["d"], int)
        assert sizes["d"] >= 4
        shapes = parse("x: ... T d, w: 2*d d+1").shapes(sizes)
        assert shapes["w"] == (2 * sizes["d"], sizes["d"] + 1)
        assert shapes["x"] == (*np.atleast_1d(sizes["..."]), 9, sizes["d"])


def test_every_mask_of_several_rows_has_a_row_of_all_false(rng: np.random.Generator) -> None:
    for _ in range(50):
        mask = draw_inputs("mask: bool B T_q T_k", {"B": 2, "T_q": 3, "T_k": 4}, rng)["mask"]
        assert mask.dtype == bool
        assert not mask.any(-1).all()
        assert mask.any()


def test_ids_are_below_their_limit_and_repeat(rng: np.random.Generator) -> None:
    found = set()
    for _ in range(50):
        ids = draw_inputs("ids: int<V|-100> B T", {"V": 40, "B": 2, "T": 3}, rng)["ids"]
        counted = ids[ids != -100]
        assert ((counted >= 0) & (counted < 40)).all()
        assert len(np.unique(ids)) < ids.size
        found |= set(ids.ravel().tolist())
    assert -100 in found


@pytest.mark.parametrize(("text", "quoted"), [
    ("x B T", "x B T"), ("x: B, x: T", "x appears twice"), ("x: B-1", "'B-1'"), ("x: ... ...", "'...' twice"),
    ("x: B; H", "'H'"), ("ids: int B T", "int<V>"), ("a: spd B n m", "one size twice"), ("p: simplex", "a size last"),
])
def test_a_mistake_in_a_spec_is_quoted(text: str, quoted: str) -> None:
    with pytest.raises(ValueError, match="spec: ") as error:
        parse(text)
    assert quoted in str(error.value)


@pytest.mark.parametrize(("text", "meant"), [
    ("x: poistive d", "did you mean positive?"), ("x: gaussian d", "The kinds are float, positive"),
    ("x: rows cols", "'float rows cols'"),
])
def test_a_misspelt_kind_is_not_a_size(text: str, meant: str) -> None:
    with pytest.raises(ValueError, match="is not a kind") as error:
        parse(text)
    assert meant in str(error.value)
    assert "int<limit>" in str(error.value)


CROSS_ATTENTION = "q: B H T_q d_k, k: B H_kv T_k d_k, v: B H_kv T_k d_v, mask?: bool T_q T_k; H = G*H_kv"


def test_a_seed_repeats_its_example() -> None:
    first, second, other = (draw_example(CROSS_ATTENTION, seed) for seed in (3, 3, 5))
    assert first.sizes == second.sizes
    assert all(np.array_equal(first[name], second[name]) for name in first if first[name] is not None)
    assert other.sizes != first.sizes or not np.array_equal(other["q"], first["q"])


def test_an_example_prints_its_sizes_and_seed() -> None:
    assert repr(draw_example("x: B d, b?: d", 1, fixed={"B": 2, "d": 3}, dtype=np.float32)).startswith(
        "<sizes B=2, d=3; seed 1; special values; x: float32 (2, 3), b: "
    )
    assert repr(draw_example("x: d", 4, fixed={"d": 3})) == "<sizes d=3; seed 4; x: float64 (3,)>"


Place = Callable[[np.ndarray], np.ndarray]


def rows(holds: Callable[[np.ndarray], np.ndarray]) -> Place:
    return lambda x: np.broadcast_to(holds(x)[..., None], x.shape)


def size(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.sqrt((x * x).mean(-1)))


# Places at which the derivative of x + x^3 is wrong by 0.1.
PLANTED: dict[str, Place] = {
    "at zero": lambda x: x == 0,
    "at minus zero": lambda x: (x == 0) & np.signbit(x),
    "at one": lambda x: x == 1,
    "beyond minus ten": lambda x: x < -10,
    "near zero": lambda x: (np.abs(x) < 1e-4) & (x != 0),
    "at a tie": lambda x: (x[..., None] == x[..., None, :]).sum(-1) > 1,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_25_examples_find_a_mistake_at_a_single_value(name: str) -> None:
    def wrong(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.asarray(dy * (1 + 3 * x * x) * np.where(PLANTED[name](x), 1.1, 1.0))

    def right(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.asarray(dy * (1 + 3 * x * x))

    caught = 0
    for start in (0, 25, 50):
        examples = [draw_example("x: ... d", seed) for seed in range(start, start + 25)]
        caught += any(fails(wrong, drawn) for drawn in examples)
        assert not any(fails(right, drawn) for drawn in examples[:5])
    assert caught >= 2


def fails(vjp: Callable[..., np.ndarray], drawn: DrawnInputs) -> bool:
    try:
        gradcheck_vjp(lambda x: x + x**3, vjp, drawn)
    except GradientError:
        return True
    return False
