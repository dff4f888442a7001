"""Chapter 27. Data: from a text to blocks of ids

A character model needs no tokenizer: its vocabulary is the sorted set of the characters of the text, and the id of a
character is its index there. (The continuation of this chapter explains bytes and byte pairs, which can encode every
text.) The last tenth of the text, at most 2^20 ids, is held out: the model is never trained on it. A training example
is a block of T + 1 neighbouring characters at a random place,

    text       . . t h e _ c a t _ s a t . .            s = 2, T = 4
    ids            t h e _                              text[s     : s + T]
    targets          h e _ c                            text[s + 1 : s + T + 1]

so position t predicts the character after it. One forward pass makes all T predictions, and the prediction at position
t has a context of t + 1 characters.

The held-out loss is the mean over the whole held-out text, cut into consecutive blocks, in nats per character. The
first characters of each block have little context, so their loss is larger; as usual, they are counted too.

The default text comes with the book: the help topics of Python 3.11, 465,000 characters of English, in the folder
`help_topics` with their licence. Every version of Python contains such topics, but with different text.
"""

import gzip
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention.errors import InputError, short_repr
from numpy_attention.files import reading

HELP_TOPICS = Path(__file__).with_name("help_topics") / "text.gz"
HELD_OUT = 2**20  # the most held-out ids


def default_text() -> str:
    """The help topics of Python 3.11, joined in the order of their names: the same text on every Python.

    Source: Python Software Foundation, the documentation of Python 3.11.7 (2023), module `pydoc_data.topics`.
    """
    return gzip.decompress(HELP_TOPICS.read_bytes()).decode()


def read_text(path: str | Path) -> str:
    """The text of a UTF-8 file. Newlines are not translated; a byte order mark is dropped.

    Raises: InputError if the file is not a UTF-8 text.
    """
    with reading(path):
        raw = Path(path).read_bytes()
    if not raw:
        raise InputError(f"{path} is empty; a text is needed")
    try:
        return raw.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        byte = f"0x{raw[error.start]:02x} at offset {error.start}"
        raise InputError(f"{path} is not UTF-8 text: byte {byte}; convert it with iconv -t UTF-8") from None


class Vocabulary(ABC):
    """Converts a text to ids and ids to a text."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def encode(self, text: str) -> np.ndarray:
        """The ids of the text, (N,)."""

    @abstractmethod
    def decode(self, ids: np.ndarray) -> str:
        """The text of the ids."""

    @abstractmethod
    def saved(self) -> dict[str, Any]:
        """The vocabulary as plain values for JSON."""

    def labels(self, ids: np.ndarray) -> list[str]:
        """A readable label for each id."""
        return [self.decode(ids[i : i + 1]) for i in range(len(ids))]

    def characters_in(self, ids: np.ndarray) -> int:
        """The number of characters that begin within the ids."""
        return len(ids)


class CharVocabulary(Vocabulary):
    """The characters of a text in sorted order; the id of a character is its index."""

    def __init__(self, text: str) -> None:
        self.characters = "".join(sorted(set(text)))
        self._id_of = {character: i for i, character in enumerate(self.characters)}

    def __len__(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> np.ndarray:
        """The ids of the characters of `text`, (len(text),).

        Raises: InputError that names the characters without an id.
        """
        if unknown := sorted(set(text) - self._id_of.keys()):
            few = ", ".join(repr(c) for c in unknown[:5]) + (", ..." if len(unknown) > 5 else "")
            raise InputError(f"characters unknown to the model: {few}; known are {short_repr(self.characters)}")
        return np.fromiter((self._id_of[character] for character in text), np.int64, len(text))

    def decode(self, ids: np.ndarray) -> str:
        return "".join(self.characters[i] for i in ids)

    def saved(self) -> dict[str, Any]:
        return {"characters": self.characters}


def split_text(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The training part and the held-out last tenth, at most HELD_OUT ids."""
    cut = max(int(0.9 * len(ids)), len(ids) - HELD_OUT)
    return ids[:cut], ids[cut:]


def random_blocks(ids: np.ndarray, length: int, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """`count` blocks at random places and their targets, both (count, length).

    Raises: InputError if the text is too short.
    """
    if len(ids) < length + 1:
        raise InputError(f"a text of {len(ids)} tokens is too short: a block needs {length} tokens and one more")
    starts = rng.integers(0, len(ids) - length, size=count)
    blocks = ids[starts[:, None] + np.arange(length + 1)]  # (count, length + 1)
    return blocks[:, :-1], blocks[:, 1:]


def consecutive_blocks(ids: np.ndarray, length: int, count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The whole text in blocks without overlap, up to `count` in a batch, and their targets. Every id except the first
    is the target of one position. A shorter remainder is the last batch."""
    whole = (len(ids) - 1) // length
    inputs = ids[: whole * length].reshape(whole, length)
    targets = ids[1 : whole * length + 1].reshape(whole, length)
    for start in range(0, whole, count):
        yield inputs[start : start + count], targets[start : start + count]
    if whole * length + 1 < len(ids):
        rest = ids[None, whole * length :]
        yield rest[:, :-1], rest[:, 1:]
