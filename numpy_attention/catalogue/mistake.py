"""A known mistake: a wrong op, backward, layer or function, which takes the place of the right one.

    @backward_of("softmax", says="...")            takes the place of softmax_backward
    @op_of("layer_norm", its_backward, says="...") takes the place of the op and of its backward
    @method_of("EncoderBlock", "backward")         takes the place of a method of a layer
    @stands_in_for("Linear")                       takes the place of a whole layer, or of a class or function that
                                                   is in no catalogue, such as an optimizer

The first paragraph of the docstring says why it is wrong, the one that begins `Hides:` why a test may miss it. `says`
are words that the report of the full check must contain. A mistake with `says` is in docs/gallery.md: the full check
must catch it on the entries of its op, and the weaker checks are tried on it. A mistake without `says` is a likely
wrong answer to an exercise: the tutor must recognize it.
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
    """One known mistake; `covers` is the op, layer or function that it spoils."""

    name: str
    covers: str
    wrong: str
    hides: str
    page: str  # the module that holds it
    says: str = ""
    op: Callable[..., Any] | None = None
    op_backward: Callable[..., Any] | None = None
    method: str = ""
    stand_in: Any = None

    def spoil(self, entry: Entry) -> Entry:
        """The same entry with the mistake in it."""
        if self.stand_in is None:
            return replace(entry, op=self.op or entry.op, op_backward=self.op_backward or entry.op_backward)
        build = entry.build
        assert build is not None, f"{self.name} spoils a layer, and {entry.name} is not a layer"

        def build_spoiled(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> Any:
            layer = build(sizes, rng, dtype)
            layer.__class__ = self.spoiled_class(type(layer))
            return layer

        return replace(entry, build=build_spoiled)

    def spoiled_class(self, cls: type) -> type:
        """A layer's class with the mistake in it."""
        return type(cls.__name__, (cls,), {self.method: self.stand_in}) if self.method else self.stand_in


MISTAKES: dict[str, Mistake] = {}


def backward_of(covers: str, says: str = "") -> Callable[[Made], Made]:
    """A wrong backward for a right op."""
    return _enter(covers, "op_backward", says=says)


def op_of(covers: str, op_backward: Callable[..., Any] | None = None, says: str = "") -> Callable[[Made], Made]:
    """A wrong op; no gradient check can catch it if its backward fits it."""
    return _enter(covers, "op", op_backward=op_backward, says=says)


def method_of(covers: str, method: str, says: str = "") -> Callable[[Made], Made]:
    """A wrong method of a layer or model."""
    return _enter(covers, "stand_in", method=method, says=says)


def stands_in_for(covers: str, says: str = "") -> Callable[[Made], Made]:
    """A wrong class or function: a layer, an optimizer, a mask, a sampler."""
    return _enter(covers, "stand_in", says=says)


def mistakes_of(*covers: str) -> list[Mistake]:
    """All known mistakes in these ops, layers or functions."""
    return [mistake for mistake in MISTAKES.values() if mistake.covers in covers]


def _enter(covers: str, part: str, **others: Any) -> Callable[[Made], Made]:
    """A decorator that enters a function or class in MISTAKES, with the two texts of its docstring."""

    def add(made: Made) -> Made:
        wrong, _, hides = (" ".join(text.split()) for text in (inspect.getdoc(made) or "").partition("Hides:"))
        name = made.__name__
        assert wrong, f"mistake {name}: its docstring must say why it is wrong"
        assert hides, f"mistake {name}: its docstring must say, after 'Hides:', how it goes unnoticed"
        assert name not in MISTAKES, f"two mistakes are called {name}"
        parts: dict[str, Any] = {part: made, **others}
        MISTAKES[name] = Mistake(name, covers, wrong, hides, made.__module__, **parts)
        return made

    return add
