"""Texts larger than memory: ids in a file, in few bytes, with atomic writes."""

import numpy as np
import pytest

from numpy_attention.errors import InputError
from numpy_attention.training.long_texts import id_dtype, map_ids, write_ids


def test_ids_are_stored_in_the_smallest_dtype(tmp_path):
    for size, dtype in ((1, np.uint8), (256, np.uint8), (257, np.uint16), (2**16, np.uint16), (2**16 + 1, np.uint32)):
        assert id_dtype(size) == dtype
        ids = np.array([0, size - 1, 0, size // 2])
        write_ids(tmp_path / "ids.bin", iter([ids[:1], ids[1:1], ids[1:]]), id_dtype(size))
        np.testing.assert_array_equal(map_ids(tmp_path / "ids.bin", id_dtype(size)), ids)
        assert [path.name for path in tmp_path.iterdir()] == ["ids.bin"]
    assert map_ids(tmp_path / "none.bin", id_dtype(256)) is None


def test_failed_write_leaves_no_file(tmp_path):
    def pieces():
        yield np.arange(3)
        raise InputError("the text has changed")

    with pytest.raises(InputError, match="has changed"):
        write_ids(tmp_path / "ids.bin", pieces(), id_dtype(3))
    assert not list(tmp_path.iterdir())


def test_every_change_of_the_file_is_detected(tmp_path, rng):
    path, ids = tmp_path / "ids.bin", np.tile(np.arange(100, dtype=np.uint8), 20)
    write_ids(path, [ids], ids.dtype)
    whole = path.read_bytes()
    changed = [b"", whole[:3], whole[:4], whole[:-1], whole[:-4], whole + b"\0", whole[:-2000]]
    for _ in range(100):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] ^= 1 << rng.integers(8)
        changed.append(bytes(damaged))
    for damaged in changed:
        path.write_bytes(damaged)
        assert map_ids(path, ids.dtype) is None
    path.write_bytes(whole)
    np.testing.assert_array_equal(map_ids(path, ids.dtype), ids)
