"""Draws the mutations to try: a fixed number for each package, with all kinds in turn, ordered by a hash of the names.

A drawn mutation is still drawn after other lines change.
"""

import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path

from tests.mutations.changes import Mutation
from tests.mutations.places import token_mutations

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "numpy_attention"
PACKAGES = {"layers": 60, "models": 80, "training": 70, "gradcheck": 100, "runs": 70, "pretrained": 50}
SEED = 0


def mutations_of(package: str) -> Iterator[Mutation]:
    """All mutations of a package, file by file."""
    for path in sorted((PACKAGE / package).rglob("*.py")):
        file = path.relative_to(PACKAGE).with_suffix("").as_posix()
        for mutation in token_mutations(file, path.read_text("utf-8")):
            if "torch" not in mutation.place:  # PyTorch is not installed in every run
                yield mutation


def drawn(package: str, count: int, seed: int = SEED) -> list[Mutation]:
    """`count` mutations of a package, with equally many of each kind if possible."""
    kinds: dict[str, list[Mutation]] = {}
    for mutation in sorted(mutations_of(package), key=lambda one: _hash(one, seed)):
        kinds.setdefault(mutation.kind, []).append(mutation)
    in_turn = itertools.zip_longest(*(kinds[kind] for kind in sorted(kinds)))
    found = [one for turn in in_turn for one in turn if one is not None]
    return found[:count]


def _hash(mutation: Mutation, seed: int) -> bytes:
    return hashlib.sha256(f"{seed} {mutation.name}".encode()).digest()
