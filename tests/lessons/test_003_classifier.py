"""Lesson 003, part 6: the classifier, update by update with plain SGD, against gradients from the complex step.

The loss is written again below, as in the notebook, so that it also accepts complex numbers. Then

    dL/dp . v = Im L(p + i h v) / h      (Squire and Trapp 1998)

is exact to the last digits, because nothing is subtracted: with h = 1e-30 the error, about h^2, is below float64.
"""

import numpy as np
import pytest

import numpy_attention as na

VOCABULARY, D_MODEL, HEADS, D_FF, CLASSES, T, B, RATE = 100, 32, 4, 128, 2, 8, 32, 0.001
H = 1e-30


def batch(rng: np.random.Generator, size: int = B) -> tuple[np.ndarray, np.ndarray]:
    """Sequences, and whether their sum is above vocab * length / 2."""
    ids = rng.integers(0, VOCABULARY, (size, T))
    return ids, (ids.sum(axis=1) > VOCABULARY * T / 2).astype(np.int64)


def classifier(rng: np.random.Generator, dtype: type = np.float64) -> na.SequenceClassifier:
    """The notebook's model: eps 1e-6 in the norms, and 0.02 as the scale of embedding and head."""
    config = na.SequenceClassifierConfig(
        num_classes=CLASSES, context_length=T, d_model=D_MODEL, num_heads=HEADS, vocab_size=VOCABULARY, d_ff=D_FF
    )
    model = na.SequenceClassifier(config, rng, dtype=dtype)
    model.token_embedding.table[...] = 0.02 * rng.standard_normal((VOCABULARY, D_MODEL))
    model.head.w[...] = 0.02 * rng.standard_normal((D_MODEL, CLASSES))
    model.blocks[0].norm_1.eps = model.blocks[0].norm_2.eps = 1e-6
    return model


def trained(model: na.SequenceClassifier) -> dict[str, np.ndarray]:
    """The parameters that are trained: the attention of the notebook has no biases, so ours stay zero."""
    return {name: p for name, p in model.parameters().items() if ".attention.b_" not in name}


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.real.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    centred = x - x.mean(axis=-1, keepdims=True)
    return gamma * centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-6) + beta


def logits_of_the_notebook(p: dict[str, np.ndarray], ids: np.ndarray) -> np.ndarray:
    b = {name.removeprefix("blocks.0."): value for name, value in p.items()}
    angles = np.arange(T)[:, None] / 10000 ** (np.arange(0, D_MODEL, 2) / D_MODEL)
    positions = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(T, D_MODEL)
    x = p["token_embedding.table"][ids] + positions
    d_k = D_MODEL // HEADS
    heads = []
    for h in range(HEADS):
        own = slice(h * d_k, (h + 1) * d_k)
        q, k, v = (x @ b[f"attention.{name}"][:, own] for name in ("w_q", "w_k", "w_v"))
        heads.append(softmax(q @ k.swapaxes(1, 2) / np.sqrt(d_k)) @ v)
    x = norm(x + np.concatenate(heads, axis=-1) @ b["attention.w_o"], b["norm_1.gamma"], b["norm_1.beta"])
    hidden = x @ b["feed_forward.w_1"] + b["feed_forward.b_1"]
    hidden = np.where(hidden.real > 0, hidden, 0.0)
    x = norm(x + hidden @ b["feed_forward.w_2"] + b["feed_forward.b_2"], b["norm_2.gamma"], b["norm_2.beta"])
    return x.mean(axis=1) @ p["head.w"] + p["head.b"]


def loss_of_the_notebook(p: dict[str, np.ndarray], ids: np.ndarray, labels: np.ndarray) -> complex:
    return -np.mean(np.log(softmax(logits_of_the_notebook(p, ids))[np.arange(len(ids)), labels]))


def slope(p: dict[str, np.ndarray], name: str, v: np.ndarray, ids: np.ndarray, labels: np.ndarray) -> float:
    """dL/dp . v for one parameter, by the complex step."""
    return float(loss_of_the_notebook({**p, name: p[name] + 1j * H * v}, ids, labels).imag / H)


def test_logits_and_loss_are_the_notebooks(rng: np.random.Generator) -> None:
    model = classifier(rng)
    ids, labels = batch(rng)
    logits, _ = model.forward(ids)
    np.testing.assert_allclose(logits, logits_of_the_notebook(model.parameters(), ids), rtol=1e-11, atol=1e-14)
    loss, _ = model.loss(ids, labels)
    assert float(loss) == pytest.approx(loss_of_the_notebook(model.parameters(), ids, labels).real, rel=1e-13)
    assert float(loss) == pytest.approx(np.log(2), abs=0.1), "two classes, nothing learned: about log 2"


def test_five_updates_of_every_parameter_are_rate_times_gradient(rng: np.random.Generator) -> None:
    model = classifier(rng)
    optimizer = na.SGD(trained(model), learning_rate=RATE)
    for _ in range(5):
        ids, labels = batch(rng)
        before = {name: p.copy() for name, p in model.parameters().items()}
        _, cache = model.loss(ids, labels)
        grads = model.backward(cache)
        optimizer.step({name: grads[name] for name in trained(model)})
        for name, p in trained(model).items():
            v = rng.standard_normal(p.shape)
            moved = float(np.sum((p - before[name]) * v))
            # p - before has the round-off of p, which is larger than the error of the gradient and sets the tolerance.
            roundoff = 1e-15 * float(np.linalg.norm(before[name]) * np.abs(v).max() + np.linalg.norm(v))
            assert moved == pytest.approx(-RATE * slope(before, name, v, ids, labels), rel=1e-8, abs=roundoff), name


def accuracy(model: na.SequenceClassifier, ids: np.ndarray, labels: np.ndarray) -> float:
    return float((model.predict(ids) == labels).mean())


@pytest.mark.slow
def test_model_stays_at_chance_with_sgd_and_learns_with_adam(rng: np.random.Generator) -> None:
    fresh = batch(rng, 4096)
    for make, low, high in ((na.SGD, 0.40, 0.60), (na.Adam, 0.80, 1.0)):
        model = classifier(np.random.default_rng(42), np.float32)
        optimizer = make(trained(model), learning_rate=RATE)
        losses = []
        draws = np.random.default_rng(7)
        for _ in range(100):
            loss, cache = model.loss(*batch(draws))
            grads = model.backward(cache)
            optimizer.step({name: grads[name] for name in trained(model)})
            losses.append(float(loss))
        assert low <= accuracy(model, *fresh) <= high
        if make is na.SGD:
            assert 0.6 < min(losses)
            assert max(losses) < 0.8
