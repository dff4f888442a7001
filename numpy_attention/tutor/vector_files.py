"""Reference cases as files, in one of three formats; another program writes its results in one of them, too.

    case.safetensors   the arrays, and in the header, under the key "case", the description as JSON
    case.npz           the arrays, and the description as a text called case
    any other name     a folder: case.json, and a file for each array, q.bin: little-endian numbers, row by row

Of another program's file only the results are read: y, dq, dk. A raw result has the dtype and the shape of the case.
"""

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

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
    text, arrays = json.dumps(case.about() | {"checksum": checksum(case)}, indent=1, default=_in_json), case.arrays
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
            files = {f"{name}.bin": one.astype(one.dtype.newbyteorder("<")).tobytes() for name, one in arrays.items()}
            for name, data in {**files, "case.json": text.encode()}.items():  # with the last one, the case is whole
                with atomic_write(path / name) as temporary:
                    temporary.write_bytes(data)


def checksum(case: ReferenceCase) -> int:
    """The CRC-32 of the bytes of inputs, options and dy."""
    return zlib.crc32(b"".join(one.tobytes() for name, one in case.arrays.items() if name not in case.results))


def _in_json(value: Any) -> Any:
    """An option that is no number or text: an array, or the name of a function."""
    return value.tolist() if isinstance(value, np.ndarray) else getattr(getattr(value, "func", value), "__name__", "")


def read_case(path: Path) -> ReferenceCase:
    """The case that a file describes; its numbers are drawn again.

    Raises: InputError for a file that is missing, damaged, or of a version that draws other numbers.
    """
    with reading(path), refused(f"{path} is not a case"):
        if path.suffix == ".safetensors":
            text = read_safetensors(path)[0]["case"]
        elif path.suffix == ".npz":
            with open(path, "rb") as file:
                text = str(np.load(file, allow_pickle=False)["case"])
        else:
            text = (path / "case.json").read_text("utf-8")
        about = json.loads(text)
        sizes = {name: tuple(size) if isinstance(size, list) else size for name, size in about["sizes"].items()}
        case = reference_case(about["name"], seed=about["seed"], sizes=sizes, dtype=about["dtype"])
        if checksum(case) != about["checksum"]:
            raise ValueError(f"version {about['version']} drew other numbers; write the case again")
    return case


def read_results(path: Path, case: ReferenceCase) -> tuple[Arrays, dict[str, str]]:
    """The results of a program in a file or folder, and the dtype of each.

    Raises: InputError for a file that is missing or damaged, an unknown array, and a raw array of a wrong length.
    """
    kinds, arrays = dict[str, str](), dict[str, Any]()
    with reading(path), refused(f"{path} cannot be used"):
        if path.suffix == ".safetensors":
            stored = read_safetensors(path)[1]
            kinds = {name: KINDS.get(one.dtype, one.dtype) for name, one in stored.items()}
            arrays = {name: one.read() if name in case.results else None for name, one in stored.items()}
        elif path.suffix == ".npz":
            with open(path, "rb") as file:
                arrays = dict(np.load(file, allow_pickle=False))
        else:
            raw = (one for one in sorted(path.iterdir()) if one.suffix == ".bin")
            arrays = {one.stem: _raw(one, case.arrays.get(one.stem)) for one in raw}
        for name in arrays.keys() - {*case.arrays, "case"}:
            raise ValueError(f"it holds {name}; the results of {case.entry.name} are {', '.join(case.results)}")
    arrays = {name: one for name, one in arrays.items() if name in case.results}
    return arrays, {name: kinds.get(name, one.dtype.name) for name, one in arrays.items()}


def _raw(file: Path, like: np.ndarray | None) -> np.ndarray | None:
    """The numbers in a file, in the dtype and shape of an array of the case."""
    if like is None:
        return None
    found = np.fromfile(file, like.dtype.newbyteorder("<"))
    if found.size != like.size:
        raise ValueError(f"{file.name} holds {found.size} numbers of {like.dtype}, not {like.size}")
    return found.reshape(like.shape)
