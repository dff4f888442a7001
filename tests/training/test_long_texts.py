"""Texts bigger than memory: ids in a file, in few bytes, whole or not at all."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from numpy_attention.errors import InputError
from numpy_attention.training.long_texts import id_dtype, map_ids, write_ids


def test_ids_are_kept_in_as_few_bytes_as_hold_them(tmp_path):
    for size, dtype in ((1, np.uint8), (256, np.uint8), (257, np.uint16), (2**16, np.uint16), (2**16 + 1, np.uint32)):
        assert id_dtype(size) == dtype
        ids = np.array([0, size - 1, 0, size // 2])
        write_ids(tmp_path / "ids.npy", iter([ids[:1], ids[1:1], ids[1:]]), id_dtype(size))
        np.testing.assert_array_equal(map_ids(tmp_path / "ids.npy", size), ids)
        assert [path.name for path in tmp_path.iterdir()] == ["ids.npy"]
    assert map_ids(tmp_path / "ids.npy", 256) is None
    assert map_ids(tmp_path / "none.npy", 256) is None


def test_a_pickle_in_the_place_of_ids_is_never_opened(tmp_path):
    class Opened:
        def __reduce__(self):
            return Path.touch, (tmp_path / "opened",)

    (tmp_path / "ids.npy").write_bytes(pickle.dumps(Opened()))
    assert map_ids(tmp_path / "ids.npy", 256) is None
    assert not (tmp_path / "opened").exists()


def test_ids_that_fail_midway_leave_nothing(tmp_path):
    def pieces():
        yield np.arange(3)
        raise InputError("the text has changed")

    with pytest.raises(InputError, match="has changed"):
        write_ids(tmp_path / "ids.npy", pieces(), id_dtype(3))
    assert not list(tmp_path.iterdir())
