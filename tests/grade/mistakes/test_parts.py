"""Mistakes in rotary positions, dropout, RMS norm and the tied table, in the form in which a student writes them."""

import pytest

from tests.grade.hand_in import UNWRITTEN, tutor_text

ROTARY = """d_k = x.shape[-1]
    a = positions[..., None] * base ** ({exponent} / d_k)
    cos, sin = np.cos(a).astype(x.dtype), {sign}np.sin(a).astype(x.dtype)
    x_1, x_2 = x[..., :d_k // 2], x[..., d_k // 2:]
    return np.concatenate([x_1 * cos - x_2 * sin, x_2 * cos + x_1 * sin], axis=-1), (cos, sin)"""
BACK = """cos, sin = cache
    h = dy.shape[-1] // 2
    return np.concatenate([dy[..., :h] * cos + dy[..., h:] * sin, dy[..., h:] * cos - dy[..., :h] * sin], axis=-1)"""
RIGHT = ROTARY.format(exponent="-np.arange(0, d_k, 2)", sign="")


@pytest.mark.parametrize(("name", "exercise", "answers"), [
    ("turned_the_other_way", "rotary", (ROTARY.format(exponent="-np.arange(0, d_k, 2)", sign="-"), BACK)),
    ("two_missing_in_the_frequency", "rotary", (ROTARY.format(exponent="-np.arange(d_k // 2)", sign=""), BACK)),
    ("turned_forward_again", "rotary", (RIGHT, BACK.replace("* cos + dy", "* cos - dy").replace(
        "* cos - dy[..., :h]", "* cos + dy[..., :h]"))),
    ("kept_not_scaled_up", "dropout", ("return (x, 1) if rng is None else (x * kept, kept)", "return dy * cache")),
    ("dropout_scale_left_out", "dropout", (
        "return (x, 1) if rng is None else ((x * kept / (1 - rate)).astype(x.dtype), kept)", "return dy * cache")),
    ("only_the_logits", "tied_table", (
        """rows, dh = dlogits.reshape(-1, len(table)), (dlogits @ table).reshape(-1, len(w))
    return rows.T @ h.reshape(dh.shape), x.reshape(dh.shape).T @ dh""",)),
    ("mean_square_path_forgotten", "rms_norm", (
        "r = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)\n    return gamma * x * r, (x * r, r, gamma)",
        """x_hat, r, gamma = cache
    return dy * gamma * r, (dy * x_hat).sum(axis=tuple(range(dy.ndim - 1)))""")),
])
def test_mistake_is_named(name: str, exercise: str, answers: tuple[str, ...]) -> None:
    output = tutor_text(exercise, *answers)
    assert f"a known mistake, `{name}`" in output, output


def test_wrong_forward_is_named_before_its_backward_is_written() -> None:
    output = tutor_text("rotary", ROTARY.format(exponent="-np.arange(0, d_k, 2)", sign="-"), UNWRITTEN)
    assert "WRONG rotary: the forward, compared with the formula" in output
    assert "a known mistake, `turned_the_other_way`" in output


def test_right_forward_without_backward_has_no_known_mistake() -> None:
    output = tutor_text("rotary", RIGHT, UNWRITTEN)
    assert "right rotary: the forward, compared with the formula" in output
    assert "to do rotary" in output
    assert "a known mistake" not in output


def test_mask_stored_outside_the_cache_is_reported() -> None:
    last = """global LAST
    LAST = 1 if rng is None else (kept / (1 - rate)).astype(x.dtype)
    return x * LAST, None"""
    output = tutor_text("dropout", last, "return (dy * LAST).astype(dy.dtype)")
    assert "is data stored outside the cache" in output, output
