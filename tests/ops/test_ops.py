"""Rules for all of Part I: who owns an array, and the order of the public names."""

import inspect
import re
from typing import Any

import numpy as np

from numpy_attention import ops


def arrays_in(tree: Any) -> list[np.ndarray]:
    if isinstance(tree, (tuple, list)):
        return [array for one in tree for array in arrays_in(one)]
    return [tree] if isinstance(tree, np.ndarray) and tree.size else []


def test_public_names_are_in_the_order_of_the_chapters() -> None:
    def place(name: str) -> tuple[int, bool]:
        head = inspect.getdoc(inspect.getmodule(getattr(ops, name))) or ""
        found = re.match(r"Chapter (\d+)(, appendix)?", head)
        assert found
        return int(found[1]), bool(found[2])

    places = [place(name) for name in ops.__all__]
    assert places == sorted(places)
