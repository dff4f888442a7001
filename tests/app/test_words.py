"""Words as they come: the pieces together are the whole text, and no piece is given before it is certain."""

import argparse
from collections.abc import Iterator

import numpy as np
import pytest

from numpy_attention.app.words import add_sampling, sampling, words
from numpy_attention.errors import InputError
from numpy_attention.pretrained.tokenizer import Tokenizer
from numpy_attention.training.byte_pairs import BytePairVocabulary, ByteVocabulary
from numpy_attention.training.data import CharVocabulary
from tests.pretrained.tiny import byte_pairs, word_piece

VOCABULARIES = {
    "characters": CharVocabulary("abc \n\u20ac\U0001f642\ufffd"),
    "bytes": ByteVocabulary(),
    "pairs of bytes": BytePairVocabulary([(226, 130), (256, 172), (97, 256), (172, 97)]),
    "pretrained": Tokenizer(byte_pairs()),
    "pretrained word pieces": Tokenizer(word_piece()),
}


@pytest.mark.parametrize("name", VOCABULARIES)
def test_pieces_together_equal_the_whole_text(name: str, rng: np.random.Generator) -> None:
    vocabulary = VOCABULARIES[name]
    for length in (0, 1, 2, 3, *range(5, 60, 6)):
        ids = rng.integers(0, len(vocabulary), length)
        pieces = list(words(vocabulary, ids.tolist()))
        assert "".join(pieces) == vocabulary.decode(ids)
        assert "" not in pieces


@pytest.mark.parametrize("name", ["bytes", "pairs of bytes", "pretrained"])
def test_character_is_given_after_its_last_byte(name: str) -> None:
    vocabulary, drawn, so_far = VOCABULARIES[name], [], ""

    def draw() -> Iterator[int]:
        for i in vocabulary.encode("a\u20ac\U0001f642 na\u00efve").tolist():
            drawn.append(i)
            yield i

    for piece in words(vocabulary, draw()):
        so_far += piece
        assert "\ufffd" not in piece
        assert so_far == vocabulary.decode(np.array(drawn)), "nothing that is certain is kept back"
    assert so_far == "a\u20ac\U0001f642 na\u00efve"


def test_space_before_a_word_is_kept() -> None:
    """Word pieces are joined by spaces, and no text begins with one."""
    vocabulary = VOCABULARIES["pretrained word pieces"]
    assert list(words(vocabulary, vocabulary.encode("the bread rains").tolist())) == ["the", " bread", " rain", "s"]


def options_of(*typed: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_sampling(parser, tokens=7, temperature=0.5)
    return parser.parse_args(typed)


def test_options_reach_the_sampler() -> None:
    a = options_of("--top-k", "3", "--top-p", "0.75", "--seed", "11")
    options = sampling(a)
    assert options.pop("rng").random() == np.random.default_rng(11).random()
    assert options == {"temperature": 0.5, "top_k": 3, "top_p": 0.75}
    assert a.tokens == 7


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--seed", "-1", "--seed must be at least 0, got -1"),
        ("--tokens", "-3", "--tokens must be at least 0, got -3"),
        ("--temperature", "nan", "temperature must be at least 0 and finite, got nan"),
        ("--top-k", "0", "top_k must be at least 1, got 0"),
        ("--top-p", "1.5", r"top_p must be in \(0, 1\], got 1.5"),
    ],
)
def test_refuses_impossible_sampling_settings(option: str, value: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        sampling(options_of(option, value))
