"""Mistakes in a derivation, in the form in which a student writes them: the tutor explains exactly this mistake."""

import re

import pytest

from tests.grade.hand_in import tutor_text

ATTENTION = """dweights = dy @ v.swapaxes(-1, -2)
    dv = weights.swapaxes(-1, -2) @ dy
    dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True))
    return dscores @ k / scale, dscores.swapaxes(-1, -2) @ q / scale, dv"""
GELU = """du = {}
    return dy * ((1 + np.tanh(u)) / 2 + x * (1 - np.tanh(u) ** 2) / 2 * du)"""
SINK = """average = (dy * {w}).sum(axis=-1, keepdims=True)
    dscores = {w} * (dy - average)
    dcolumn = {dcolumn}
    H, T_q = dcolumn.shape[-3:-1]
    return dscores, dcolumn.reshape(-1, H, T_q).sum(axis=(0, 2))"""
QK_NORM = """d_of = []
    for dy, (x_hat, r, gamma) in (
        (dscores @ {k} * scale, of_q), (dscores.swapaxes(-1, -2) @ {q} * scale, of_k)
    ):
        dx_hat = dy * {gamma}
        dx = r * (dx_hat - {mean} * x_hat * (dx_hat * x_hat).mean(axis=-1, keepdims=True))
        d_of.append((dx, (dy * x_hat).sum(axis=tuple(range(dy.ndim - 1)))))
    (dq, dgamma_q), (dk, dgamma_k) = d_of
    return dq, dk, dgamma_q, dgamma_k"""
ADAM = """self.steps += 1
        b1, b2, t = self.beta_1, self.beta_2, self.steps
        for name, p in self.parameters.items():
            g = grads[name]
            m = self.m[name] = b1 * self.m[name] + (1 - b1) * g
            v = self.v[name] = b2 * self.v[name] + (1 - b2) * g**2
            {}"""
HATS = "m_hat, v_hat = m / (1 - b1**t), v / (1 - b2**t)"
STEP = "p -= self.learning_rate * m_hat / (np.sqrt(v_hat) + self.eps)"


def adam(*lines: str) -> str:
    return ADAM.format("\n            ".join(lines))


MISTAKES_AND_TEXTS = {
    "sign_of_the_sum": (
        "softmax", "return y * (dy + (dy * y).sum(axis=axis, keepdims=True))", "The sum has the wrong sign"),
    "mean_not_weighted": (
        "softmax", "return y * (dy - dy.mean(axis=axis, keepdims=True))", "The plain mean of dy is subtracted"),
    "y_missing_from_dy": (
        "softmax", "return dy - y * (dy * y).sum(axis=axis, keepdims=True)", "the factor y of dy is missing"),
    "y_missing_before_the_bracket": (
        "softmax", "return dy - (dy * y).sum(axis=axis, keepdims=True)", "but its factor y is missing"),
    "log_softmax": (
        "softmax", "return dy - y * dy.sum(axis=axis, keepdims=True)", "the gradient of log(softmax(x))"),
    "mean_of_all_places": (
        "embedding", "dtable[...] = dy.reshape(-1, dy.shape[-1]).mean(axis=0)\n    return dtable",
        "Every row of the table gets the mean of all dy"),
    "mean_of_all_places_for_the_rows_read": (
        "embedding", "dtable[ids] = dy.reshape(-1, dy.shape[-1]).mean(axis=0)\n    return dtable",
        "Every used row gets the mean of all dy"),
    "mean_of_its_places": (
        "embedding",
        "for v in ids.reshape(-1):\n        dtable[v] = dy[ids == v].mean(axis=0)\n    return dtable",
        "gets the mean of its n terms instead of their sum"),
    "ids_not_flattened": (
        "embedding", "for n, v in enumerate(ids):\n        dtable[v] += dy[n]\n    return dtable",
        "v is a row of ids"),
    "scale_upside_down": ("attention", ATTENTION, "divided by the scale 1/sqrt(d_k) instead of multiplied"),
    "sink_without_its_minus": (
        "sink", SINK.format(w="weights", dcolumn="p * average"), "The minus of dsink is missing"),
    "weights_normalized_in_the_backward": (
        "sink", SINK.format(w="(weights / (1 - p))", dcolumn="-p * average"), "weights that sum to one"),
    "lengths_taken_as_constants": (
        "qk_norm", QK_NORM.format(q="q_n", k="k_n", gamma="gamma", mean=0), "a term with mean(dx_hat * x_hat)"),
    "gammas_left_out_of_dq_and_dk": (
        "qk_norm", QK_NORM.format(q="q_n", k="k_n", gamma="1", mean=1), "dx_hat is dy * gamma, not dy"),
    "products_without_the_gammas": (
        "qk_norm", QK_NORM.format(q="of_q[0]", k="of_k[0]", gamma="gamma", mean=1), "without their gammas"),
    "root_missing_in_du": ("gelu", GELU.format("1 + 3 * 0.044715 * x**2"), "has no factor sqrt(2 / pi)"),
    "three_missing_in_du": ("gelu", GELU.format("C * (1 + 0.044715 * x**2)"), "the 3 is missing"),
    "RootLeftOut": (
        "adam", adam(HATS, "p -= self.learning_rate * m_hat / (v_hat + self.eps)"), "instead of sqrt(v_hat)"),
    "PowerOfTheBracket": (
        "adam", adam("m_hat, v_hat = m / (1 - b1) ** t, v / (1 - b2) ** t", STEP),
        "divides by (1 - beta)^t instead of 1 - beta^t"),
    "CorrectedMeansStored": (
        "adam", adam(HATS, "self.m[name], self.v[name] = m_hat, v_hat", STEP), "m_hat and v_hat are stored"),
    "CorrectedMeanStored": (
        "adam", adam(HATS, "self.m[name] = m_hat", STEP), "m_hat is stored as the new m"),
}


@pytest.mark.parametrize("name", MISTAKES_AND_TEXTS)
def test_mistake_is_named_and_explained(name: str) -> None:
    exercise, answer, words = MISTAKES_AND_TEXTS[name]
    output = tutor_text(exercise, answer)
    assert f"a known mistake, `{name}`" in output, output
    assert words in output
    assert output.count("a known mistake") == 1
    assert "likely mistake" not in output, "a known mistake needs no diagnosis"


def test_wrong_dtype_does_not_hide_a_mistake() -> None:
    """n has dtype int64, so float32 divided by n gives float64: this is another, smaller mistake."""
    answer = """np.add.at(dtable, ids, dy)
    n = np.bincount(ids.reshape(-1), minlength=len(table))
    return dtable / np.maximum(n, 1)[:, None]"""
    assert "a known mistake, `mean_of_its_places`" in tutor_text("embedding", answer)


def test_exchanged_keys_and_values_are_diagnosed() -> None:
    answer = """dj, dw_o, _ = linear_backward(dy, linear_o)
        dq, dk, dv, _ = scaled_dot_product_attention_backward(concat_heads_backward(dj, heads_o), attention)
        dx_q, dw_q, _ = linear_backward(split_heads_backward(dq, heads_q), linear_q)
        dx_k, dw_k, _ = linear_backward(split_heads_backward(dk, heads_k), linear_k)
        dx_v, dw_v, _ = linear_backward(split_heads_backward(dv, heads_v), linear_v)
        grads = {"w_q": dw_q, "w_k": dw_v, "w_v": dw_k, "w_o": dw_o}
        return (dx_q, dx_k + dx_v, grads) if cross else (dx_q + dx_k + dx_v, grads)"""
    output = tutor_text("multi_head_attention", answer, examples=2)
    assert re.search(r"likely mistake: dw_[kv] and dw_[kv] are exchanged: each holds the other's gradient", output)
    assert "no simple rule found" not in output


@pytest.mark.parametrize(("exercise", "answer"), [
    ("linear", "return dy @ w.T, x.T @ dy, dy.sum(axis=0)"),
    ("layer_norm", "return r * dy * gamma, (dy * x_hat).sum(axis=0), dy.sum(axis=0)"),
])
def test_first_example_is_a_batch(exercise: str, answer: str) -> None:
    output = tutor_text(exercise, answer)
    assert "x = [[[" in output, output
    assert "the sum over the batch axes" in output
