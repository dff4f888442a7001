"""Reference cases as files, in one of three formats; another program writes its results in one of them, too.

    case.safetensors   the arrays, and in the header, under the key "case", the description as JSON
    case.npz           the arrays, and the description as a text called case
    any other name     a folder: case.json, and a file for each array, q.bin: little-endian numbers, row by row

Of another program's file only the results are read: y, dq, dk. A raw result has the dtype and the shape of the case.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention.errors import InputError
from numpy_attention.files import atomic_write, reading, writing
from numpy_attention.gradcheck.problem import Arrays
from numpy_attention.pretrained.c33_gguf_files import package, refused
from numpy_attention.pretrained.c33a_folders import read_safetensors
from numpy_attention.tutor.reference import ReferenceCase, reference_case

KINDS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}  # in a safetensors file


def write_case(case: ReferenceCase, path: Path) -> None:
    """Write a case; the ending of the path gives the format.

    Raises: InputError without the package safetensors, and for a place where nothing can be written.
    """
    text, arrays = json.dumps(case.about(), indent=1, default=_in_json), case.arrays
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".safetensors":
            save = package("safetensors.numpy", "safetensors files").save_file
            with atomic_write(path) as temporary:
                save({name: np.ascontiguousarray(one) for name, one in arrays.items()}, temporary, {"case": text})
        elif path.suffix == ".npz":
            with atomic_write(path) as temporary:
                np.savez(temporary, **arrays, case=np.array(text))
        else:
            path.mkdir(exist_ok=True)
            if others := [file.name for file in path.iterdir() if file.stem not in arrays and file.name != "case.json"]:
                raise InputError(f"{path} also holds {others[0]}; give an empty folder, or a .npz or .safetensors file")
            files = {f"{name}.bin": one.astype(one.dtype.newbyteorder("<")).tobytes() for name, one in arrays.items()}
            for name, data in {**files, "case.json": text.encode()}.items():  # with the last one, the case is whole
                with atomic_write(path / name) as temporary:
                    temporary.write_bytes(data)


def _in_json(value: Any) -> Any:
    """An option that is no number or text: an array, or the name of a function."""
    return value.tolist() if isinstance(value, np.ndarray) else getattr(getattr(value, "func", value), "__name__", "")


def read_case(path: Path) -> ReferenceCase:
    """The case in a file; its numbers are drawn again, and must be those of the file.

    Raises: InputError for a file that is missing, damaged, changed, or of a version that draws other numbers.
    """
    place = path if path.suffix in (".safetensors", ".npz") else path / "case.json"
    with reading(place), refused(f"{place} is damaged or not a case"):
        if path.suffix == ".safetensors":
            text = read_safetensors(path)[0]["case"]
        elif path.suffix == ".npz":
            with open(path, "rb") as file:
                text = str(np.load(file, allow_pickle=False)["case"])
        else:
            text = place.read_text("utf-8")
        about = json.loads(text)
        sizes = {name: tuple(size) if isinstance(size, list) else size for name, size in about["sizes"].items()}
        case = reference_case(about["name"], seed=about["seed"], sizes=sizes, dtype=about["dtype"])
    given = {name: one for name, one in case.arrays.items() if name not in case.results}
    found, _ = _arrays(path, given)
    for name, one in given.items():
        if name not in found or not np.array_equal(found[name], one):
            reason = f"its {name} was changed, or version {about.get('version')} drew other numbers"
            raise InputError(f"{path} cannot be used: {reason}; write the case again")
    return case


def read_results(path: Path, case: ReferenceCase) -> tuple[Arrays, dict[str, str]]:
    """The results of a program in a file or folder, and the dtype of each.

    Raises: InputError for a file that is missing, damaged or without a result, an unknown array, and a raw array of a
    wrong length.
    """
    found, dtypes = _arrays(path, case.results)
    for name in found.keys() - {*case.arrays, "case"}:
        raise InputError(f"{path} holds {name}; the results of {case.entry.name} are {', '.join(case.results)}")
    if not found.keys() & case.results.keys():
        raise InputError(f"{path} holds no result of {case.entry.name}; its results are {', '.join(case.results)}")
    return {name: found[name] for name in case.results if name in found}, dtypes


def _arrays(path: Path, like: Arrays) -> tuple[dict[str, Any], dict[str, str]]:
    """The arrays in a file that are also in `like` (None for others), and the dtypes of all."""
    with reading(path), refused(f"{path} cannot be used"):
        if path.suffix == ".safetensors":
            stored = read_safetensors(path)[1]
            found = {name: one.read() if name in like else None for name, one in stored.items()}
            return found, {name: KINDS.get(one.dtype, one.dtype) for name, one in stored.items()}
        if path.suffix == ".npz":
            with open(path, "rb") as file:
                arrays = dict(np.load(file, allow_pickle=False))
        else:
            raw = (one for one in sorted(path.iterdir()) if one.suffix == ".bin")
            arrays = {one.stem: _raw(one, like[one.stem]) if one.stem in like else np.zeros(0) for one in raw}
    return arrays, {name: one.dtype.name for name, one in arrays.items()}


def _raw(file: Path, like: np.ndarray) -> np.ndarray:
    """The numbers in a file, in the dtype and shape of an array of the case."""
    data = file.read_bytes()
    if len(data) != like.nbytes:
        raise ValueError(f"{file.name} has {len(data)} bytes; {like.size} numbers of {like.dtype} are {like.nbytes}")
    return np.frombuffer(data, like.dtype.newbyteorder("<")).astype(like.dtype).reshape(like.shape)
