"""A known mistake: a wrong op, backward, layer or function, which replaces the right one.

    @backward_of("softmax", diagnosis="...")            replaces softmax_backward
    @op_of("layer_norm", its_backward, diagnosis="...") replaces the op and its backward
    @method_of("EncoderBlock", "backward")         replaces a method of a layer
    @stands_in_for("Linear")                       replaces a whole layer, or a class or function without an entry in
                                                   the catalogue, such as an optimizer

The first paragraph of the docstring explains the mistake. The paragraph that begins with `Hides:` explains why a test
may miss it. `diagnosis` is a text that the report of the full check must contain. A mistake with `diagnosis` is in
docs/gallery.md: the full check must catch it on the entries of its op. A mistake without `diagnosis` is a likely wrong
answer to an exercise: the tutor must recognize it.
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
class Mistake:
    """One known mistake; `covers` is the name of the op, layer or function that contains it."""

    name: str
    covers: str
    wrong: str
    hides: str
    page: str  # the name of the module that defines it
    diagnosis: str = ""
    op: Callable[..., Any] | None = None
    op_backward: Callable[..., Any] | None = None
    method: str = ""
    stand_in: Any = None

    def spoil(self, entry: Entry) -> Entry:
        """A copy of the entry that contains the mistake."""
        if self.stand_in is None:
            return replace(entry, op=self.op or entry.op, op_backward=self.op_backward or entry.op_backward)
        build = entry.build
        assert build is not None, f"{self.name} is a mistake of a layer, but {entry.name} is not a layer"

        def build_with_mistake(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> Any:
            layer = build(sizes, rng, dtype)
            layer.__class__ = self.class_with_mistake(type(layer))
            return layer

        return replace(entry, build=build_with_mistake)

    def class_with_mistake(self, cls: type) -> type:
        """A subclass of the layer's class that contains the mistake."""
        return type(cls.__name__, (cls,), {self.method: self.stand_in}) if self.method else self.stand_in


MISTAKES: dict[str, Mistake] = {}


def backward_of(covers: str, diagnosis: str = "") -> Callable[[Made], Made]:
    """Registers a wrong backward of a right op."""
    return _enter(covers, "op_backward", diagnosis=diagnosis)


def op_of(covers: str, op_backward: Callable[..., Any] | None = None, diagnosis: str = "") -> Callable[[Made], Made]:
    """Registers a wrong op; if the backward matches the wrong op, no gradient check catches the mistake."""
    return _enter(covers, "op", op_backward=op_backward, diagnosis=diagnosis)


def method_of(covers: str, method: str, diagnosis: str = "") -> Callable[[Made], Made]:
    """Registers a wrong method of a layer or model."""
    return _enter(covers, "stand_in", method=method, diagnosis=diagnosis)


def stands_in_for(covers: str, diagnosis: str = "") -> Callable[[Made], Made]:
    """Registers a wrong class or function: a layer, an optimizer, a mask, a sampler."""
    return _enter(covers, "stand_in", diagnosis=diagnosis)


def mistakes_of(*covers: str) -> list[Mistake]:
    """All known mistakes of these ops, layers or functions."""
    return [mistake for mistake in MISTAKES.values() if mistake.covers in covers]


def _enter(covers: str, part: str, **others: Any) -> Callable[[Made], Made]:
    """A decorator that adds a function or class, and the two texts of its docstring, to MISTAKES."""

    def add(made: Made) -> Made:
        wrong, _, hides = (" ".join(text.split()) for text in (inspect.getdoc(made) or "").partition("Hides:"))
        name = made.__name__
        assert wrong, f"mistake {name}: the docstring must explain the mistake"
        assert hides, f"mistake {name}: the docstring must explain, after 'Hides:', why a test may miss the mistake"
        assert name not in MISTAKES, f"two mistakes have the name {name}"
        parts: dict[str, Any] = {part: made, **others}
        MISTAKES[name] = Mistake(name, covers, wrong, hides, made.__module__, **parts)
        return made

    return add
