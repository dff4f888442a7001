"""An exercise: what its file must define, and the inputs on which the tutor tries that.

    Try         one set of inputs for an op with its backward, or for a layer class: a small entry of the catalogue
    Quiz        questions to a function without a gradient: `ask(rng)` yields each question in words, and its arguments
    Trial       a check of a function or class without a gradient, in place of questions
    Exercise    one file: its tries, quizzes and trials

A page also holds the right answers (`OURS`), which are tried in the same way.
"""

import copy
import inspect
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from numpy_attention.catalogue.compare import same
from numpy_attention.catalogue.entry import Entry
from numpy_attention.catalogue.mistake import Mistake, mistakes_of
from numpy_attention.gradcheck.problem import Problem
from numpy_attention.gradcheck.spec import Sizes

Check = Callable[[Any, int], None]  # raises AssertionError at a wrong answer; the int is a seed
Questions = Iterator[tuple[str, tuple[Any, ...]]]
SHOWN = 24  # an array of more numbers is shown by its shape
SEEDS = (0, 1, 2)
OF_DTYPE = " must be of "
WIDENED = (
    "np.zeros makes float64: use np.zeros_like(...), or np.zeros(..., dtype=...dtype). np.sqrt of a whole number is of "
    "float64, too, and widens float32; math.sqrt does not."
)


@dataclass(frozen=True)
class Try:
    """One set of inputs: of an op `name` and `name_backward`, or, with `build`, of a layer class."""

    name: str
    spec: str
    variant: str = ""
    options: Any = field(default_factory=dict)
    build: Callable[[type, Sizes, np.random.Generator, Any], Any] | None = None
    at_least: Mapping[str, int] = field(default_factory=dict)
    fixed: Mapping[str, int] = field(default_factory=dict)

    def entry(self, module: Any) -> Entry:
        """The entry for the functions of a module: a student's file, or our own."""
        made, build = getattr(module, self.name), self.build
        if build is None:
            own = {"op": made, "op_backward": getattr(module, f"{self.name}_backward")}
        else:
            own = {"build": lambda sizes, rng, dtype: build(made, sizes, rng, dtype)}
        return Entry(
            f"{self.name}: {self.variant}" if self.variant else self.name, self.name, self.spec,
            options=self.options, at_least=self.at_least, fixed=self.fixed, tolerance=1e-4, **own,
        )


def beside(entry: Entry, right: Entry, seed: int, sizes: Sizes | None) -> Problem:
    """A draw for the checker: the gradients come from a student's backward, the differences from our own forward.

    So the student's forward may compute in any way and in any process; that it agrees with ours is another property.
    """

    def joined(theirs: Problem, ours: Problem) -> Problem:
        def with_options(options: Mapping[str, Any]) -> Problem:
            return joined(theirs.with_options(options), ours.with_options(options))

        return theirs.with_changes(bind=ours.bind, with_options=with_options)

    return joined(*(one.case(seed, np.float64, sizes).problem() for one in (entry, right)))


@dataclass(frozen=True)
class Quiz:
    """Questions, from the simplest to the rarest, and the function that answers them."""

    right: Callable[..., Any]
    ask: Callable[[np.random.Generator], Questions]
    returns: tuple[str, ...] = ()  # the names of the returned values, if it returns a tuple

    @property
    def trials(self) -> dict[str, Check]:
        """Each question in words, with the check that asks it; the seed changes the arguments, not the words."""
        return {words: partial(self.put, words) for words, _ in self.ask(np.random.default_rng(0))}

    def put(self, question: str, made: Callable[..., Any], seed: int) -> None:
        """Ask one question, with the arguments of a seed.

        Raises: AssertionError at a wrong answer, with the arguments and both answers.
        """
        for words, arguments in self.ask(np.random.default_rng(seed)):
            if words != question:
                continue
            given, expected = copy.deepcopy(arguments), self.right(*copy.deepcopy(arguments))
            with np.errstate(all="ignore"):
                answer = made(*given)
            complaint = difference(answer, expected, names=self.returns)
            if complaint or not same(arguments, given):
                names = list(inspect.signature(self.right).parameters)
                numbers = [
                    *(f"  {name} = {shown(one)}" for name, one in zip(names, arguments)),
                    f"  yours: {shown(answer)}", f"  right: {shown(expected)}",
                ]
                raise AssertionError("\n".join([
                    complaint or "the arguments were changed in place; they belong to the caller",
                    *([] if OF_DTYPE in complaint else numbers),  # numbers do not show a dtype
                ]))

    def outcome(self, made: Callable[..., Any]) -> list[Any]:
        """For each question the answers to some seeds; None where the function raises an error."""

        def ask(seed: int) -> list[Any]:
            return [_or_none(made, arguments) for _, arguments in self.ask(np.random.default_rng(seed))]

        return [list(answers) for answers in zip(*map(ask, SEEDS))]


@dataclass(frozen=True)
class Trial:
    """A check of a function without a gradient, and its outcome, which is compared with those of known mistakes."""

    check: Check
    outcome: Callable[[Any], list[np.ndarray]]

    @property
    def trials(self) -> dict[str, Check]:
        """The check, in words."""
        return {"does what it says": self.check}


@dataclass(frozen=True)
class Exercise:
    """One exercise: its tries, and the quiz or trial of each function without a gradient, by name, in `asked`.

    The title, the claim, the hints and the solution are in grade/pages/NAME.md.
    """

    name: str
    tutorial: int  # the number of the tutorial that sets it; exercises have the order of the tutorials
    tries: tuple[Try, ...] = ()
    asked: Mapping[str, Quiz | Trial] = field(default_factory=dict)
    leave_out: tuple[str, ...] = ()  # mistakes in options that this exercise does not have
    memory: Callable[[Any], None] | None = None
    parts: tuple[str, ...] = ()  # backwards and layers of the package that an answer may use
    from_nothing: bool = False  # the student writes the forward too
    theirs_to_write: tuple[str, ...] = ()  # other functions of the package that an answer may not use

    @property
    def trials(self) -> dict[str, dict[str, Check]]:
        """For each function without a gradient its checks, by what they ask in words."""
        return {name: asked.trials for name, asked in self.asked.items()}

    @property
    def needed(self) -> dict[str, str]:
        """What the file must define, and whether it is a function or a class."""
        needed = {name: "class" if name[0].isupper() else "function" for name in self.asked}
        for one in self.tries:
            needed[one.name] = "class" if one.build else "function"
            if one.build is None:
                needed[f"{one.name}_backward"] = "function"
        return needed

    @property
    def subjects(self) -> list[str]:
        """What is graded separately: each function with its backward, each class."""
        return list(dict.fromkeys([*self.asked, *(one.name for one in self.tries)]))

    @property
    def answers(self) -> list[str]:
        """Functions and classes of the package, other than backwards, that an answer may not call."""
        return [*self.asked, *(self.subjects if self.from_nothing else ()), *self.theirs_to_write]

    @property
    def mistakes(self) -> list[Mistake]:
        """The known wrong answers."""
        return [mistake for mistake in mistakes_of(*self.subjects) if mistake.name not in self.leave_out]


def _or_none(made: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        with np.errstate(all="ignore"):
            return made(*copy.deepcopy(arguments))
    except Exception:  # an answer may raise any error
        return None


def difference(answer: Any, expected: Any, what: str = "what it returns", names: tuple[str, ...] = ()) -> str:
    """How an answer differs from the right one, in words; "" if it does not. `names` are those of a tuple's parts."""
    if answer is None:
        return f"{what} is None; is there a `return` at its end?"
    if isinstance(expected, tuple | list):
        if not isinstance(answer, tuple | list):
            return f"{what} must be a {type(expected).__name__} of {len(expected)}, got {type(answer).__name__}"
        if len(answer) != len(expected):
            return f"{what} must hold {len(expected)}, and holds {len(answer)}"
        parts = names or tuple(f"number {i} of {what}" for i in range(len(expected)))
        found = (difference(*three) for three in zip(answer, expected, parts))
        return next(filter(None, found), "")
    if isinstance(expected, dict):
        if not isinstance(answer, dict) or answer.keys() != expected.keys():
            return f"{what} must be a dict with {', '.join(expected)}"
        return next(filter(None, (difference(answer[name], expected[name], name) for name in expected)), "")
    if isinstance(expected, np.ndarray):
        return _difference_of_arrays(answer, expected, what)
    if not isinstance(answer, int | np.integer) or isinstance(answer, bool):
        return f"{what} must be an int, got {type(answer).__name__}"
    return "" if answer == expected else f"{what} is {answer}, and must be {expected}"


def _difference_of_arrays(answer: Any, expected: np.ndarray, what: str) -> str:
    if not isinstance(answer, np.ndarray):
        return f"{what} must be an array of shape {expected.shape}, got {type(answer).__name__}"
    if answer.shape != expected.shape:
        return f"{what} must have the shape {expected.shape}, and has {answer.shape}"
    if answer.dtype != expected.dtype:
        cure = f"\n{WIDENED}" if answer.dtype == np.float64 else ""
        return f"{what}{OF_DTYPE}{expected.dtype}, and is of {answer.dtype}{cure}"
    off = ~np.isclose(answer, expected, rtol=1e-6 if expected.dtype == np.float64 else 1e-4, atol=1e-9)
    if not off.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(off)[0])
    place = f" at [{', '.join(map(str, at))}]" if at else ""
    return f"{what}{place} is {answer[at]:.6g}, and must be {expected[at]:.6g}"


def shown(value: Any, digits: int = 4) -> str:
    """A value in numbers, or the shape of an array with too many of them."""
    if isinstance(value, np.ndarray):
        if value.size > SHOWN:
            return f"an array {value.shape}"
        text = np.array2string(value, precision=digits, suppress_small=True, separator=", ", max_line_width=10_000)
        return text.replace("\n", "")
    if isinstance(value, tuple | list) and any(isinstance(one, np.ndarray | dict) for one in value):
        return ", ".join(shown(one, digits) for one in value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {shown(one, digits)}" for name, one in value.items()) + "}"
    return repr(value)[:200]


def peak_memory(f: Callable[..., Any], *args: Any) -> int:
    """The most bytes that a call allocates at once; a function of another process is measured in that process."""
    elsewhere = getattr(f, "peak_memory", None)
    if elsewhere is not None:
        return int(elsewhere(*args))
    tracemalloc.start()
    try:
        f(*args)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
