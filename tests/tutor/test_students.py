"""Mistakes in the form in which a student writes them: the tutor names exactly this mistake, or says what is wrong."""

from pathlib import Path

import pytest

from tests.tutor.hand_in import BY_DEFAULT, UNWRITTEN, tutor_text

ATTENTION = """scores = q @ k.swapaxes(-1, -2) / np.asarray(np.sqrt(q.shape[-1]), q.dtype)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = e / e.sum(axis=-1, keepdims=True)
    return weights @ v, weights"""
ROTARY = """d_k = x.shape[-1]
    a = positions[..., None] * base ** (-np.arange(0, d_k, 2) / d_k)
    cos, sin = np.cos(a).astype(x.dtype), {}np.sin(a).astype(x.dtype)
    x_1, x_2 = x[..., :d_k // 2], x[..., d_k // 2:]
    return np.concatenate([x_1 * cos - x_2 * sin, x_2 * cos + x_1 * sin], axis=-1), (cos, sin)"""
ADAM = """self.steps += 1
        b1, b2, t = self.beta_1, self.beta_2, self.steps
        for name, p in self.parameters.items():
            g = grads[name]
            m = self.m[name] = b1 * self.m[name] + (1 - b1) * g
            v = self.v[name] = b2 * self.v[name] + (1 - b2) * g**2
            m_hat, v_hat = m / {}, v / {}
            p -= self.learning_rate * m_hat / ({} + self.eps)"""
LOOP = """dx = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[i] = h
        dx[i] = {}
    return dx"""
LOW_RANK = """rows, x_rows = dy.reshape(-1, dy.shape[-1]), x.reshape(-1, x.shape[-1])
        dz = self.scale * rows @ self.b.T
        db = z.reshape(-1, z.shape[-1]).T @ rows
        dx = (rows @ self.w.T + dz @ self.a.T).reshape(x.shape)
        return dx, {"a": x_rows.T @ dz, "b": db}"""

NAMED = {
    "sign_of_the_sum": ("softmax", "return y * (dy + (dy * y).sum(axis=axis, keepdims=True))"),
    "mean_of_all_places": (
        "embedding", "dtable[...] = dy.reshape(-1, dy.shape[-1]).mean(axis=0)\n    return dtable"),
    "nan_for_a_fully_masked_query": ("attention_forward", ATTENTION),
    "RootLeftOut": ("adam", ADAM.format("(1 - b1**t)", "(1 - b2**t)", "v_hat")),
    "one_sided": ("differences", LOOP.format("((f(x + step) - f(x)) * dy).sum() / h")),
    "zero_drawn": ("top_p", UNWRITTEN, "return int(np.searchsorted(np.cumsum(probabilities), u))"),
}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=() if NAMED[name][0] in BY_DEFAULT else pytest.mark.slow) for name in NAMED
])
def test_mistake_is_named(tmp_path: Path, name: str) -> None:
    output = tutor_text(tmp_path, *NAMED[name])
    assert f"a known mistake, `{name}`" in output, output
    assert output.count("a known mistake") == 1
    assert "likely mistake" not in output, "a known mistake needs no diagnosis"


LAST = """global LAST
    LAST = 1 if rng is None else (kept / (1 - rate)).astype(x.dtype)
    return x * LAST, None"""
MOVED = """dx = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        x[i] += h
        above = (f(x) * dy).sum()
        x[i] -= 2 * h
        dx[i] = (above - (f(x) * dy).sum()) / (2 * h)
    return dx"""


@pytest.mark.parametrize(("words", "name", "answers"), [
    ("is data stored outside the cache", "dropout", (LAST, "return (dy * LAST).astype(dy.dtype)")),
    ("the arguments were changed in place", "differences", (MOVED,)),
    ("`.T` reverses all axes, also the batch axes", "linear", ("return dy @ w.T, x.T @ dy, dy.sum(axis=0)",)),
    ("mask = [[False, True, False], [False, False, False]]", "attention_forward", (ATTENTION,)),
    ("grads contains w, but no parameter has this name", "low_rank", (LOW_RANK.replace("db}", 'db, "w": self.w}'),)),
])
def test_other_wrong_answer_is_explained(tmp_path: Path, words: str, name: str, answers: tuple[str, ...]) -> None:
    assert words in tutor_text(tmp_path, name, *answers)


def test_forward_and_backward_from_scratch_are_separate(tmp_path: Path) -> None:
    output = tutor_text(tmp_path, "rotary", ROTARY.format(""), UNWRITTEN)
    assert "right rotary: the forward, compared with the formula" in output
    assert "to do rotary" in output
    assert "a known mistake" not in output
