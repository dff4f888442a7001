"""Arrays and models in files: loading checks everything, and loaded arrays equal saved arrays."""

import ast
import io
import json
import os
import zipfile

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.errors import InputError
from numpy_attention.files import VERSION, load_arrays, read_into, save_arrays
from tests.models.gradients import randomized
from tests.models.twin_cases import CLASSES, MODELS, make

ARRAYS = {
    "parameters.file": np.arange(6, dtype=np.float32).reshape(2, 3),  # a name that np.savez(**arrays) cannot take
    "parameters.empty": np.zeros((0, 3)),
    "optimizer.steps": np.asarray(12),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_model_equals_the_saved_model(name, dtype, rng, tmp_path):
    config = MODELS[name]
    model = randomized(CLASSES[type(config)](config, None, dtype), rng)
    model.save(tmp_path / "model.npz")
    loaded = type(model).load(str(tmp_path / "model.npz"))
    assert loaded.config == config
    for key, p in loaded.parameters().items():
        assert p.dtype == dtype
        assert p.flags.writeable
        np.testing.assert_array_equal(p, model.parameters()[key])
    batch = make(name)[1][0]
    assert loaded.loss(*batch)[0] == model.loss(*batch)[0]


def test_the_file_is_a_plain_npz_without_pickle(tmp_path):
    model, _ = make("gpt")
    model.save(tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz", allow_pickle=False) as file:
        np.testing.assert_array_equal(file["parameters.norm.gamma"], model.norm.gamma)
        assert json.loads(file["meta"].tobytes())["model"]["d_model"] == model.config.d_model


def test_refuses_a_file_of_another_class_or_size(tmp_path):
    path = tmp_path / "model.npz"
    make("gpt")[0].save(path)
    with pytest.raises(InputError, match=r"holds a GPT, not a Seq2Seq; load it with GPT.load"):
        na.Seq2Seq.load(path)
    arrays, meta = load_arrays(path)
    for change, message in [
        ({"vocab_size": 8}, r"token_embedding.table is float64 \(7, 8\), expected float64 \(8, 8\)"),
        ({"d_model": 10**9}, "its sizes do not fit its arrays"),
        ({"num_layers": 10**9}, "its sizes do not fit its arrays"),
        ({"num_heads": 3}, "d_model must be divisible by num_heads"),
        ({"colour": "red"}, "unexpected keyword argument 'colour'"),
    ]:
        save_arrays(path, arrays, {**meta, "model": {**meta["model"], **change}})
        with pytest.raises(InputError, match=message):
            na.GPT.load(path)


def test_refuses_a_damaged_or_missing_file_in_one_line(tmp_path):
    path = tmp_path / "model.npz"
    with pytest.raises(InputError, match="there is no checkpoint"):
        na.GPT.load(path)
    make("gpt")[0].save(path)
    whole = path.read_bytes()
    for cut in (0, 10, len(whole) // 2, len(whole) - 30):
        path.write_bytes(whole[:cut])
        with pytest.raises(InputError) as error:
            na.GPT.load(path)
        assert "\n" not in str(error.value)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("meta.npy", b"not an array")
    with pytest.raises(InputError):
        na.GPT.load(path)


def test_loaded_arrays_equal_saved_arrays_bit_for_bit(tmp_path):
    path = tmp_path / "checkpoint.npz"
    save_arrays(path, ARRAYS, {"step": 7, "config": {"text": "\u20ac"}})
    arrays, meta = load_arrays(path)
    assert meta["step"] == 7
    assert meta["config"] == {"text": "\u20ac"}
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert arrays[name].shape == array.shape
        np.testing.assert_array_equal(arrays[name], array)
    assert os.listdir(tmp_path) == ["checkpoint.npz"]


def test_numpy_can_load_the_file_without_pickle(tmp_path):
    save_arrays(tmp_path / "c.npz", ARRAYS, {})
    with np.load(tmp_path / "c.npz", allow_pickle=False) as loaded:
        np.testing.assert_array_equal(loaded["parameters.file"], ARRAYS["parameters.file"])


def test_a_failed_save_keeps_the_old_file_and_leaves_no_temporary_file(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint.npz"
    save_arrays(path, ARRAYS, {"step": 1})
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        save_arrays(path, ARRAYS, {"step": 2})
    assert load_arrays(path)[1]["step"] == 1
    assert os.listdir(tmp_path) == ["checkpoint.npz"]


def test_each_truncation_or_flipped_bit_is_refused_or_harmless(tmp_path):
    path = tmp_path / "c.npz"
    save_arrays(path, ARRAYS, {"step": 3})
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for trial in range(300):
        damaged = bytearray(whole)
        if trial % 3:
            damaged[rng.integers(len(whole))] ^= 1 << rng.integers(8)
        else:
            del damaged[rng.integers(len(whole)) :]
        path.write_bytes(damaged)
        try:
            arrays, meta = load_arrays(path)
        except InputError:
            refused += 1
            continue
        assert meta["step"] == 3  # the flip is in a date or another field that loading ignores
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(arrays[name], array)
    assert refused > 200


def npy(array, **options):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, **options)
    return buffer.getvalue()


def archive(path, members, compression=zipfile.ZIP_STORED):
    meta = {"format": "numpy_attention checkpoint", "version": VERSION}
    members = {"meta.npy": npy(np.frombuffer(json.dumps(meta).encode(), np.uint8)), **members}
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, data in members.items():
            file.writestr(name, data)


def test_loading_does_not_use_ast_which_fails_at_random_in_threads_of_python_3_11(tmp_path, monkeypatch):
    save_arrays(tmp_path / "c.npz", ARRAYS, {})

    def fails(*_, **__):
        raise SystemError("AST constructor recursion depth mismatch (before=33, after=30)")

    monkeypatch.setattr(ast, "parse", fails)
    assert load_arrays(tmp_path / "c.npz")[0].keys() == ARRAYS.keys()


@pytest.mark.parametrize("array", [np.zeros(()), np.zeros((0, 3), ">i2"), np.ones((2, 3, 1), bool), np.ones(7, "u1")])
def test_arrays_of_every_shape_and_kind_are_loaded(tmp_path, array):
    save_arrays(tmp_path / "c.npz", {"a": array}, {})
    found = load_arrays(tmp_path / "c.npz")[0]["a"]
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array, strict=True)


HUGE = npy(np.zeros(4, np.float32)).replace(b"(4,), }", b"(4000000000000,), }")
HOSTILE = {
    "a zip bomb": ({"w.npy": npy(np.zeros(10**6))}, zipfile.ZIP_DEFLATED, "compressed"),
    "a path": ({"../../w.npy": npy(np.zeros(3))}, zipfile.ZIP_STORED, "not the name of an array"),
    "an object array": ({"w.npy": npy(np.array([{}], object), allow_pickle=True)}, zipfile.ZIP_STORED, "holds object"),
    "an array by columns": ({"w.npy": npy(np.ones((2, 3), order="F"))}, zipfile.ZIP_STORED, "not numbers in C order"),
    "records": ({"w.npy": npy(np.ones(2, "f4,f4"))}, zipfile.ZIP_STORED, "unknown array format"),
    "a negative size": ({"w.npy": npy(np.ones(4)).replace(b"(4,),", b"(-4,)")}, zipfile.ZIP_STORED, "unknown array"),
    "a header that claims terabytes": ({"w.npy": HUGE}, zipfile.ZIP_STORED, "damaged|claims the shape"),
    "a wrong version": ({"meta.npy": npy(np.frombuffer(
        b'{"format": "numpy_attention checkpoint", "version": 99}', np.uint8))}, zipfile.ZIP_STORED, "version 99"),
    "a foreign npz": ({"meta.npy": npy(np.frombuffer(b"{}", np.uint8))}, zipfile.ZIP_STORED, "not a checkpoint"),
    "something else": ({"notes.txt": b"hello"}, zipfile.ZIP_STORED, "not the name of an array"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_refuses_a_hostile_file_in_one_line(tmp_path, case):
    members, compression, expected = HOSTILE[case]
    archive(tmp_path / "c.npz", members, compression)
    with pytest.raises(InputError, match=expected) as caught:
        load_arrays(tmp_path / "c.npz")
    assert "\n" not in str(caught.value)


def test_refuses_a_missing_file_and_a_directory(tmp_path):
    with pytest.raises(InputError, match="there is no checkpoint"):
        load_arrays(tmp_path / "c.npz")
    with pytest.raises(InputError, match="directory"):
        load_arrays(tmp_path)


def test_read_into_lists_all_differences_and_writes_nothing():
    mine = {"a": np.zeros(3), "b": np.zeros((2, 2)), "c": np.zeros(1), "e": np.zeros(2)}
    theirs = {"p.a": np.ones(3), "p.b": np.ones((2, 3)), "p.d": np.ones(1), "p.e": np.ones(2, np.float32)}
    theirs["q.x"] = np.ones(1)
    with pytest.raises(InputError) as caught:
        read_into(mine, theirs, "p.", "model")
    b = "b is float64 (2, 3), expected float64 (2, 2)"
    for expected in (b, "c is missing", "d is not part of the model", "e is float32"):
        assert expected in str(caught.value)
    assert not any(array.any() for array in mine.values())


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_read_into_refuses_nan_and_infinity_and_writes_nothing(value, dtype):
    mine = {"a": np.zeros(3, dtype), "w": np.zeros((300, 400), dtype)}
    theirs = {f"p.{name}": np.ones_like(array) for name, array in mine.items()}
    theirs["p.w"][250, 7] = value
    with pytest.raises(InputError, match=rf"the checkpoint cannot be used: p\.w holds {value} at \[250, 7\]"):
        read_into(mine, theirs, "p.", "model")
    assert not any(array.any() for array in mine.values())


def test_read_into_lists_a_few_of_many_differences_and_counts_the_rest():
    mine = {f"blocks.{i}.attention.w_q": np.zeros(2) for i in range(2000)}
    with pytest.raises(InputError, match=r"blocks\.0\.attention\.w_q is missing.*; \.\.\. and 19\d\d more") as caught:
        read_into(mine, {"p." + "x" * 10_000: np.zeros(2)}, "p.", "model")
    assert len(str(caught.value)) < 400
