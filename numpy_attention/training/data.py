"""Chapter 27. Data: from a text to blocks of ids

A character model needs no tokenizer: its vocabulary is the set of characters of the text, in sorted order, and the id
of a character is its place there. (Bytes and pairs of bytes, which know every text, come in this chapter's
continuation.) The last tenth of the text, at most 2^20 ids, is held out and never trained on. A training example
is a block of T + 1 neighbouring characters at a random place,

    text       . . t h e _ c a t _ s a t . .            s = 2, T = 4
    ids            t h e _                              text[s     : s + T]
    targets          h e _ c                            text[s + 1 : s + T + 1]

so that position t predicts the character after it, for all t at once: T predictions for one forward pass, each
with a context of t + 1 characters.

The held-out loss is the mean over the whole held-out text, cut into consecutive blocks, in nats per character. The
first characters of each block have little context; that is charged to the model, as usual.

The default text comes with the book: the help topics of Python 3.11, 465,000 characters of English, in the folder
`help_topics` with their licence. Every Python carries such topics, but each version carries another text.
"""

from __future__ import annotations

import codecs
import gzip
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention.errors import InputError, short_repr
from numpy_attention.files import reading

HELP_TOPICS = Path(__file__).with_name("help_topics") / "text.gz"
READ_AT_ONCE = 2**20  # bytes of a text
HELD_OUT = 2**20  # ids at most


def default_text() -> str:
    """The help topics of Python 3.11, joined in the order of their names: the same text on every Python.

    Source: Python Software Foundation, the documentation of Python 3.11.7 (2023), module `pydoc_data.topics`.
    """
    return gzip.decompress(HELP_TOPICS.read_bytes()).decode()


def text_pieces(path: str | Path, size: int = READ_AT_ONCE) -> Iterator[str]:
    """The text of a UTF-8 file in pieces of about `size` bytes, character for character (no newline is translated; a
    byte order mark is dropped).

    Raises: InputError, in one line, for what is no text.
    """
    decoder, offset, begun = codecs.getincrementaldecoder("utf-8")(), 0, False
    try:
        with reading(path) as file:
            while raw := file.read(size):
                text = decoder.decode(raw)
                yield text if begun else text.removeprefix("\ufeff")
                offset, begun = offset + len(raw), begun or bool(text)
            decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:  # error.object begins with the bytes that the last piece has left over
        rest = len(error.object) - (len(raw) if raw else 0)
        byte = f"0x{error.object[error.start]:02x} at offset {offset - rest + error.start}"
        raise InputError(f"{path} is not UTF-8 text: byte {byte}; iconv -t UTF-8 converts texts") from None
    if not offset:
        raise InputError(f"{path} is empty; a text is needed")


def read_text(path: str | Path) -> str:
    """The whole text of a UTF-8 file."""
    return "".join(text_pieces(path))


class Vocabulary(ABC):
    """A text as ids and back."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def encode(self, text: str) -> np.ndarray:
        """The ids of the text, (N,)."""

    @abstractmethod
    def decode(self, ids: np.ndarray) -> str:
        """The text that the ids spell."""

    @abstractmethod
    def saved(self) -> dict[str, Any]:
        """The vocabulary as plain values for JSON."""

    def encode_pieces(self, pieces: Iterable[str]) -> Iterator[np.ndarray]:
        """The ids of a long text that comes piece by piece; together those of the whole."""
        return map(self.encode, pieces)

    def labels(self, ids: np.ndarray) -> list[str]:
        """What each id stands for, to look at."""
        return [self.decode(ids[i : i + 1]) for i in range(len(ids))]

    def characters_in(self, ids: np.ndarray) -> int:
        """How many characters begin within the ids."""
        return len(ids)


class CharVocabulary(Vocabulary):
    """The characters of a text in sorted order; the id of a character is its place among them."""

    def __init__(self, text: str) -> None:
        self.characters = distinct_characters(text)
        codes = _code_points(self.characters)
        # the id of each code point, -1 for none; the last place stands for all that lie beyond
        self._id_of = np.full(codes.max(initial=0) + 2, -1, np.int32)
        self._id_of[codes] = np.arange(len(codes))

    def __len__(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> np.ndarray:
        """The ids of the characters of `text`, (len(text),).

        Raises: InputError that names the characters that have none.
        """
        ids = self._id_of.take(_code_points(text), mode="clip")
        if (ids < 0).any():
            unknown = sorted(set(text) - set(self.characters))
            few = ", ".join(repr(c) for c in unknown[:5]) + (", ..." if len(unknown) > 5 else "")
            raise InputError(f"characters unknown to the model: {few}; it knows {short_repr(self.characters)}")
        return ids.astype(np.int64)

    def decode(self, ids: np.ndarray) -> str:
        """The text that the ids spell."""
        return "".join(self.characters[i] for i in ids)

    def saved(self) -> dict[str, Any]:
        """The vocabulary as plain values for JSON."""
        return {"characters": self.characters}


def distinct_characters(text: str) -> str:
    """The different characters of a text, in sorted order."""
    codes = _code_points(text)
    seen = np.zeros(codes.max(initial=0) + 1, dtype=np.bool_)
    seen[codes] = True
    return "".join(map(chr, np.flatnonzero(seen)))


def split_text(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The training part and the held-out last tenth, at most HELD_OUT ids."""
    cut = max(int(0.9 * len(ids)), len(ids) - HELD_OUT)
    return ids[:cut], ids[cut:]


def random_blocks(ids: np.ndarray, length: int, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """`count` blocks at random places and their targets, both (count, length).

    Raises: InputError for too short a text.
    """
    if len(ids) < length + 1:
        raise InputError(f"a text of {len(ids)} tokens is shorter than one block of {length} and the next one")
    starts = rng.integers(0, len(ids) - length, size=count)
    blocks = np.asarray(ids[starts[:, None] + np.arange(length + 1)], np.int64)  # (count, length + 1)
    return blocks[:, :-1], blocks[:, 1:]


def consecutive_blocks(ids: np.ndarray, length: int, count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The whole text in blocks without overlap, up to `count` a batch, and their targets; every id but the first is
    the target of one position. A shorter remainder comes last, as a batch of its own."""
    whole = (len(ids) - 1) // length
    inputs = ids[: whole * length].reshape(whole, length)
    targets = ids[1 : whole * length + 1].reshape(whole, length)
    for start in range(0, whole, count):
        batch = slice(start, start + count)
        yield np.asarray(inputs[batch], np.int64), np.asarray(targets[batch], np.int64)
    if whole * length + 1 < len(ids):
        rest = np.asarray(ids[None, whole * length :], np.int64)
        yield rest[:, :-1], rest[:, 1:]


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
