"""What a mutant is: a mistake somebody made, in our contracts, with the place where it belongs.

    @backward_of("softmax")                        takes the place of softmax_backward
    @op_of("layer_norm", its_backward)             takes the place of the op and of its backward
    @method_of("EncoderBlock", "backward")         takes the place of a method of a layer
    @stands_in_for("Linear")                       takes the place of a whole layer, or of a class or function that
                                                   is in no catalogue, such as an optimizer

The first paragraph of the docstring says why it is wrong, the one that begins `Hides:` why nobody notices.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from numpy_attention.catalogue.entry import Entry
from numpy_attention.gradcheck.spec import Sizes

Made = TypeVar("Made", bound=Callable[..., Any])


@dataclass(frozen=True)
class Mutant:
    """One known mistake; `covers` is the op, layer or function that it spoils."""

    name: str
    covers: str
    wrong: str
    hides: str
    op: Callable[..., Any] | None = None
    op_backward: Callable[..., Any] | None = None
    method: str = ""
    stand_in: Any = None

    def spoil(self, entry: Entry) -> Entry:
        """The same line of the catalogue with the mistake in it."""
        if self.stand_in is None:
            return replace(entry, op=self.op or entry.op, op_backward=self.op_backward or entry.op_backward)
        build = entry.build
        assert build is not None, f"{self.name} spoils a layer, and {entry.name} is none"

        def build_spoiled(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> Any:
            layer = build(sizes, rng, dtype)
            layer.__class__ = self.spoiled_class(type(layer))
            return layer

        return replace(entry, build=build_spoiled)

    def spoiled_class(self, cls: type) -> type:
        """A layer's class with the mistake in it."""
        return type(cls.__name__, (cls,), {self.method: self.stand_in}) if self.method else self.stand_in


MUTANTS: dict[str, Mutant] = {}


def backward_of(covers: str) -> Callable[[Made], Made]:
    """A wrong backward for a right op."""
    return enter(MUTANTS, "mutants", covers, "op_backward")


def op_of(covers: str, op_backward: Callable[..., Any] | None = None) -> Callable[[Made], Made]:
    """A wrong op; with a backward that fits it, no gradient check can tell."""
    return enter(MUTANTS, "mutants", covers, "op", op_backward=op_backward)


def method_of(covers: str, method: str) -> Callable[[Made], Made]:
    """A wrong method of a layer or model."""
    return enter(MUTANTS, "mutants", covers, "stand_in", method=method)


def stands_in_for(covers: str) -> Callable[[Made], Made]:
    """A wrong class or function as a whole: a layer, an optimizer, a mask, a way to generate."""
    return enter(MUTANTS, "mutants", covers, "stand_in")


def mutants_of(*covers: str) -> list[Mutant]:
    """All mutants of these ops, layers or functions."""
    return [mutant for mutant in MUTANTS.values() if mutant.covers in covers]


def enter(table: dict[str, Mutant], kind: str, covers: str, part: str, **others: Any) -> Callable[[Made], Made]:
    """Enter what is decorated into a table, as this part of a mutant of its name, with the words of its docstring."""

    def add(made: Made) -> Made:
        wrong, _, hides = (" ".join(text.split()) for text in (inspect.getdoc(made) or "").partition("Hides:"))
        name = made.__name__
        assert wrong, f"mutant {name}: its docstring must say why it is wrong"
        assert hides, f"mutant {name}: its docstring must say, after 'Hides:', how it goes unnoticed"
        assert name not in table, f"two {kind} are called {name}"
        parts: dict[str, Any] = {part: made, **others}
        table[name] = Mutant(name, covers, wrong, hides, **parts)
        return made

    return add
