"""Chapter 4: True means this query may look at this key; adapters convert other conventions."""

import numpy as np
import pytest

import numpy_attention as na


def test_causal_mask_shows_a_position_itself_and_earlier_positions() -> None:
    mask = na.causal_mask(5)
    assert mask.dtype == bool
    assert all(mask[i, j] == (j <= i) for i in range(5) for j in range(5))


@pytest.mark.parametrize(("T_q", "T_k"), [(2, 5), (5, 2), (1, 7), (0, 3)])
def test_last_query_has_the_position_of_the_last_key(T_q: int, T_k: int) -> None:
    longer = na.causal_mask(max(T_q, T_k))
    np.testing.assert_array_equal(na.causal_mask(T_q, T_k), longer[len(longer) - T_q :, len(longer) - T_k :])


@pytest.mark.parametrize("T_k", [6, 9])
def test_window_includes_own_position_and_stops_at_the_first_key(T_k: int) -> None:
    for window in (1, 3, 20):
        mask = na.sliding_window_mask(6, window, T_k)
        positions = np.arange(6) + T_k - 6
        np.testing.assert_array_equal(mask.sum(axis=1), np.minimum(window, positions + 1))
        assert mask[np.arange(6), positions].all()
        assert not (mask & ~na.causal_mask(6, T_k)).any()


@pytest.mark.parametrize(("window", "ahead"), [(1, 0), (1, 2), (3, 1), (20, 20), (2**70, 2**70)])
@pytest.mark.parametrize(("T_q", "T_k"), [(6, 6), (4, 9), (9, 4)])
def test_window_in_both_directions_hides_far_keys(T_q: int, T_k: int, window: int, ahead: int) -> None:
    mask = na.sliding_window_mask(T_q, window, T_k, ahead)
    for i in range(T_q):
        p = i + T_k - T_q
        assert mask[i].tolist() == [p - window < j <= p + ahead for j in range(T_k)]


def test_padding_mask_hides_keys_in_every_row_and_head(rng: np.random.Generator) -> None:
    lengths = np.array([2, 0, 5])
    mask = na.padding_mask(lengths, 5)
    assert mask.shape == (3, 1, 1, 5)
    np.testing.assert_array_equal(mask.sum(axis=-1).reshape(-1), lengths)
    np.testing.assert_array_equal(na.padding_mask([2, 0, 5], 5), mask)
    both = na.causal_mask(5) & mask
    q, k, v = rng.standard_normal((3, 3, 2, 5, 4))
    assert not na.scaled_dot_product_attention(q, k, v, mask=both)[1].weights[0, :, :, 2:].any()


def test_each_adapter_converts_to_the_same_mask(rng: np.random.Generator) -> None:
    mask = rng.random((3, 4)) < 0.5
    for blocked in (~mask, (~mask).astype(int), (~mask).astype(np.float32)):
        np.testing.assert_array_equal(na.mask_from_blocked(blocked), mask)
    for hidden in (-1e4, -1e9, -9e15, -np.inf):
        np.testing.assert_array_equal(na.mask_from_additive(np.where(mask, 0.0, hidden)), mask)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: na.causal_mask(-1), r"causal_mask: T_q must be at least 0, got -1"),
    (lambda: na.sliding_window_mask(3, 2, -4), r"sliding_window_mask: T_k must be at least 0, got -4"),
    (lambda: na.sliding_window_mask(3, 0), "window must be at least 1, got 0"),
    (lambda: na.sliding_window_mask(3, 2, 3, -1), "ahead must be at least 0, got -1"),
    (lambda: na.padding_mask(np.array([4]), 3), r"lengths must be integers in \[0, 4\), got 4; is T = 3 the padded"),
    (lambda: na.padding_mask(np.array([-1]), 3), r"lengths must be integers in \[0, 4\), got -1"),
    (lambda: na.padding_mask(np.array([[1]]), 3), r"\(B,\), one length for each sequence, got \(1, 1\)"),
    (lambda: na.mask_from_blocked(np.array([0, 2])), "blocked must be made of 0 .visible. and 1 .hidden."),
    (lambda: na.mask_from_additive(np.array([0.0, -3.0])), "numbers in between are a bias"),
    (lambda: na.mask_from_additive(np.array([0.0, 1e9])), "additive must be made of 0 and numbers of -1e4 or below"),
], ids=[
    "causal of -1", "window with T_k -4", "window of 0", "ahead of -1", "length 4 of 3", "length -1",
    "lengths of two axes", "a 2 among 0 and 1", "a bias of -3", "plus for minus",
])
def test_refuses_invalid_mask_arguments(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(("call", "message"), [
    (lambda: na.padding_mask(np.array([1.0]), 3), "lengths must be an integer array"),
    (lambda: na.mask_from_blocked([0, 1]), "blocked must be an array"),
    (lambda: na.mask_from_additive(np.array([0, 1])), "for 0 and 1 use mask_from_blocked"),
    (lambda: na.mask_from_additive([0.0]), "additive must be an array"),
], ids=["lengths of floats", "a list for blocked", "integers for additive", "a list for additive"])
def test_refuses_wrong_type_and_suggests_an_adapter(call: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


def test_refuses_single_length_before_checking_its_size() -> None:
    with pytest.raises(ValueError, match=r"lengths must be \(B,\), one length for each sequence"):
        na.padding_mask(np.array(9), 5)


def test_empty_lengths_give_an_empty_batch() -> None:
    assert na.padding_mask([], 3).shape == (0, 1, 1, 3)
