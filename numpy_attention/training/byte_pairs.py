"""Chapter 27, continued. Bytes, and pairs of bytes: a vocabulary learned from the text

A character vocabulary knows the characters of one text and no others. Bytes know all texts: written as UTF-8, any
text is a sequence of the numbers 0 to 255, and those are the ids of the byte vocabulary. The price is length. A model
that sees T tokens at once sees T bytes, some six to a word with its space, and the cost of attention grows with T^2.

Byte-pair encoding makes the sequence shorter. Count which two neighbours stand together most often, give that pair an
id of its own, put it in place of the pair, and begin again. Frequent words end up as one token, rare ones as a few
parts, and what was never seen is still spelled in bytes:

    ids 0 .. 255        the bytes
    id  256 + i         (a_i, b_i), the i-th pair that was merged; both parts have lower ids

Merges never cross the border of a chunk: a word with the space before it, a run of punctuation, a run of white space.
Without borders "dog.", "dog!" and "dog?" would each become a token, and dog would have to be learned three times. With
them it is enough to count every different chunk once, with the number of its occurrences as its weight:

    count(a, b) = sum over different chunks c of  occurrences(c) * (how often a, b are neighbours in c)

A merge changes only the chunks in which its pair stands. So the counts are kept, and of each pair is known where it
stands; one merge then costs what it changes, and one look through the counts. Of pairs that are equally frequent the
one of the lowest ids is taken: the same text gives the same vocabulary on every machine.

To encode a chunk is to replay its merges in the order in which they were learned. To decode is to look up each id's
bytes and join them, and since the chunks of a text join to the text, and a merge only regroups the bytes of its chunk,

    decode(encode(text)) = text

for every text. The other way round it need not hold: a model may write ids whose bytes are not UTF-8; a byte that
fits nowhere is shown as the replacement character.

Source: Gage, A New Algorithm for Data Compression (1994); Sennrich, Haddow, Birch, Neural Machine Translation of Rare
Words with Subword Units (2016), algorithm 1; for bytes and borders Radford et al., Language Models are Unsupervised
Multitask Learners (2019), section 2.2.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from numpy_attention.errors import InputError
from numpy_attention.training.data import CharVocabulary, Vocabulary

Pair = tuple[int, int]
LONGEST = 64  # characters in a chunk, besides its space: what a chunk costs in time and memory has a bound
CHUNK = re.compile(rf" ?\w{{1,{LONGEST}}}| ?[^\w\s]{{1,{LONGEST}}}|\s{{1,{LONGEST}}}(?!\S)|\s{{1,{LONGEST}}}")
MAX_TOKEN = 4 * (LONGEST + 1)  # bytes
REMEMBERED = 2**16  # chunks whose ids are kept at hand


class ByteVocabulary(Vocabulary):
    """The ids 0 to 255 are the bytes of UTF-8; `tokens` holds the bytes of each id."""

    def __init__(self) -> None:
        self.tokens = [bytes([byte]) for byte in range(256)]
        self._characters_of = np.array([_characters(token) for token in self.tokens])

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str) -> np.ndarray:
        """The ids of the text, (N,)."""
        return np.frombuffer(_utf8(text), dtype=np.uint8).astype(np.int64)

    def decode(self, ids: np.ndarray) -> str:
        """The text that the ids spell; bytes that are not UTF-8 become the replacement character."""
        return b"".join(self.tokens[i] for i in ids).decode("utf-8", errors="replace")

    def characters_in(self, ids: np.ndarray) -> int:
        """How many characters begin within the ids."""
        return int(self._characters_of[ids].sum())

    def saved(self) -> dict[str, Any]:
        """The vocabulary as plain values for JSON."""
        return {"vocabulary": "byte"}


class BytePairVocabulary(ByteVocabulary):
    """Bytes, and the pairs that were merged, in the order of their learning.

    Raises: InputError for merges of which no vocabulary can consist.
    """

    def __init__(self, merges: Iterable[Pair]) -> None:
        super().__init__()
        self.ranks: dict[Pair, int] = {}
        for a, b in merges:
            whole = type(a) is int and type(b) is int and 0 <= min(a, b) and max(a, b) < len(self.tokens)
            if not whole or (a, b) in self.ranks or len(self.tokens[a]) + len(self.tokens[b]) > MAX_TOKEN:
                raise InputError(f"merge {len(self.ranks)} of the vocabulary cannot be of {a!r} and {b!r}")
            self.ranks[a, b] = len(self.ranks)
            self.tokens.append(self.tokens[a] + self.tokens[b])
        self._characters_of = np.array([_characters(token) for token in self.tokens])
        self._known: dict[str, list[int]] = {}

    def encode(self, text: str) -> np.ndarray:
        """The ids of the text, (N,)."""
        return self._encode(CHUNK.findall(text))

    def encode_pieces(self, pieces: Iterable[str]) -> Iterator[np.ndarray]:
        """The ids of a long text that comes piece by piece; together those of the whole."""
        rest = ""
        for piece in pieces:
            chunks = CHUNK.findall(rest + piece)
            # the last chunk may go on in the next piece; all before it are complete
            rest = chunks.pop() if chunks else ""
            yield self._encode(chunks)
        yield self.encode(rest)

    def saved(self) -> dict[str, Any]:
        """The vocabulary as plain values for JSON."""
        return {"vocabulary": "bpe", "merges": [list(pair) for pair in self.ranks]}

    def _encode(self, chunks: Iterable[str]) -> np.ndarray:
        ids: list[int] = []
        for chunk in chunks:
            ids += self._chunk(chunk)
        return np.array(ids, dtype=np.int64)

    def _chunk(self, chunk: str) -> list[int]:
        ids = self._known.get(chunk)
        if ids is None:
            ids = list(_utf8(chunk))
            while len(ids) > 1:
                pair = min(pairwise(ids), key=lambda pair: self.ranks.get(pair, math.inf))
                if pair not in self.ranks:
                    break
                ids = merged(ids, pair, 256 + self.ranks[pair])
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[chunk] = ids
        return ids


def vocabulary_from(saved: Mapping[str, Any]) -> Vocabulary:
    """The vocabulary whose `saved()` this is.

    Raises: InputError for anything else.
    """
    kind, merges = saved.get("vocabulary", "char"), saved.get("merges")
    if kind == "char" and isinstance(saved.get("characters"), str):
        return CharVocabulary(saved["characters"])
    if kind == "byte":
        return ByteVocabulary()
    if kind == "bpe" and isinstance(merges, list) and all(isinstance(m, list) and len(m) == 2 for m in merges):
        return BytePairVocabulary((a, b) for a, b in merges)
    raise InputError("it describes no vocabulary")


def count_chunks(pieces: Iterable[str]) -> Counter[str]:
    """How often each chunk occurs."""
    counts: Counter[str] = Counter()
    for piece in pieces:
        counts.update(CHUNK.findall(piece))
    return counts


def learn_merges(occurrences: Mapping[str, int], size: int) -> list[Pair]:
    """The merges of a vocabulary of `size` ids, or of fewer if no pair is left that stands twice.

    occurrences[c] is how often the chunk c occurs in the text.
    """
    chunks = [list(_utf8(chunk)) for chunk in occurrences]
    weights = list(occurrences.values())
    counts: Counter[Pair] = Counter()
    places: dict[Pair, set[int]] = defaultdict(set)  # the chunks in which a pair stands, or has stood
    for i, chunk in enumerate(chunks):
        for pair in pairwise(chunk):
            counts[pair] += weights[i]
            places[pair].add(i)
    merges: list[Pair] = []
    while 256 + len(merges) < size and counts:
        most = max(counts.values())
        if most < 2:
            break
        best = min(pair for pair, count in counts.items() if count == most)
        for i in places.pop(best):
            for pair in pairwise(chunks[i]):
                counts[pair] -= weights[i]
                if not counts[pair]:
                    del counts[pair]
            chunks[i] = merged(chunks[i], best, 256 + len(merges))
            for pair in pairwise(chunks[i]):
                counts[pair] += weights[i]
                places[pair].add(i)
        merges.append(best)
    return merges


def merged(ids: list[int], pair: Pair, new: int) -> list[int]:
    """The ids with `new` in place of each `pair`, from the left: a a a becomes (aa) a."""
    out, i = [], 0
    while i < len(ids):
        if i + 1 < len(ids) and (ids[i], ids[i + 1]) == pair:
            out.append(new)
            i += 2
        else:
            out.append(ids[i])
            i += 1
    return out


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        lone = text[error.start]
        raise InputError(f"the text holds {lone!r}, half a surrogate pair, which is no character of Unicode") from None


def _characters(token: bytes) -> int:
    """How many characters begin in a token: the bytes that do not continue one."""
    return sum(byte & 0xC0 != 0x80 for byte in token)
