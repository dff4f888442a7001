"""The inputs for pretrained models, used by this book and by PyTorch: ids, cotangents and texts.

Large results are stored only in part: as sums along random directions, which any mistake changes, and as samples.
"""

import zlib

import numpy as np

TOPICS = ["the river", "my neighbour", "an old clock", "her brother", "the bakery", "a small robot", "our teacher"]
DEEDS = ["sleeps", "sings about rain", "was repaired", "smells of fresh bread", "cannot be trusted", "is 42 years old"]
PLACES = ["behind the station", "in Zürich", "every Sunday", "without a word", "at -7.5 °C", "(or so they say)"]
PROMPTS = (
    "The capital of France is Paris, a city of 2,102,650 people. It lies on the river Seine, and in the",
    "def mean(numbers):\n    return sum(numbers) / len(numbers)\n\nprint(mean([1, 2, 3, 4]))  # prints 2.5\n",
)
TURNS = (("user", "What is the capital of France?"), ("assistant", "Paris."), ("user", "  And of\n\nPeru? 100%"))


def generator(*names: str) -> np.random.Generator:
    """A generator seeded by these names, the same in every process."""
    return np.random.default_rng(zlib.crc32("/".join(names).encode()))


def batch(name: str, vocab_size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids (3, 7), targets (3, 7), and lengths (3,) for models with padding; the ids are never 0, the id of padding."""
    rng = generator(name, "batch")
    return rng.integers(1, vocab_size, (3, 7)), rng.integers(0, vocab_size, (3, 7)), np.array([7, 2, 5])


def direction(name: str, number: int, shape: tuple[int, ...]) -> np.ndarray:
    """A random tensor of this shape, used as a direction."""
    return generator(name, str(number)).standard_normal(shape, dtype=np.float32)


def places(name: str, count: int, size: int) -> np.ndarray:
    """Random indices into a flat tensor."""
    return generator(name, "places").integers(0, size, count)


def sentences() -> list[str]:
    """A hundred sentences with one to eight parts."""
    parts = [f"{TOPICS[i % 7]} {DEEDS[i % 6]} {PLACES[i * i % 5]}" for i in range(460)]
    ends = np.cumsum([i % 8 + 1 for i in range(100)])
    return [", while ".join(parts[end - i % 8 - 1 : end]) + ".?!"[i % 3] for i, end in enumerate(ends)]
