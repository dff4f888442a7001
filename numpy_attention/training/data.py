"""Chapter 26. Data: from a text to blocks of ids.

A character model needs no tokenizer: its vocabulary is the set of characters of the text, in sorted order, and the id
of a character is its place there. The last tenth of the text is held out and never trained on. A training example is
a block of T + 1 neighbouring characters at a random place,

    ids     = text[s     : s + T]
    targets = text[s + 1 : s + T + 1]

so that position t predicts the character after it, for all t at once: T predictions for one forward pass, each
with a context of t + 1 characters.

The held-out loss is the mean over the whole held-out text, cut into consecutive blocks, in nats per character. The
first characters of each block have little context; that is charged to the model, as usual.

The default corpus is `pydoc_data.topics`, the help pages that every Python carries: 465,000 characters of English.
"""

import importlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from numpy_attention.errors import InputError

__all__ = [
    "CharVocabulary",
    "InputError",
    "consecutive_blocks",
    "default_text",
    "random_blocks",
    "read_text",
    "split_text",
]


def default_text() -> str:
    """The reference prose that every CPython carries: its help topics, joined in the order of their sorted names."""
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except ImportError:
        raise InputError("this Python carries no pydoc_data.topics, the default text; give --text FILE") from None
    return "".join(topics[name] for name in sorted(topics))


def read_text(path: str | Path) -> str:
    """The text of a UTF-8 file, character for character (no newline is translated; a byte order mark is dropped)."""
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = f"0x{raw[error.start]:02x} at offset {error.start}"
        raise InputError(f"{path} is not UTF-8 text: byte {byte}; iconv -t UTF-8 converts texts") from None
    text = text.removeprefix("\ufeff")
    if not text:
        raise InputError(f"{path} is empty; a text to train on is needed")
    return text


class CharVocabulary:
    """The characters of a text in sorted order; the id of a character is its place among them."""

    def __init__(self, text: str) -> None:
        self.characters = "".join(sorted(set(text)))
        self._codes = _code_points(self.characters)

    def __len__(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> np.ndarray:
        """The ids of the characters of `text`, (len(text),); InputError names characters that have none."""
        codes = _code_points(text)
        if not len(codes):
            return np.zeros(0, dtype=np.int64)
        if not len(self):
            raise InputError("the vocabulary is empty")
        ids = np.minimum(np.searchsorted(self._codes, codes), len(self) - 1)
        if (self._codes[ids] != codes).any():
            unknown = sorted(set(text) - set(self.characters))
            shown = ", ".join(repr(c) for c in unknown[:5]) + (", ..." if len(unknown) > 5 else "")
            raise InputError(f"characters unknown to the model: {shown}; it knows {self.characters!r}")
        return ids

    def decode(self, ids: np.ndarray) -> str:
        """The text that the ids spell."""
        return "".join(self.characters[i] for i in ids)


def split_text(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The training part and the held-out last tenth."""
    cut = int(0.9 * len(ids))
    return ids[:cut], ids[cut:]


def random_blocks(ids: np.ndarray, length: int, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """`count` blocks at random places and their targets, both (count, length)."""
    if len(ids) < length + 1:
        raise InputError(f"a text of {len(ids)} characters is shorter than one block of {length} and the next one")
    starts = rng.integers(0, len(ids) - length, size=count)
    blocks = ids[starts[:, None] + np.arange(length + 1)]  # (count, length + 1)
    return blocks[:, :-1], blocks[:, 1:]


def consecutive_blocks(ids: np.ndarray, length: int, count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The whole text in blocks without overlap, up to `count` a batch, and their targets; every id but the first is
    the target of one position. A shorter remainder comes last, as a batch of its own."""
    whole = (len(ids) - 1) // length
    inputs = ids[: whole * length].reshape(whole, length)
    targets = ids[1 : whole * length + 1].reshape(whole, length)
    for start in range(0, whole, count):
        yield inputs[start : start + count], targets[start : start + count]
    if whole * length + 1 < len(ids):
        yield ids[None, whole * length : -1], ids[None, whole * length + 1 :]


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
