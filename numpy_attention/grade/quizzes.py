"""What the functions without a gradient are asked: first what everyone thinks of, then what is forgotten."""

from typing import Any

import numpy as np

from numpy_attention.grade import references
from numpy_attention.grade.quiz import Questions, Quiz


def _about_attention(rng: np.random.Generator) -> Questions:
    def qkv(*lead: int, T_q: int = 2, T_k: int = 3, dtype: Any = np.float64) -> tuple[np.ndarray, ...]:
        shapes = (*lead, T_q, 4), (*lead, T_k, 4), (*lead, T_k, 1)
        return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)

    yield "two queries and three keys, no mask", (*qkv(), None)
    yield "a batch of heads", (*qkv(2, 3, T_k=5), None)
    q, k, v = qkv()
    yield "scores of a thousand and more, whose exponentials overflow", (1000 * q, k, v, None)
    yield "arrays of float32", (*qkv(2, dtype=np.float32), None)
    yield "a mask", (*qkv(), np.array([[True, True, False], [False, True, True]]))
    yield "a mask whose second row may look at nothing", (*qkv(), np.array([[False, True, False], [False] * 3]))


def _about_stored_keys(rng: np.random.Generator) -> Questions:
    def tokens(new: int, stored: int) -> tuple[np.ndarray, ...]:
        shapes = (new, 3), (stored, 2), (stored, 4), (3, 2), (3, 2), (3, 4)
        return tuple(rng.standard_normal(shape) for shape in shapes)

    yield "one new token behind three stored ones", tokens(1, 3)
    yield "the first token, with nothing stored", tokens(1, 0)
    yield "a text of four tokens, with nothing stored", tokens(4, 0)
    yield "two new tokens behind three stored ones", tokens(2, 3)


def _about_merges(rng: np.random.Generator) -> Questions:
    yield "one merge of 'banana'", (list(b"banana"), 1)
    yield "no pair of 'abc' stands twice", (list(b"abc"), 2)
    yield "two pairs of 'cdxabycdzab' stand equally often", (list(b"cdxabycdzab"), 1)
    yield "two merges of 'abcabcabd': the second is of a merged pair", (list(b"abcabcabd"), 2)
    yield "an empty text", ([], 3)
    yield "letters at random", (rng.integers(97, 101, 40).tolist(), 6)


def _about_encoding(rng: np.random.Generator) -> Questions:
    yield "'banana' with one merge", (list(b"banana"), [(97, 110)])
    yield "'aaaaa' with one merge, taken from the left", (list(b"aaaaa"), [(97, 97)])
    yield "'abcd', where a merge is made of another", (list(b"abcd"), [(97, 98), (256, 99)])
    yield "'abc', where the merge learned first takes the b", (list(b"abc"), [(98, 99), (97, 98)])
    yield "an empty text", ([], [(97, 98)])
    text = rng.integers(97, 101, 30).tolist()
    yield "letters at random, with the merges of other letters", (
        text, references.learn_merges(rng.integers(97, 101, 60).tolist(), 5))


def _about_top_p(rng: np.random.Generator) -> Questions:
    yield "probabilities of 0.25, 0.5, 0.15 and 0.1", (np.log([[0.25, 0.5, 0.15, 0.1]]), 0.7)
    yield "a first token that is likelier than p", (np.log([[0.1, 0.8, 0.1]]), 0.5)
    yield "p = 1, which keeps all", (rng.standard_normal((2, 3)), 1.0)
    yield "several rows", (2 * rng.standard_normal((4, 6)), 0.8)
    yield "logits of a thousand", (1000 * rng.standard_normal((2, 4)), 0.9)


def _about_drawing(rng: np.random.Generator) -> Questions:
    yield "u in the second of three", (np.array([0.2, 0.5, 0.3]), 0.6)
    yield "u = 0, where the first token has the probability 0", (np.array([0.0, 0.75, 0.25]), 0.0)
    yield "u just below 1", (np.array([0.5, 0.25, 0.25, 0.0]), 1 - 2**-53)
    p = rng.random(7)
    yield "probabilities at random", (p / p.sum(), float(rng.random()))


def _about_differences(rng: np.random.Generator) -> Questions:
    yield "one number, and dy = 1", (rng.standard_normal((1, 1)), np.ones((1, 1)), 0.1)
    yield "one row, and dy = 1", (rng.standard_normal((1, 3)), np.ones((1, 3)), 0.1)
    yield "two rows, and another dy", (rng.standard_normal((2, 3)), rng.standard_normal((2, 3)), 0.1)
    yield "a smaller step", (rng.standard_normal((2, 2)), rng.standard_normal((2, 2)), 0.01)


def _about_workers(rng: np.random.Generator) -> Questions:
    def grads(workers: int) -> list[dict[str, np.ndarray]]:
        return [{"w": rng.standard_normal((2, 1)), "b": rng.standard_normal(1)} for _ in range(workers)]

    yield "two workers with equally many places", (grads(2), [3, 3])
    yield "two workers with 1 and 3 places", (grads(2), [1, 3])
    idle = grads(3)
    idle[1] = {name: np.zeros_like(grad) for name, grad in idle[1].items()}
    yield "three workers, one of them without a single place", (idle, [4, 0, 1])
    nobody = [{name: np.zeros_like(grad) for name, grad in own.items()} for own in grads(2)]
    yield "no places at all, where the gradient is zero", (nobody, [0, 0])


def _about_prefixes(rng: np.random.Generator) -> Questions:
    def weights(H: int, N: int, dtype: Any = np.float64) -> np.ndarray:
        w = np.tri(2 * N) * rng.random((H, 2 * N, 2 * N))
        return np.asarray(w / w.sum(axis=-1, keepdims=True)).astype(dtype)

    yield "a head that looks at nothing but the key behind the earlier copy, which has 1", (
        np.eye(6, k=-2)[None] + np.eye(6)[None] * (np.arange(6) < 2), 3)
    yield "one head at random, N = 2", (weights(1, 2), 2)
    yield "three heads, N = 4", (weights(3, 4), 4)
    yield "N = 1, whose only query looks at itself", (weights(2, 1), 1)
    yield "arrays of float32", (weights(2, 3, np.float32), 3)


def _about_effects(rng: np.random.Generator) -> Questions:
    def arrays(T: int, d: int, dtype: Any = np.float64) -> tuple[np.ndarray, ...]:
        shapes = (T, d), (T, d), (d,), (T, d)
        part, rest, gamma, direction = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
        return part + dtype(0.5), part + dtype(2) * rest, gamma, direction

    part, stream, gamma, direction = arrays(1, 3)
    yield "one position, and a part that is the whole stream", (stream, stream, gamma, direction, 1e-5)
    yield "one position", (part, stream, gamma, direction, 1e-5)
    yield "several positions", (*arrays(3, 4), 1e-5)
    yield "a large eps", (*arrays(2, 3), 0.5)
    yield "arrays of float32", (*arrays(2, 4, np.float32), 1e-5)


QUIZZES: dict[str, Quiz] = {
    quiz.right.__name__: quiz for quiz in (
        Quiz(references.attention, _about_attention, ("y", "weights")),
        Quiz(references.next_outputs, _about_stored_keys, ("y", "k", "v")),
        Quiz(references.learn_merges, _about_merges), Quiz(references.encode, _about_encoding),
        Quiz(references.top_p, _about_top_p), Quiz(references.draw, _about_drawing),
        Quiz(references.differences, _about_differences), Quiz(references.joined_gradient, _about_workers),
        Quiz(references.prefix_matching, _about_prefixes), Quiz(references.direct_effect, _about_effects),
    )
}
