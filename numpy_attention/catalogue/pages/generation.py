"""Generation (Chapter 23, continued): a KV cache does not change the logits; the choice of the next token."""

from collections.abc import Callable
from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Array
from numpy_attention.catalogue.exercise import Exercise, Questions, Quiz
from numpy_attention.catalogue.mistake import stands_in_for
from numpy_attention.catalogue.pages.attention import ATTENTION, attention
from numpy_attention.layers.kv_cache import KeyValueCache
from numpy_attention.models.gpt import GPT
from numpy_attention.models.gpt_config import GPTConfig
from numpy_attention.ops.masks import causal_mask
from numpy_attention.ops.softmax import softmax

CHAPTER = 23


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


def logits_step_by_step(model: GPT, ids: Array, options_at: Callable[[int], Any] = lambda t: {}) -> Array:
    """The right answer: with a KV cache, each token has its own position and also sees itself."""
    past = [KeyValueCache(ids.shape[1]) for _ in model.blocks]
    rows = [model.forward(ids[:, t : t + 1], **{"past": past, **options_at(t)})[0] for t in range(ids.shape[1])]
    return np.concatenate(rows, axis=1)


TRIALS = {"logits_step_by_step": (logits_step_by_step, trial_of_kv_cache)}


@stands_in_for("logits_step_by_step", diagnosis="the logits of token 1")
def position_from_zero_again(model: GPT, ids: Array) -> Array:
    """Every new token gets position 0, because it is the first token of the input of this call.

    Hides: the first token is right; the mistake starts at the second token.
    """
    return logits_step_by_step(model, ids, lambda t: {"positions": np.zeros(1, dtype=np.int64)})


@stands_in_for("logits_step_by_step", diagnosis="the logits of token")
def new_key_not_attended(model: GPT, ids: Array) -> Array:
    """The new query sees the KV cache but not its own key, which is appended too late.

    Hides: the first token is right; the mistake starts at the second token, and the text still reads well.
    """
    return logits_step_by_step(model, ids, lambda t: {"mask": np.arange(t + 1) < max(t, 1)} if t else {})


@stands_in_for("logits_step_by_step", diagnosis="the logits of token 1")
def keys_not_kept(model: GPT, ids: Array) -> Array:
    """The KV cache is lost between the steps, so every token sees only itself.

    Hides: the first token is right; the mistake starts at the second token.
    """
    return logits_step_by_step(model, ids, lambda t: {"past": None, "positions": np.full(1, t, dtype=np.int64)})


def next_outputs(
    x: Array, past_k: Array, past_v: Array, w_q: Array, w_k: Array, w_v: Array,
    *, mask_of: Callable[[int, int], Array | None] = lambda new, cached: causal_mask(new, cached + new),
) -> tuple[Array, Array, Array]:
    """The outputs of new tokens that follow the tokens in the KV cache, and the extended cache."""
    k, v = np.concatenate([past_k, x @ w_k]), np.concatenate([past_v, x @ w_v])
    return attention(x @ w_q, k, v, mask_of(len(x), len(past_k)))[0], k, v


@stands_in_for("next_outputs")
def no_mask_among_the_new(*arrays: Array) -> Any:
    """Several new tokens in one call see later new tokens; they need a causal mask.

    Hides: right if every call has one new token.
    """
    return next_outputs(*arrays, mask_of=lambda new, cached: None)


@stands_in_for("next_outputs")
def mask_from_the_first_key(*arrays: Array) -> Any:
    """The mask starts at key 0, as if the first new token had position 0, but this token follows all cached tokens.

    Hides: right for an empty KV cache.
    """
    return next_outputs(*arrays, mask_of=lambda new, cached: causal_mask(new + cached, new + cached)[:new])


@stands_in_for("next_outputs")
def own_key_not_seen(*arrays: Array) -> Any:
    """A new token sees the KV cache but not itself: append its key to the cache before computing its attention.

    Hides: the text still reads well.
    """
    return next_outputs(*arrays, mask_of=lambda new, cached: np.tri(new, new + cached, cached - 1, dtype=bool))


@stands_in_for("next_outputs")
def store_ignored(x: Array, past_k: Array, past_v: Array, *w: Array) -> Any:
    """The new tokens see only each other: the KV cache is not used, and its content is lost.

    Hides: right for an empty KV cache.
    """
    return next_outputs(x, past_k[:0], past_v[:0], *w)


@stands_in_for("next_outputs")
def new_keys_in_front(*arrays: Array) -> Any:
    """The new keys are put before the cached keys, but the mask expects the keys in the order of the tokens.

    Hides: without a mask the order of keys does not matter, so a single new token gets the right output.
    """
    x, past_k, past_v, _, w_k, w_v = arrays
    y, *_ = next_outputs(*arrays)
    return y, np.concatenate([x @ w_k, past_k]), np.concatenate([x @ w_v, past_v])


def top_p(
    logits: Array, p: float, *, descending: bool = True,
    kept: Callable[[Array, Array, float], Array] = lambda sums, ranked, p: sums - ranked < p,
) -> Array:
    """Keeps as few tokens as possible, the most likely first, with a sum of at least p; divides by this sum.

    The mistakes have another order of the tokens, or another rule for `kept`.
    """
    y, _ = softmax(logits)
    order = np.argsort(-y if descending else y, axis=-1, kind="stable")
    ranked = np.take_along_axis(y, order, axis=-1)
    ranked = np.where(kept(np.cumsum(ranked, axis=-1), ranked, p), ranked, 0.0)
    of_tokens = np.zeros_like(y)  # in the original order
    np.put_along_axis(of_tokens, order, ranked, axis=-1)
    with np.errstate(all="ignore"):
        return np.asarray(of_tokens / of_tokens.sum(axis=-1, keepdims=True))


@stands_in_for("top_p")
def one_too_few(logits: Array, p: float) -> Array:
    """It keeps tokens while their sum is at most p, but it must also keep the token that brings the sum to p or more.

    Hides: only one token is missing; if the first token alone has more than p, nothing is kept, and 0 / 0 is NaN.
    """
    return top_p(logits, p, kept=lambda sums, ranked, p: sums <= p)


@stands_in_for("top_p")
def not_normalized_again(logits: Array, p: float) -> Array:
    """The kept probabilities do not sum to one: divide by their sum.

    Hides: a sampler that divides by the sum draws the right tokens.
    """
    y = top_p(logits, p)
    return np.where(y > 0, softmax(logits)[0], 0.0)


@stands_in_for("top_p")
def left_in_order_of_rank(logits: Array, p: float) -> Array:
    """The probabilities stay sorted, but each must return to the place of its token.

    Hides: sums and numbers are right; if the tokens of a test are already sorted, the order is right too.
    """
    order = np.argsort(-logits, axis=-1, kind="stable")
    return np.take_along_axis(top_p(logits, p), order, axis=-1)


@stands_in_for("top_p")
def unlikeliest_kept(logits: Array, p: float) -> Array:
    """It sorts in ascending order, as np.argsort does, and so keeps the least likely tokens.

    Hides: the kept probabilities sum to one.
    """
    return top_p(logits, p, descending=False)


@stands_in_for("top_p")
def single_tokens_above_p(logits: Array, p: float) -> Array:
    """It keeps each token whose probability is at least p, but top-p is about the sum of the most likely tokens.

    Hides: right if one token is almost certain.
    """
    y = softmax(logits)[0]
    with np.errstate(all="ignore"):
        kept = np.where(y >= p, y, 0.0)
        return np.asarray(kept / kept.sum(axis=-1, keepdims=True))


def draw(probabilities: Array, u: float) -> int:
    """The first token at which the running sum of the probabilities exceeds u."""
    cumulative = np.cumsum(probabilities)
    return int((cumulative <= u * cumulative[-1]).sum())


@stands_in_for("draw")
def zero_drawn(probabilities: Array, u: float) -> int:
    """It takes the first token at which the sum is at least u: for u = 0 this is token 0, even with probability 0.

    Hides: u is exactly 0 only once in 2^53 draws.
    """
    return int((np.cumsum(probabilities) < u).sum())


@stands_in_for("draw")
def always_the_likeliest(probabilities: Array, u: float) -> int:
    """u is not used: the answer is always the most likely token, so nothing is random.

    Hides: it is right more often than any other constant answer.
    """
    return int(np.argmax(probabilities))


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


OURS = {"next_outputs": next_outputs, "top_p": top_p, "draw": draw}
EXERCISES = (
    Exercise(
        "kv_cache", 14, quizzes={"next_outputs": Quiz(next_outputs, _about_kv_cache, ("y", "k", "v"))},
        not_allowed=(ATTENTION, "tiled_attention", "causal_mask"),
    ),
    Exercise("top_p", 14, quizzes={"top_p": Quiz(top_p, _about_top_p), "draw": Quiz(draw, _about_drawing)}),
)
