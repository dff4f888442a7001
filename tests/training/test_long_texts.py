"""Texts larger than memory: ids in a file, in few bytes, with atomic writes."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from numpy_attention.errors import InputError
from numpy_attention.training.long_texts import id_dtype, map_ids, write_ids


def test_ids_are_stored_in_the_smallest_dtype(tmp_path):
    for size, dtype in ((1, np.uint8), (256, np.uint8), (257, np.uint16), (2**16, np.uint16), (2**16 + 1, np.uint32)):
        assert id_dtype(size) == dtype
        ids = np.array([0, size - 1, 0, size // 2])
        write_ids(tmp_path / "ids.npy", iter([ids[:1], ids[1:1], ids[1:]]), id_dtype(size))
        np.testing.assert_array_equal(map_ids(tmp_path / "ids.npy", size), ids)
        assert [path.name for path in tmp_path.iterdir()] == ["ids.npy"]
    assert map_ids(tmp_path / "ids.npy", 256) is None
    assert map_ids(tmp_path / "none.npy", 256) is None


def test_pickle_in_place_of_ids_is_not_loaded(tmp_path):
    class Opened:
        def __reduce__(self):
            return Path.touch, (tmp_path / "opened",)

    (tmp_path / "ids.npy").write_bytes(pickle.dumps(Opened()))
    assert map_ids(tmp_path / "ids.npy", 256) is None
    assert not (tmp_path / "opened").exists()


def test_failed_write_leaves_no_file(tmp_path):
    def pieces():
        yield np.arange(3)
        raise InputError("the text has changed")

    with pytest.raises(InputError, match="has changed"):
        write_ids(tmp_path / "ids.npy", pieces(), id_dtype(3))
    assert not list(tmp_path.iterdir())


def test_every_change_of_the_file_is_detected(tmp_path, rng):
    path, ids = tmp_path / "ids.npy", np.tile(np.arange(100, dtype=np.uint8), 20)
    write_ids(path, [ids], ids.dtype)
    whole = path.read_bytes()
    valid = bytearray(whole)
    valid[500:510] = bytes(10)  # valid ids, but other ones
    halved = whole.replace(b"(2000,), }", b"(1000,), }")
    assert halved != whole
    fewer = np.lib.format.magic(1, 0) + whole[8:].replace(b"'|u1'", b"'|i1'")
    changed = [bytes(valid), halved, fewer, b"", whole[:50], whole[:-1], whole[:-4], whole + b"\0", whole[:-2000]]
    for _ in range(100):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] ^= 1 << rng.integers(8)
        changed.append(bytes(damaged))
    for damaged in changed:
        path.write_bytes(damaged)
        assert map_ids(path, 100) is None
    path.write_bytes(whole)
    np.testing.assert_array_equal(map_ids(path, 100), ids)
    assert map_ids(path, 99) is None
    np.testing.assert_array_equal(np.load(path, allow_pickle=False), ids)  # the file is a normal .npy file
    path.write_bytes(whole[: 128 + len(ids)])  # a file of an older version, without a checksum
    assert map_ids(path, 100) is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes exist only on Unix")
def test_pipe_or_folder_is_not_a_file_of_ids(tmp_path):
    os.mkfifo(tmp_path / "ids.npy")
    assert map_ids(tmp_path / "ids.npy", 100) is None
    assert map_ids(tmp_path, 100) is None


def test_empty_text_gives_a_file_without_ids(tmp_path):
    write_ids(tmp_path / "ids.npy", [], id_dtype(3))
    assert map_ids(tmp_path / "ids.npy", 3) is None  # but a run cannot use it
    assert len(np.load(tmp_path / "ids.npy", allow_pickle=False)) == 0
