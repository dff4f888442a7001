"""Byte pairs: decode inverts encode, and the fast ways to learn and to encode equal the plain ways."""

import json
from collections import Counter
from itertools import pairwise

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from numpy_attention.training.c27_data import CharVocabulary
from numpy_attention.training.c27a_byte_pairs import (
    CHUNK,
    BytePairVocabulary,
    ByteVocabulary,
    count_chunks,
    learn_merges,
    merged,
    vocabulary_from,
)

# A few letters often, so that pairs repeat, and sometimes any character of Unicode.
TEXTS = st.text(st.one_of(st.sampled_from("abA  \n.,\u00e4\u20ac\U0001f43b"), st.characters(exclude_categories=["Cs"])))
ANIMALS = "the dog, the dog! the cat and the dog. " * 5 + "b\u00e4r \U0001f43b b\u00e4r \U0001f43b\r\n\t\tb\u00e4r"


def learned(text, size=300):
    return BytePairVocabulary(learn_merges(count_chunks([text]), size))


@settings(max_examples=30)
@given(corpus=TEXTS, text=TEXTS)
def test_decode_inverts_encode_for_any_text(corpus, text):
    for vocabulary in (ByteVocabulary(), learned(corpus), learned(text)):
        ids = vocabulary.encode(text)
        assert vocabulary.decode(ids) == text
        assert ids.dtype == np.int64
        assert vocabulary.characters_in(ids) == len(text)
        assert not ids.size or 0 <= ids.min() <= ids.max() < len(vocabulary)


@settings(max_examples=30)
@given(corpus=TEXTS, text=TEXTS)
def test_encoding_applies_the_merges_in_learned_order(corpus, text):
    vocabulary = learned(corpus + text)
    expected = []
    for chunk in CHUNK.findall(text):
        ids = list(chunk.encode())
        for pair, rank in vocabulary.ranks.items():
            ids = merged(ids, pair, 256 + rank)
        expected += ids
    assert vocabulary.encode(text).tolist() == expected


@settings(max_examples=50)
@given(TEXTS, st.integers(257, 280))
@example("banana bandana", 280)  # a pair that disappears in one word remains in another
@example("abab abac abad acac", 280)
def test_learning_merges_the_most_frequent_pair_each_time(corpus, size):
    words = [(list(chunk.encode()), count) for chunk, count in count_chunks([corpus]).items()]
    merges = []
    while 256 + len(merges) < size:
        counts = Counter()
        for word, count in words:
            for pair in pairwise(word):
                counts[pair] += count
        if not counts or max(counts.values()) < 2:
            break
        merges.append(min(counts, key=lambda pair: (-counts[pair], pair)))
        words = [(merged(word, merges[-1], 255 + len(merges)), count) for word, count in words]
    assert learn_merges(count_chunks([corpus]), size) == merges


def test_frequent_words_become_one_token_each_and_punctuation_stays_apart():
    vocabulary = learned(ANIMALS)
    assert vocabulary.labels(vocabulary.encode(" the dog!")) == [" the", " dog", "!"]
    text = "no such words"
    assert "".join(vocabulary.labels(vocabulary.encode(text))) == text
    assert len(vocabulary.encode(ANIMALS)) < len(ANIMALS) / 2


def test_vocabulary_loaded_from_json_gives_the_same_ids():
    for vocabulary in (CharVocabulary(ANIMALS), ByteVocabulary(), learned(ANIMALS)):
        again = vocabulary_from(json.loads(json.dumps(vocabulary.saved())))
        assert type(again) is type(vocabulary)
        assert len(again) == len(vocabulary)
        np.testing.assert_array_equal(again.encode(ANIMALS), vocabulary.encode(ANIMALS))
        assert again.decode(again.encode(ANIMALS)) == ANIMALS
