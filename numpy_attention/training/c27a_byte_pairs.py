"""Chapter 27, continued. Bytes, and pairs of bytes: a vocabulary learned from the text

A character vocabulary contains only the characters of one text. Bytes can encode all texts: in UTF-8, every text is a
sequence of numbers from 0 to 255, and these numbers are the ids of the byte vocabulary. The price is length. A model
that sees T tokens at once sees T bytes. A word with its space has about six bytes, and the cost of attention grows
with T^2.

Byte-pair encoding makes the sequence shorter. Count all pairs of neighbours, give the most frequent pair a new id,
replace the pair by this id everywhere, and repeat. In the end a frequent word is one token and a rare word a few
tokens; a text that was never seen is still spelled in bytes:

    ids 0 .. 255        the bytes
    id  256 + i         (a_i, b_i), the i-th pair that was merged; both parts have lower ids

Merges never cross the border of a chunk: a word with the space before it, a run of punctuation, or a run of white
space. Without borders, "dog.", "dog!" and "dog?" would each become a token, and the model would have to learn the word
"dog" three times. Borders also save work: we process each different chunk once, weighted by the number of its
occurrences:

    count(a, b) = sum over different chunks c of  occurrences(c) * (how often a, b are neighbours in c)

A merge changes only the chunks that contain its pair. So we store the counts, and for each pair the chunks that contain
it. The cost of a merge is then the work on these chunks and one pass through the counts. Among equally frequent pairs
we take the one with the lowest ids, so the same text gives the same vocabulary on every machine.

To encode a chunk, repeat the merges in the order in which they were learned. To decode, look up the bytes of each id
and join them. The chunks of a text, joined, are the text, and a merge only groups bytes of one chunk, so

    decode(encode(text)) = text

for every text. encode(decode(ids)) can differ from ids, since a model may write ids whose bytes are not UTF-8; decoding
then writes the replacement character.

Source: Gage, A New Algorithm for Data Compression (1994); Sennrich, Haddow, Birch, Neural Machine Translation of Rare
Words with Subword Units (2016), algorithm 1; for bytes and borders Radford et al., Language Models are Unsupervised
Multitask Learners (2019), section 2.2.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from numpy_attention.errors import InputError
from numpy_attention.training.c27_data import CharVocabulary, Vocabulary

Pair = tuple[int, int]
LONGEST = 64  # characters in a chunk, not counting its space; this bounds its cost in time and memory
CHUNK = re.compile(rf" ?\w{{1,{LONGEST}}}| ?[^\w\s]{{1,{LONGEST}}}|\s{{1,{LONGEST}}}(?!\S)|\s{{1,{LONGEST}}}")
REMEMBERED = 2**16  # the most chunks whose ids are cached


class ByteVocabulary(Vocabulary):
    """The ids 0 to 255 are the bytes of UTF-8; `tokens` holds the bytes of each id."""

    def __init__(self) -> None:
        self.tokens = [bytes([byte]) for byte in range(256)]
        self._characters_of = np.array([_characters(token) for token in self.tokens])

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str) -> np.ndarray:
        return np.frombuffer(utf8(text), dtype=np.uint8).astype(np.int64)

    def decode(self, ids: np.ndarray) -> str:
        """The text of the ids; bytes that are not UTF-8 become the replacement character."""
        return b"".join(self.tokens[i] for i in ids).decode("utf-8", errors="replace")

    def characters_in(self, ids: np.ndarray) -> int:
        return int(self._characters_of[ids].sum())

    def saved(self) -> dict[str, Any]:
        return {"vocabulary": "byte"}


class BytePairVocabulary(ByteVocabulary):
    """Bytes and the merged pairs, in the order in which they were learned."""

    def __init__(self, merges: Iterable[Pair]) -> None:
        super().__init__()
        self.ranks: dict[Pair, int] = {}
        for a, b in merges:
            self.ranks[a, b] = len(self.ranks)
            self.tokens.append(self.tokens[a] + self.tokens[b])
        self._characters_of = np.array([_characters(token) for token in self.tokens])
        self._known: dict[str, list[int]] = {}

    def encode(self, text: str) -> np.ndarray:
        return np.array([i for chunk in CHUNK.findall(text) for i in self._chunk(chunk)], dtype=np.int64)

    def saved(self) -> dict[str, Any]:
        return {"vocabulary": "bpe", "merges": [list(pair) for pair in self.ranks]}

    def _chunk(self, chunk: str) -> list[int]:
        ids = self._known.get(chunk)
        if ids is None:
            ids = list(utf8(chunk))
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
    """Rebuild a vocabulary from the result of its method `saved()`.

    Raises: InputError for anything else.
    """
    kind = saved.get("vocabulary", "char")
    if kind == "char" and "characters" in saved:
        return CharVocabulary(saved["characters"])
    if kind == "byte":
        return ByteVocabulary()
    if kind == "bpe" and "merges" in saved:
        return BytePairVocabulary((a, b) for a, b in saved["merges"])
    raise InputError("this is not the description of a vocabulary")


def count_chunks(pieces: Iterable[str]) -> Counter[str]:
    """The number of occurrences of each chunk."""
    counts: Counter[str] = Counter()
    for piece in pieces:
        counts.update(CHUNK.findall(piece))
    return counts


def learn_merges(occurrences: Mapping[str, int], size: int) -> list[Pair]:
    """The merges of a vocabulary of `size` ids, or fewer ids if no pair occurs twice any more.

    occurrences[c] is the number of occurrences of the chunk c in the text.
    """
    chunks = [list(utf8(chunk)) for chunk in occurrences]
    weights = list(occurrences.values())
    counts: Counter[Pair] = Counter()
    places: dict[Pair, set[int]] = defaultdict(set)  # the chunks that contain a pair, or once contained it
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
    """The ids after each `pair` is replaced by `new`, from the left: a a a becomes (aa) a."""
    out, i = [], 0
    while i < len(ids):
        if i + 1 < len(ids) and (ids[i], ids[i + 1]) == pair:
            out.append(new)
            i += 2
        else:
            out.append(ids[i])
            i += 1
    return out


def utf8(text: str) -> bytes:
    """The bytes of a text.

    Raises: InputError for half a surrogate pair.
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        lone = text[error.start]
        raise InputError(f"the text holds {lone!r}, half a surrogate pair, which is not a character") from None


def _characters(token: bytes) -> int:
    """The number of characters that begin in a token: count all bytes except continuation bytes."""
    return sum(byte & 0xC0 != 0x80 for byte in token)
