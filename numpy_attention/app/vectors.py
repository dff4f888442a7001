"""vectors and compare: test vectors for a backward in any language, and what is wrong with its results."""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from numpy_attention.errors import InputError
from numpy_attention.files import atomic_write
from numpy_attention.gradcheck.report import GradientError
from numpy_attention.tutor.catalogue import CATALOGUE
from numpy_attention.tutor.checks import select_entries
from numpy_attention.tutor.reference import reference_case
from numpy_attention.tutor.vector_files import read_case, read_results, write_case


def vectors(a: argparse.Namespace) -> int:
    """Write one case, or all; or list their names."""
    if a.list:
        for entry in select_entries([a.name] if a.name else None):
            print(f"{entry.name:<60} {entry.spec}")
    elif a.all is not None and not (a.name or a.out or a.sizes or a.variant):
        index = {}
        for name in CATALOGUE:
            case = reference_case(name, seed=a.seed, dtype=a.dtype)
            if not hasattr(case.layer, "loss"):  # not a model
                index[name] = re.sub(r"\W+", "-", name) + ("" if a.format == "folder" else f".{a.format}")
                write_case(case, a.all / index[name])
        with atomic_write(a.all / "index.json") as temporary:
            temporary.write_text(json.dumps(index, indent=1), "utf-8")
        print(f"{len(index)} cases in {a.all}; index.json lists them")
    elif a.all is not None or a.name is None or a.out is None:
        raise InputError("vectors: give a name and a file, as in `softmax --out case.npz`; or --list, or --all FOLDER")
    elif a.out.suffix not in ("", ".npz", ".safetensors") or a.out == Path():
        raise InputError(f"vectors: --out must be a .npz or .safetensors file, or a folder without a dot, got {a.out}")
    else:
        name = f"{a.name}: {a.variant}" if a.variant else a.name
        sizes = dict(_size(one) for one in a.sizes.split(",")) if a.sizes else {}
        case = reference_case(name, seed=a.seed, sizes=sizes, dtype=a.dtype)
        write_case(case, a.out)
        print(f"{case.entry.name} in {a.out}: {', '.join(f'{name} {one.shape}' for name, one in case.arrays.items())}")
    return 0


def compare(a: argparse.Namespace) -> int:
    """Compare the results of another program with a case. The exit code is 1 if an array is wrong."""
    case = read_case(a.case)
    arrays, dtypes = read_results(a.mine, case)
    try:
        print(case.compare(arrays, a.dtype or dtypes))
    except GradientError as error:
        print(error)
        return 1
    return 0


def _size(text: str) -> tuple[str, Any]:
    name, _, numbers = text.partition("=")
    found = [int(number) for number in numbers.split("x") if number.strip().isdecimal()]
    if len(found) != 1 + numbers.count("x") or (len(found) > 1 and name.strip() != "..."):
        raise InputError(f"--sizes must be like T=16,d=64 or ...=2x3,d=64, got {text!r}")
    return name.strip(), found if name.strip() == "..." else found[0]
