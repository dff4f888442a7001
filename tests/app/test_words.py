"""Words as they come: the pieces are the whole, and none is given before it is certain."""

import argparse

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
    for length in (0, 1, 2, 3, *range(5, 60)):
        ids = rng.integers(0, len(vocabulary), length)
        pieces = list(words(vocabulary, ids.tolist()))
        assert "".join(pieces) == vocabulary.decode(ids)
        assert "" not in pieces


@pytest.mark.parametrize("name", ["bytes", "pairs of bytes", "pretrained"])
def test_character_is_given_after_its_last_byte(name: str) -> None:
    vocabulary = VOCABULARIES[name]
    ids = vocabulary.encode("a\u20ac\U0001f642 na\u00efve").tolist()
    drawn = []

    def draw():
        for i in ids:
            drawn.append(i)
            yield i

    so_far = ""
    for piece in words(vocabulary, draw()):
        so_far += piece
        assert "\ufffd" not in piece
        assert so_far == vocabulary.decode(np.array(drawn)), "nothing that is certain is kept back"
    assert so_far == "a\u20ac\U0001f642 na\u00efve"
    assert len(ids) > len(so_far) or name == "pairs of bytes"


def test_long_text_is_not_decoded_again_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary, lengths = ByteVocabulary(), []
    decode = vocabulary.decode

    def counted(ids: np.ndarray) -> str:
        lengths.append(len(ids))
        return decode(ids)

    monkeypatch.setattr(vocabulary, "decode", counted)
    assert "".join(words(vocabulary, b"na\xc3\xafve " * 50)) == "na\u00efve " * 50
    assert max(lengths) == 3, "a character of one byte, one of two"


def test_space_before_a_word_is_kept() -> None:
    """Word pieces are joined by spaces, and no text begins with one."""
    vocabulary = VOCABULARIES["pretrained word pieces"]
    assert list(words(vocabulary, vocabulary.encode("the bread rains").tolist())) == ["the", " bread", " rain", "s"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seed", "-1"], "--seed must be at least 0, got -1"),
        (["--tokens", "-3"], "--tokens must be from 0 to 16,777,216, got -3"),
        (["--temperature", "nan"], "temperature must be at least 0 and finite, got nan"),
        (["--top-k", "0"], "top_k must be at least 1, got 0"),
        (["--top-p", "1.5"], r"top_p must be in \(0, 1\], got 1.5"),
    ],
)
def test_refuses_impossible_sampling_settings(options: list[str], message: str) -> None:
    parser = argparse.ArgumentParser()
    add_sampling(parser, tokens=7, temperature=0.5)
    with pytest.raises(InputError, match=message):
        sampling(parser.parse_args(options))


def test_options_reach_the_sampler() -> None:
    parser = argparse.ArgumentParser()
    add_sampling(parser, tokens=7, temperature=0.5)
    a = parser.parse_args(["--top-k", "3", "--top-p", "0.75", "--seed", "11"])
    options = sampling(a)
    assert options.pop("rng").random() == np.random.default_rng(11).random()
    assert options == {"temperature": 0.5, "top_k": 3, "top_p": 0.75}
    assert a.tokens == 7


def test_refuses_more_tokens_than_memory_can_hold() -> None:
    parser = argparse.ArgumentParser()
    add_sampling(parser, tokens=3, temperature=1.0)
    for count in ("16777217", "99999999999999", "9" * 4000):
        with pytest.raises(InputError, match=r"--tokens must be from 0 to 16,777,216, got 1?"):
            sampling(parser.parse_args(["--tokens", count]))
    sampling(parser.parse_args(["--tokens", "16777216", "--seed", "9" * 4000]))
