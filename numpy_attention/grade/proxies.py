"""Functions, layers and caches that are in another process, with the manners of those that are here.

    Function    f(x, w) -> y, cache        f.peak_memory(x, w)
    Instance    a layer, with `parameters`, `forward` and `backward`; or an optimizer, with `step`
    Cache       what a forward leaves for its backward: it can be copied and compared, but not be looked into

What is changed there in place is changed here too, in the very arrays that were handed over.
"""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np

from numpy_attention.grade.wire import Parts, WireError, as_tree, from_tree

Answer = tuple[dict[str, Any], list[np.ndarray]]


class Elsewhere(Protocol):
    """The other process (`remote.Remote`)."""

    released: list[int]

    def ask(self, form: dict[str, Any], arrays: list[np.ndarray]) -> Answer:
        """Send a request and wait for its reply."""

    def garbled(self, error: Exception) -> BaseException:
        """What to raise at a reply that makes no sense: it is the end."""


class Kept:
    """Something that stays there by number; `watched` are our arrays from which it was made."""

    __slots__ = ("number", "remote", "watched")

    def __init__(self, remote: Elsewhere, number: int, watched: list[np.ndarray]) -> None:
        self.remote, self.number, self.watched = remote, number, watched

    def __del__(self) -> None:
        self.remote.released.append(self.number)

    def __eq__(self, other: object) -> bool:
        """Equal to the last bit in all that it holds, as the other process says."""
        if not isinstance(other, Kept):
            return False
        return self.remote.ask({"do": "same", "two": [self.number, other.number]}, [])[0].get("same") is True

    def __hash__(self) -> int:
        return self.number

    def copied(self, arrays: list[np.ndarray]) -> int:
        """The number of a copy, on other arrays if it has some."""
        reply, _ = self.remote.ask({"do": "copy", "on": self.number}, arrays)
        if not isinstance(reply.get("number"), int):
            raise self.remote.garbled(ValueError("a copy without a number"))
        return int(reply["number"])


class Cache(Kept):
    """What a forward leaves for its backward."""

    __slots__ = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> "Cache":
        return Cache(self.remote, self.copied([]), [])


class Function:
    """A function of the file; that of a forward gives a cache as the second of its two results."""

    def __init__(self, remote: Elsewhere, name: str, pair: bool) -> None:
        self.remote, self.pair = remote, pair
        self.__name__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it over there."""
        return call(self.remote, {"name": self.__name__, "pair": self.pair}, args, kwargs)

    def peak_memory(self, *args: Any) -> int:
        """The most bytes that a call holds at once, as the other process says."""
        peak = call(self.remote, {"name": self.__name__, "measured": True}, args, {})
        return peak if isinstance(peak, int) else 0


class Instance(Kept):
    """An object of a class of the file; `own` are the arrays of a layer, by their dotted names."""

    __slots__ = ("names", "own")

    def __init__(
        self, remote: Elsewhere, number: int, watched: list[np.ndarray], own: dict[str, np.ndarray], names: list[str]
    ) -> None:
        super().__init__(remote, number, watched)
        self.own, self.names = SimpleNamespace(**own), names

    def __deepcopy__(self, memo: dict[int, Any]) -> "Instance":
        own = {name: memo[id(array)] if id(array) in memo else array.copy() for name, array in vars(self.own).items()}
        return type(self)(self.remote, self.copied(list(own.values())), [], own, self.names)

    def parameters(self) -> dict[str, np.ndarray]:
        """Those of its arrays that learn."""
        return {name: getattr(self.own, name) for name in self.names}

    def arrays(self) -> Iterator[tuple[str, Any, str]]:
        """Every array: its name, what holds it, and its name there."""
        for name in vars(self.own):
            yield name, self.own, name

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As the layer's own."""
        return self._method("forward", args, kwargs)

    def backward(self, *args: Any, **kwargs: Any) -> Any:
        """As the layer's own."""
        return self._method("backward", args, kwargs)

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """As the optimizer's own."""
        return self._method("step", args, kwargs)

    def _method(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return call(self.remote, {"name": name, "on": self.number, "pair": name == "forward"}, args, kwargs, self)


class Class:
    """A class of the file; an object of it is made over there, and an `Instance` stands for it here."""

    def __init__(self, remote: Elsewhere, name: str) -> None:
        self.remote = remote
        self.__name__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Instance:
        """Make one."""
        number, watched, own, names = call(self.remote, {"name": self.__name__, "new": True}, args, kwargs)
        kind = type(self.__name__, (Instance,), {"__slots__": ()})
        made: Instance = kind(self.remote, number, watched, own, names)
        return made


def call(
    remote: Elsewhere, form: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any], on: Instance | None = None
) -> Any:
    """Call something over there, and change here what that changed.

    Raises: what the function raised; AssertionError where it gave an array another shape in place.
    """
    sent, used = Parts(), {0: [], **({on.number: on.watched} if on is not None else {})}

    def number_of(value: Any) -> int | None:
        if not isinstance(value, Kept):
            return None
        used[value.number] = value.watched
        return value.number

    trees = {"args": as_tree(list(args), sent, number_of), "kwargs": as_tree(kwargs, sent, number_of)}
    sent.arrays += vars(on.own).values() if on is not None else []
    used[0] = sent.arrays
    reply, arrays = remote.ask({"do": "call", **form, **trees}, sent.arrays)
    found = Parts(arrays)
    try:
        if "peak" in reply:
            return reply["peak"]
        changed = [(used[number][i], from_tree(tree, found, _none)) for number, i, tree in reply["changed"]]
        for rng, state in zip(sent.generators, reply["generators"]):
            rng.bit_generator.state = state
        if form.get("new"):
            own, names = from_tree(reply["own"], found, _none), list(reply["parameters"])
            if not set(names) <= own.keys() or not all(isinstance(one, np.ndarray) for one in own.values()):
                raise ValueError("a layer without its arrays")
            answer: Any = int(reply["number"]), sent.arrays, own, names
        else:
            answer = from_tree(reply["answer"], found, lambda number: Cache(remote, number, sent.arrays))
        for mine, theirs in changed:
            if mine.shape == theirs.shape:
                mine[...] = theirs
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, WireError) as error:
        raise remote.garbled(error) from None
    reshaped = [mine for mine, theirs in changed if mine.shape != theirs.shape]
    assert not reshaped, f"{form['name']} gave an array of its caller's, {reshaped[0].shape}, another shape in place"
    return answer


def _none(number: int) -> Any:
    raise LookupError(f"nothing has the number {number} here")
