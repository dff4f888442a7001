"""Associative recall: how many pairs of a key and a value does one layer of attention, or of a recurrence, remember?

    python -m tests.benchmarks.recall      # six minutes on one core

The task is MQAR (Arora et al., Zoology: Measuring and Improving Recall in Efficient Language Models, 2023) in small. A
text has pairs of a key and a value; then each key comes once more, in random order, as a question:

    k3 v7  k1 v2  k8 v4    k1 k8 k3         the answers are v2 v4 v7

In the task "updates" every key has two values, at random places, and the later value is the answer. (Zoology's code
has a task like this one, `forgetting_mqar`, which updates some of the keys.)

All models are equal except for the rule of their layer: an embedding, a norm, one head of width d_k with its residual
connection, a norm, a linear map. As in Zoology, there is no feed-forward network. A convolution over two tokens mixes
each q, k and v with those of the token before (Chapter 44), so that the key of a pair can meet its value. Softmax
attention has rotary positions; the recurrences have q and k of length 1, and a norm on their output, as in Yang et
al., Gated Delta Networks (2024). A recurrence remembers d_k * d_k numbers; softmax attention stores all keys and
values.

One model learns all numbers of pairs: each batch has one of them, the first fifth of the batches 4 pairs. At the end
the script writes the tables into tutorial 23.
"""

import math
import statistics
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import numpy_attention as na
from numpy_attention.layers.c13_layer import Layer, flat_gradients
from numpy_attention.layers.c19_residual import residual, residual_backward
from tests.generated import with_block

PAGE = Path(__file__).parents[2] / "tutorials" / "23-attention-as-a-recurrence.md"
KEYS = VALUES = 128  # ids of keys: 0 to 127; ids of values: 128 to 255
PAIRS = {"recall": (4, 8, 16, 32, 64), "updates": (4, 8, 16, 32)}
SEEDS = range(3)
D_MODEL, STEPS, WARMUP, LEARNING_RATE = 64, 1000, 50, 1e-2
QUESTIONS, TESTED = 256, 2048  # in a batch, and in a test, for every number of pairs


class Row(NamedTuple):
    """A row of the tables: the rule and the width of the head."""

    rule: str
    d_k: int = 16


ROWS = (
    Row("softmax"), Row("linear"), Row("gated"), Row("delta"), Row("gated delta"), Row("linear", 32), Row("delta", 32),
)


def texts(task: str, pairs: int, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Ids (count, T) of pairs and questions, and the answers (count, pairs) as numbers from 0 to 127."""

    def different(n: int, size: int) -> np.ndarray:
        """Different numbers below n, in random order, for each text."""
        return rng.permuted(np.tile(np.arange(n), (count, 1)), axis=1)[:, :size]

    written = pairs * (2 if task == "updates" else 1)
    keys, values = different(KEYS, pairs), different(VALUES, written)
    which = different(written, written) % pairs  # (count, written): the key of each value
    answers = np.zeros((count, pairs), int)
    for t in range(written):  # a later value replaces an earlier value
        np.put_along_axis(answers, which[:, t : t + 1], values[:, t : t + 1], axis=1)
    story = np.stack([np.take_along_axis(keys, which, 1), KEYS + values], axis=-1).reshape(count, -1)
    asked = different(pairs, pairs)
    ids = np.concatenate([story, np.take_along_axis(keys, asked, 1)], axis=1)
    return ids, np.take_along_axis(answers, asked, 1)


class Mixer(Layer):
    """One head with one of the five rules."""

    def __init__(self, rule: str, d_k: int, rng: np.random.Generator, dtype: Any = np.float32) -> None:
        self.rule = rule
        self.qkv = na.Linear(D_MODEL, 3 * d_k, rng, bias=False, dtype=dtype)
        self.mix = (0.7 * rng.standard_normal((3 * d_k, 2))).astype(dtype)  # the token before, and the token
        self.out = na.Linear(d_k, D_MODEL, rng, bias=False, dtype=dtype)
        if rule != "softmax":
            self.norm = na.RMSNorm(d_k, dtype=dtype)
        if "delta" in rule:
            self.beta = na.Linear(D_MODEL, 1, rng, dtype=dtype)
        if "gated" in rule:
            self.decay = na.Linear(D_MODEL, 1, rng, dtype=dtype)
            self.decay.b += 4.0  # at the start a state keeps 98 % in each step

    def forward(self, x: np.ndarray) -> tuple[np.ndarray, Any]:
        h, linear_cache = self.qkv.forward(x)
        h, mix_cache = na.causal_convolution(h, self.mix)
        q, k, v = (np.ascontiguousarray(part) for part in np.split(h, 3, axis=-1))  # (B, T, d_k)
        y, rule_cache = (self.attend if self.rule == "softmax" else self.recur)(x, q, k, v)
        y, out_cache = self.out.forward(y)
        return y, (linear_cache, mix_cache, rule_cache, out_cache)

    def backward(self, dy: np.ndarray, cache: Any) -> tuple[np.ndarray, dict[str, Any]]:
        linear_cache, mix_cache, rule_cache, out_cache = cache
        grads: dict[str, Any] = {}
        dy, grads["out"] = self.out.backward(dy, out_cache)
        back = self.attend_backward if self.rule == "softmax" else self.recur_backward
        dx, dqkv, others = back(dy, rule_cache)
        dh, grads["mix"], *_ = na.causal_convolution_backward(np.concatenate(dqkv, axis=-1), mix_cache)
        dh, grads["qkv"] = self.qkv.backward(dh, linear_cache)
        return dx + dh, grads | others

    def attend(self, x: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, Any]:
        """Causal softmax attention with rotary positions."""
        T = x.shape[1]
        q, q_cache = na.rotary(q, np.arange(T))
        k, k_cache = na.rotary(k, np.arange(T))
        y, cache = na.scaled_dot_product_attention(q, k, v, mask=na.causal_mask(T))
        return y, (q_cache, k_cache, cache)

    def attend_backward(self, dy: np.ndarray, cache: Any) -> tuple[Any, ...]:
        dq, dk, dv, _ = na.scaled_dot_product_attention_backward(dy, cache[2])
        return 0.0, (na.rotary_backward(dq, cache[0]), na.rotary_backward(dk, cache[1]), dv), {}

    def recur(self, x: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, Any]:
        """A recurrence with q and k of length 1, then a norm; beta = sigmoid(.), decay = log(sigmoid(.))."""
        length_1 = np.full(q.shape[-1], q.shape[-1] ** -0.5, q.dtype)
        q, q_cache = na.rms_norm(q, length_1)
        k, k_cache = na.rms_norm(k, length_1)
        beta = decay = beta_cache = decay_cache = None
        if "delta" in self.rule:
            b, beta_cache = self.beta.forward(x)
            beta = 1 / (1 + np.exp(-b))  # (B, T, 1)
        if "gated" in self.rule:
            a, decay_cache = self.decay.forward(x)
            decay = -np.logaddexp(0, -a)  # (B, T, 1)
        y, rule_cache = na.chunked_linear_attention(q, k, v, decay, beta, scale=1.0)
        y, norm_cache = self.norm.forward(y)
        return y, (q_cache, k_cache, beta, beta_cache, decay, decay_cache, rule_cache, norm_cache)

    def recur_backward(self, dy: np.ndarray, cache: Any) -> tuple[Any, ...]:
        q_cache, k_cache, beta, beta_cache, decay, decay_cache, rule_cache, norm_cache = cache
        grads, dx = {}, 0.0
        dy, grads["norm"] = self.norm.backward(dy, norm_cache)
        dq, dk, dv, ddecay, dbeta, _ = na.chunked_linear_attention_backward(dy, rule_cache)
        if beta is not None:
            # beta = sigmoid(b)
            db, grads["beta"] = self.beta.backward(dbeta * beta * (1 - beta), beta_cache)
            dx = dx + db
        if decay is not None:
            # decay = log(sigmoid(a))
            da, grads["decay"] = self.decay.backward(ddecay * (1 - np.exp(decay)), decay_cache)
            dx = dx + da
        return dx, (na.rms_norm_backward(dq, q_cache)[0], na.rms_norm_backward(dk, k_cache)[0], dv), grads


class Recall(Layer):
    """The whole model: it answers at the last `pairs` tokens."""

    def __init__(self, rule: str, d_k: int, rng: np.random.Generator, dtype: Any = np.float32) -> None:
        self.words = na.Embedding(KEYS + VALUES, D_MODEL, rng, scale=1.0, dtype=dtype)
        self.norm_1, self.norm_2 = na.RMSNorm(D_MODEL, dtype=dtype), na.RMSNorm(D_MODEL, dtype=dtype)
        self.mixer = Mixer(rule, d_k, rng, dtype)
        self.head = na.Linear(D_MODEL, VALUES, rng, dtype=dtype)

    def forward(self, ids: np.ndarray, pairs: int) -> tuple[np.ndarray, Any]:
        x, words_cache = self.words.forward(ids)
        x, mixer_cache = residual(x, self.norm_1, self.mixer, True, 0.0, None)
        x, norm_cache = self.norm_2.forward(np.ascontiguousarray(x[:, -pairs:]))
        logits, head_cache = self.head.forward(x)  # (B, pairs, VALUES)
        return logits, (ids.shape, words_cache, mixer_cache, norm_cache, head_cache)

    def loss(self, ids: np.ndarray, answers: np.ndarray) -> tuple[np.ndarray, Any]:
        logits, cache = self.forward(ids, answers.shape[1])
        loss, loss_cache = na.cross_entropy(logits, answers)
        return loss, (cache, loss_cache)

    def backward(self, cache: Any) -> dict[str, np.ndarray]:
        (shape, words_cache, mixer_cache, norm_cache, head_cache), loss_cache = cache
        grads: dict[str, Any] = {}
        d, grads["head"] = self.head.backward(na.cross_entropy_backward(1.0, loss_cache), head_cache)
        d, grads["norm_2"] = self.norm_2.backward(d, norm_cache)
        dx = np.zeros((*shape, D_MODEL), d.dtype)
        dx[:, -d.shape[1] :] = d
        dx, grads["norm_1"], mixer = residual_backward(dx, mixer_cache, self.norm_1, self.mixer, True)
        grads["mixer"] = flat_gradients(mixer)
        grads["words"] = self.words.backward(dx, words_cache)[1]
        return flat_gradients(grads)


def accuracy(model: Recall, task: str, pairs: int, rng: np.random.Generator) -> float:
    """The share of right answers in new texts."""
    ids, answers = texts(task, pairs, TESTED // pairs, rng)
    return float((model.forward(ids, pairs)[0].argmax(axis=-1) == answers).mean())


def run(task: str, rule: str, d_k: int, seed: int, steps: int = STEPS) -> list[float]:
    """Train one model on all numbers of pairs; its accuracy with each of them."""
    rng = np.random.default_rng(seed)
    model = Recall(rule, d_k, rng)
    optimizer = na.AdamW(model.parameters(), learning_rate=LEARNING_RATE, weight_decay=0.0)
    for step in range(steps):
        pairs = 4 if step < steps / 5 else int(rng.choice(PAIRS[task]))
        _, cache = model.loss(*texts(task, pairs, QUESTIONS // pairs, rng))
        grads = model.backward(cache)
        na.clip_by_global_norm(grads, 1.0)
        optimizer.step(grads, na.warmup_cosine(step, steps, WARMUP, LEARNING_RATE))
    return [accuracy(model, task, pairs, np.random.default_rng([seed, 1])) for pairs in PAIRS[task]]


def table(task: str, steps: int = STEPS) -> str:
    """The median of the seeds in percent, with the lowest and the highest if they differ."""
    counted = "pairs" if task == "recall" else "keys"
    lines = [f"| rule | state | {' | '.join(f'{pairs} {counted}' for pairs in PAIRS[task])} |"]
    lines.append(f"|---|---|{'---|' * len(PAIRS[task])}")
    for rule, d_k in ROWS:
        runs = [run(task, rule, d_k, seed, steps) for seed in SEEDS]
        cells = [spread([100 * figure for figure in figures]) for figures in zip(*runs)]
        state = "all keys and values" if rule == "softmax" else f"{d_k} x {d_k}"
        lines.append(f"| {rule} | {state} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def spread(figures: list[float]) -> str:
    """The median and the range, rounded down: "99 (98 to 99)", and 100 only if every answer was right."""
    median, low, high = (math.floor(number) for number in (statistics.median(figures), min(figures), max(figures)))
    return f"{median} ({low} to {high})" if low != high else f"{median}"


if __name__ == "__main__":
    for task in PAIRS:
        PAGE.write_text(with_block(PAGE.read_text("utf-8"), task, table(task)), "utf-8")
