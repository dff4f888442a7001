"""Texts, vocabularies and blocks."""


import numpy as np
import pytest

from numpy_attention.errors import InputError
from numpy_attention.training.c27_data import (
    CharVocabulary,
    consecutive_blocks,
    random_blocks,
    read_text,
)


def test_decode_inverts_encode():
    text = "b\u00e4r \U0001f43b\tand\r\nb\u00e4r"
    vocabulary = CharVocabulary(text)
    ids = vocabulary.encode(text)
    assert vocabulary.characters == "".join(sorted(set(text)))
    assert vocabulary.decode(ids) == text
    assert ids.dtype == np.int64
    assert len(vocabulary.encode("")) == 0


def test_unknown_characters_are_named():
    with pytest.raises(InputError, match="unknown to the model: 'x', '\u20ac'"):
        CharVocabulary("abc").encode("abx\u20acx")
    with pytest.raises(InputError, match="unknown"):
        CharVocabulary("abc").encode("\udcff")  # an undecodable byte of the command line as Python shows it


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"abc\xffdef", "not UTF-8 text: byte 0xff at offset 3"),
        (None, "No such file"),
        ("dir", "directory"),
    ],
    ids=["empty", "a byte that is not UTF-8", "no file", "a directory"],
)
def test_unreadable_file_gives_an_error_of_one_line(tmp_path, content, message):
    path = tmp_path / "text.txt"
    if content == "dir":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_text(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_targets_are_the_next_characters_of_their_blocks():
    ids = np.arange(100, 150)
    x, y = random_blocks(ids, 7, 300, np.random.default_rng(0))
    assert x.shape == y.shape == (300, 7)
    np.testing.assert_array_equal(x + 1, y)
    assert x.min() == 100  # the first place can be drawn
    assert y.max() == 149  # and the last place


def test_a_text_shorter_than_a_block_is_refused():
    with pytest.raises(InputError, match="a text of 7 tokens is too short: a block needs 7 tokens and one more"):
        random_blocks(np.arange(7), 7, 2, np.random.default_rng(0))
    x, _ = random_blocks(np.arange(8), 7, 2, np.random.default_rng(0))  # exactly one block and its targets
    np.testing.assert_array_equal(x, [np.arange(7)] * 2)


@pytest.mark.parametrize("length", [2, 5, 18, 19, 20, 21, 22, 50])
@pytest.mark.parametrize("count", [1, 3])
def test_consecutive_blocks_predict_every_character_but_the_first_once(length, count):
    ids = np.random.default_rng(1).permutation(21)
    batches = list(consecutive_blocks(ids, length, count))
    np.testing.assert_array_equal(np.concatenate([x.ravel() for x, _ in batches]), ids[:-1])
    np.testing.assert_array_equal(np.concatenate([y.ravel() for _, y in batches]), ids[1:])
    assert all(x.shape == y.shape and x.shape[0] <= count and x.shape[1] <= length for x, y in batches)
