"""A known mistake: a chapter with a few lines changed, from a page in pages.

A mistake with `diagnosis` is in the gallery: the full check must catch it on the entries of its op, and its report must
contain this text. A mistake without `diagnosis` is a likely wrong answer to an exercise: the tutor must recognize it.
"""

import sys
import types
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from numpy_attention.shapes import Sizes
from numpy_attention.tutor.change import changed_module, with_functions_of
from numpy_attention.tutor.entry import Entry
from numpy_attention.tutor.page import Edit, MistakeText


@dataclass(frozen=True)
class Mistake(MistakeText):
    """A mistake that can be made: `home` is the module of the right op, layer or function."""

    home: types.ModuleType
    part: "Mistake | None" = None  # the mistake of an op that the functions of `home` call; it has the edits

    def in_a_part_of(self, covers: str, home: types.ModuleType) -> "Mistake":
        """The same mistake inside a larger function: of the softmax, inside attention."""
        return replace(self, covers=covers, home=home, part=self, edits=())

    @cached_property
    def _changed(self) -> list[types.ModuleType]:
        """The modules with the edits. A method may belong to a base class in another module."""
        right = getattr(self.home, self.covers)
        homes = {one.__name__: sys.modules[one.__module__] for one in right.__mro__} if isinstance(right, type) else {}
        edits: dict[types.ModuleType, list[Edit]] = {self.home: []} if self.part else {}
        for edit in self.edits:
            edits.setdefault(homes.get(edit.where.partition(".")[0], self.home), []).append(edit)
        changed = [changed_module(home, of_home, self.name, self.page) for home, of_home in edits.items()]
        if part := self.part:
            for name in (part.covers, f"{part.covers}_backward"):
                if hasattr(changed[0], name):
                    setattr(changed[0], name, part.made(name))
        return changed

    def and_also(self, other: "Mistake") -> "Mistake":
        """Both mistakes in one function.

        Raises: ValueError if both change the same lines.
        """
        if self.home is not other.home or (self.part and other.part):
            raise ValueError(f"{self.name} and {other.name} cannot be made together")
        return replace(self, edits=self.edits + other.edits, part=self.part or other.part)

    def made(self, name: str) -> Any:
        """The op, backward, function or class with this name, with the mistake."""
        right = getattr(self.home, name)
        return self.class_with_mistake(right) if isinstance(right, type) else getattr(self._changed[0], name)

    def class_with_mistake(self, cls: type) -> type:
        """A subclass with the mistake."""
        return with_functions_of(cls, self._changed)

    def spoil(self, entry: Entry) -> Entry:
        """A copy of the entry that contains the mistake."""
        build = entry.build
        if build is None:
            return replace(entry, op=self.made(self.covers), op_backward=self.made(f"{self.covers}_backward"))

        def build_with_mistake(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> Any:
            layer = build(sizes, rng, dtype)
            layer.__class__ = self.class_with_mistake(type(layer))
            return layer

        return replace(entry, build=build_with_mistake)
