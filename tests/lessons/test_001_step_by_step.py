"""Lesson 001: one sentence, from its words to the output of attention, and the gradients."""


import numpy as np
import pytest

import numpy_attention as na

SENTENCE = "Manchester United hopes to perform better"
TABLE = np.array([
    [0.321, -1.024, 0.876],
    [1.234, 0.567, -0.890],
    [-0.456, 0.789, 1.234],
    [1.111, -0.333, 0.222],
    [-0.777, 0.888, -0.999],
    [0.555, -0.666, 0.777],
])  # fmt: skip


@pytest.fixture
def weights(rng: np.random.Generator) -> list[np.ndarray]:
    """w_q, w_k, w_v: uniform numbers in [0, 1), as in the lesson."""
    return [rng.random((3, 3)) for _ in range(3)]


def ids_of_the_sentence() -> np.ndarray:
    words = SENTENCE.split()
    vocabulary = {word: i for i, word in enumerate(dict.fromkeys(words))}
    return np.array([vocabulary[word] for word in words])


def forward(table: np.ndarray, w_q: np.ndarray, w_k: np.ndarray, w_v: np.ndarray) -> tuple[np.ndarray, tuple]:
    """The lesson with this package: look up, project three times, attend."""
    x, looked_up = na.embedding(ids_of_the_sentence(), table)  # (6, 3)
    (q, linear_q), (k, linear_k), (v, linear_v) = (na.linear(x, w) for w in (w_q, w_k, w_v))
    y, attended = na.scaled_dot_product_attention(q, k, v)
    return y, (looked_up, linear_q, linear_k, linear_v, attended)


def backward(dy: np.ndarray, cache: tuple) -> tuple[np.ndarray, ...]:
    looked_up, linear_q, linear_k, linear_v, attended = cache
    dq, dk, dv, _ = na.scaled_dot_product_attention_backward(dy, attended)
    dx_q, dw_q, _ = na.linear_backward(dq, linear_q)
    dx_k, dw_k, _ = na.linear_backward(dk, linear_k)
    dx_v, dw_v, _ = na.linear_backward(dv, linear_v)
    return na.embedding_backward(dx_q + dx_k + dx_v, looked_up), dw_q, dw_k, dw_v


def test_steps_agree_with_the_lesson(weights: list[np.ndarray]) -> None:
    def softmax(x: np.ndarray, axis: int) -> np.ndarray:
        x = np.exp(x - np.amax(x, axis=axis, keepdims=True))
        return x / np.sum(x, axis=axis, keepdims=True)

    Q, K, V = (TABLE @ w for w in weights)
    scores = softmax(Q @ K.T / np.sqrt(K.shape[1]), axis=1)
    output, cache = forward(TABLE, *weights)
    for ours, lesson in ((cache[-1].q, Q), (cache[-1].k, K), (cache[-1].v, V), (cache[-1].weights, scores)):
        np.testing.assert_allclose(ours, lesson, rtol=1e-13)
    np.testing.assert_allclose(output, scores @ V, rtol=1e-13)
    np.testing.assert_allclose(na.softmax(Q @ K.T / np.sqrt(3))[0], scores, rtol=1e-13)


def test_the_gradients_of_the_table_and_of_all_three_matrices(weights: list[np.ndarray]) -> None:
    w_q, w_k, w_v = weights
    report = na.gradcheck.gradcheck(forward, backward, {"table": TABLE, "w_q": w_q, "w_k": w_k, "w_v": w_v})
    assert report.error < 1e-8
