"""A GPT with a KV cache, token by token, and its trial; questions about a KV cache and about the next token."""

from collections.abc import Callable

import numpy as np

from numpy_attention.layers.c17a_kv_cache import KeyValueCache
from numpy_attention.models.c23_gpt import GPT
from numpy_attention.models.c23a_gpt_config import GPTConfig
from numpy_attention.tutor.entry import Array
from numpy_attention.tutor.exercise import Questions, Quiz


def trial_of_kv_cache(logits_step_by_step: Callable[..., Array], seed: int, length: int = 4) -> None:
    """Checks that logits computed token by token with a KV cache equal the logits of the whole text."""
    rng = np.random.default_rng(seed)
    config = GPTConfig(vocab_size=7, context_length=6, d_model=6, num_heads=2, num_layers=2, d_ff=8)
    model = GPT(config, rng, np.float64)
    for p in model.parameters().values():
        p[...] = rng.standard_normal(p.shape)
    ids = rng.integers(0, 7, (2, length))
    whole, _ = model.forward(ids)
    stepped = logits_step_by_step(model, ids)
    off = np.abs(whole - stepped).max(axis=(0, 2))
    assert np.all(off < 1e-9), f"the logits of token {int(np.argmax(off >= 1e-9))} are off by {off.max():.2g}"


def logits_step_by_step(model: GPT, ids: Array) -> Array:
    """The right answer: with a KV cache, each token has its own position and also sees itself."""
    past = [KeyValueCache(ids.shape[1]) for _ in model.blocks]
    rows = []
    for t in range(ids.shape[1]):
        row, _ = model.forward(ids[:, t : t + 1], past=past)
        rows.append(row)
    return np.concatenate(rows, axis=1)


def _about_kv_cache(rng: np.random.Generator) -> Questions:
    def tokens(new: int, cached: int) -> tuple[Array, ...]:
        shapes = (new, 3), (cached, 2), (cached, 4), (3, 2), (3, 2), (3, 4)
        return tuple(rng.standard_normal(shape) for shape in shapes)

    yield "one new token after three cached tokens", tokens(1, 3)
    yield "the first token, with an empty KV cache", tokens(1, 0)
    yield "a text of four tokens, with an empty KV cache", tokens(4, 0)
    yield "two new tokens after three cached tokens", tokens(2, 3)


def _about_top_p(rng: np.random.Generator) -> Questions:
    yield "probabilities of 0.25, 0.5, 0.15 and 0.1", (np.log([[0.25, 0.5, 0.15, 0.1]]), 0.7)
    yield "one token with a probability above p", (np.log([[0.1, 0.8, 0.1]]), 0.5)
    yield "p = 1, which keeps all tokens", (rng.standard_normal((2, 3)), 1.0)
    yield "several rows", (2 * rng.standard_normal((4, 6)), 0.8)
    yield "logits of about a thousand", (1000 * rng.standard_normal((2, 4)), 0.9)


def _about_drawing(rng: np.random.Generator) -> Questions:
    yield "u in the interval of the second of three tokens", (np.array([0.2, 0.5, 0.3]), 0.6)
    yield "u = 0, and a first token with probability 0", (np.array([0.0, 0.75, 0.25]), 0.0)
    yield "u just below 1", (np.array([0.5, 0.25, 0.25, 0.0]), 1 - 2**-53)
    p = rng.random(7)
    yield "random probabilities", (p / p.sum(), float(rng.random()))


TRIALS = {"logits_step_by_step": trial_of_kv_cache}
QUESTIONS = {
    "next_outputs": Quiz(_about_kv_cache, ("y", "k", "v")), "top_p": Quiz(_about_top_p), "draw": Quiz(_about_drawing),
}
