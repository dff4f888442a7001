"""Specs: sizes agree by name, masks have rows that see nothing, ids repeat; a mistake in one is quoted."""

import numpy as np
import pytest

from numpy_attention.gradcheck.spec import draw_inputs, draw_sizes, parse

ATTENTION = "q: B H T_q d_k, k: B H_kv T_k d_k, v: B H_kv T_k d_v, mask: bool B 1 T_q T_k; H = G*H_kv"


def test_sizes_agree_by_name_and_all_differ(rng: np.random.Generator) -> None:
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


def test_every_mask_of_several_rows_hides_one_row_whole(rng: np.random.Generator) -> None:
    for _ in range(50):
        mask = draw_inputs("mask: bool B T_q T_k", {"B": 2, "T_q": 3, "T_k": 4}, rng)["mask"]
        assert mask.dtype == bool
        assert not mask.any(-1).all()
        assert mask.any()


def test_ids_lie_below_their_limit_and_repeat(rng: np.random.Generator) -> None:
    found = set()
    for _ in range(50):
        ids = draw_inputs("ids: int<V|-100> B T", {"V": 40, "B": 2, "T": 3}, rng)["ids"]
        counted = ids[ids != -100]
        assert ((counted >= 0) & (counted < 40)).all()
        assert len(np.unique(ids)) < ids.size
        found |= set(ids.ravel().tolist())
    assert -100 in found


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floats_have_the_dtype_asked_for(dtype: type) -> None:
    arrays = draw_inputs("x: 3, s: positive 50, y:", {}, 1, dtype)
    assert {array.dtype for array in arrays.values()} == {np.dtype(dtype)}
    assert (arrays["s"] > 0).all()
    assert arrays["y"].shape == ()


def test_the_same_seed_draws_the_same() -> None:
    first, second = (draw_inputs("x: 3 4, ids: int<5> 3", {}, 7) for _ in range(2))
    assert all(np.array_equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(("text", "quoted"), [
    ("", "no arguments"), ("x B T", "x B T"), ("x: B, x: T", "x appears twice"), ("x: B-1", "'B-1'"),
    ("x: 2+B-1", "'2+B-1'"), ("x: ... ...", "'...' twice"), ("x: B; H", "'H'"), ("x: H; H = G-1", "H = G-1"),
    ("ids: int B T", "int<V>"),
    ("a: spd n", "one size twice"), ("a: spd B n m", "one size twice"), ("a: orthogonal ... n", "one size twice"),
    ("p: simplex", "a size last"), ("p: unit ...", "a size last"),
])
def test_a_mistake_in_a_spec_is_quoted(text: str, quoted: str) -> None:
    with pytest.raises(ValueError, match="spec: ") as error:
        parse(text)
    assert quoted in str(error.value)


@pytest.mark.parametrize(("text", "meant"), [
    ("x: poistive d", "did you mean positive?"), ("x: positve", "did you mean positive?"),
    ("a: sdp n n, b: simplx n", "did you mean simplex?"), ("m: bools T T", "did you mean bool?"),
    ("x: gaussian d", "There are float, positive"), ("x: rows cols", "'float rows cols'"),
])
def test_a_misspelt_kind_is_no_size(text: str, meant: str) -> None:
    with pytest.raises(ValueError, match="is no kind") as error:
        parse(text)
    assert meant in str(error.value)
    assert "int<limit>" in str(error.value)


@pytest.mark.parametrize(("text", "names"), [
    ("x: float batch time d", ("batch", "time", "d")), ("w: in out", ("in", "out")), ("x: B batch", ("B", "batch")),
    ("x: seq d, y: n_heads d", ("seq", "d", "n_heads")), ("b: width, m: bool width", ("width",)),
])
def test_what_is_a_size_stays_one(text: str, names: tuple[str, ...]) -> None:
    assert parse(text).size_names == names


def test_usual_draws_stay_what_they_were() -> None:
    arrays = draw_inputs("x: 2, w: positive 2, ids: int<9|-100> 4, mask: bool 2 2", {}, 5)
    assert arrays["x"].tolist() == np.random.default_rng(5).standard_normal(2).tolist()
    assert arrays["w"].round(6).tolist() == [0.780078, 1.522639]
    assert arrays["ids"].tolist() == [8, -100, 8, 3]
    assert arrays["mask"].tolist() == [[False, False], [False, False]]


def test_with_special_values_arrays_of_one_shape_agree_here_and_there() -> None:
    agree = differ = 0
    for seed in range(20):
        x, y, _ = draw_inputs("x: 4 5, y: 4 5, z: 5 4", {}, seed, special=True).values()
        agree += bool((x == y).any())
        differ += bool((x != y).any())
    assert agree > 5
    assert differ > 15
