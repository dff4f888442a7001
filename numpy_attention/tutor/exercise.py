"""An exercise: what a student's file must define, and the inputs on which the tutor checks it.

    Try         one set of inputs for an op with its backward, or for a layer class: a small entry of the catalogue
    Quiz        questions for a function without a gradient: `ask(rng)` yields their texts and arguments
    Trial       a check of a function or class without a gradient, instead of questions
    Exercise    one file: its tries, quizzes and trials
"""

import copy
import inspect
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from numpy_attention.gradcheck.problem import Problem
from numpy_attention.shapes import Sizes
from numpy_attention.tutor.compare import same
from numpy_attention.tutor.entry import Entry, entry_of
from numpy_attention.tutor.mistake import Mistake
from numpy_attention.tutor.outputs import likely_mistake
from numpy_attention.tutor.page import Row

Check = Callable[[Any, int], None]  # raises AssertionError for a wrong answer; the int is a seed
Questions = Iterator[tuple[str, tuple[Any, ...]]]
MAX_NUMBERS = 24  # messages show only the shape of a larger array
WIDTH = 100  # characters of a line that shows numbers
LIKELY = "likely mistake: "
SEEDS = (0, 1, 2)
WRONG_DTYPE = " must have dtype "
WIDENED = (
    "np.zeros returns float64: use np.zeros_like(...), or np.zeros(..., dtype=...dtype). np.sqrt of an integer is also "
    "float64, and turns float32 into float64; math.sqrt does not."
)


@dataclass(frozen=True)
class Try:
    """One set of inputs for an op with its backward, or for a layer class: a row of a table of the page."""

    row: Row
    names: Mapping[str, Any]  # which the cells of the row may use

    @property
    def title(self) -> str:
        """The name of the case."""
        return self.row["try"]

    @property
    def name(self) -> str:
        """The name of the op or class."""
        return self.title.partition(":")[0]

    @property
    def needed(self) -> dict[str, str]:
        """The names that an answer must define, each with "function" or "class"."""
        if "layer" in self.row:
            return {self.name: "class"}
        return {self.name: "function", f"{self.name}_backward": "function"}

    def entry(self, module: Any) -> Entry:
        """The entry for the functions of a module: a student's file, or our own."""
        answers = {name: getattr(module, name) for name in self.needed}
        return entry_of({**self.row, "case": self.title, "tolerance": "1e-4"}, {**self.names, **answers})


def with_our_forward(entry: Entry, right: Entry, seed: int, sizes: Sizes | None) -> Problem:
    """A problem for the checker: gradients from the student's backward, numerical differences of our forward.

    So the student's forward may use any method. Another property compares the two forwards.
    """

    def joined(theirs: Problem, ours: Problem) -> Problem:
        def with_options(options: Mapping[str, Any]) -> Problem:
            return joined(theirs.with_options(options), ours.with_options(options))

        return theirs.with_changes(bind=ours.bind, with_options=with_options)

    return joined(*(one.case(seed, np.float64, sizes).problem() for one in (entry, right)))


@dataclass(frozen=True)
class Quiz:
    """Questions, from the simplest to the rarest; the catalogue adds `right`, which gives the right answers."""

    ask: Callable[[np.random.Generator], Questions]
    returns: tuple[str, ...] = ()  # the names of the returned values, if `right` returns a tuple
    advise: Callable[[Any], str] = lambda answer: ""  # more about a wrong answer
    right: Callable[..., Any] = print

    @property
    def trials(self) -> dict[str, Check]:
        """The text of each question, with its check; the seed changes only the arguments of a question."""
        return {text: partial(self.check_answer, text) for text, _ in self.ask(np.random.default_rng(0))}

    def check_answer(self, question: str, function: Callable[..., Any], seed: int) -> None:
        """Call `function` with the arguments of one question for a seed.

        Raises: AssertionError for a wrong answer, with the arguments and both answers.
        """
        for text, arguments in self.ask(np.random.default_rng(seed)):
            if text != question:
                continue
            given, expected = copy.deepcopy(arguments), self.right(*copy.deepcopy(arguments))
            with np.errstate(all="ignore"):
                answer = function(*given)
            message = difference(answer, expected, names=self.returns)
            if message or not same(arguments, given):
                names = list(inspect.signature(self.right).parameters)
                numbers = [line for name, one in zip(names, arguments) for line in shown(name, one)]
                numbers += [*shown("yours:", answer), *shown("right:", expected)]
                this = dict(zip(names, arguments)), answer, expected
                others = self._more(function, question, names, seed) if message else ()
                likely = likely_mistake(self.right, this, *others) if message else ""
                raise AssertionError("\n".join([
                    message or "the arguments were changed in place; they belong to the caller",
                    *filter(None, [self.advise(answer), likely and LIKELY + likely]),
                    *([] if WRONG_DTYPE in message else numbers),  # numbers do not show a dtype
                ]))

    def _more(self, function: Callable[..., Any], question: str, names: list[str], seed: int) -> Iterator[Any]:
        """Other examples of a question: the arguments, the answer and the right result."""
        for other in (seed + 1, seed + 2):
            given = next(arguments for text, arguments in self.ask(np.random.default_rng(other)) if text == question)
            answer = or_none(partial(function, *copy.deepcopy(given)))
            if answer is not None:
                yield dict(zip(names, given)), answer, self.right(*copy.deepcopy(given))

    def outcome(self, function: Callable[..., Any]) -> list[Any]:
        """For each question the answers for some seeds; None if the function raises an error."""

        def ask(seed: int) -> list[Any]:
            given = [copy.deepcopy(arguments) for _, arguments in self.ask(np.random.default_rng(seed))]
            return [or_none(partial(function, *arguments)) for arguments in given]

        return [list(answers) for answers in zip(*map(ask, SEEDS))]


@dataclass(frozen=True)
class Trial:
    """A check of a function without a gradient; its `outcome` is compared with the outcomes of known mistakes."""

    check: Check
    outcome: Callable[[Any], list[np.ndarray]]

    @property
    def trials(self) -> dict[str, Check]:
        """The check, with a text that describes it."""
        return {"agrees with the definition": self.check}


@dataclass(frozen=True)
class Exercise:
    """One exercise: its tries and, in `quizzes`, the quiz or trial of each function without a gradient, by name."""

    name: str
    tries: tuple[Try, ...] = ()
    quizzes: Mapping[str, Quiz | Trial] = field(default_factory=dict)
    mistakes: tuple[Mistake, ...] = ()  # known mistakes that the tutor can recognize in an answer
    in_parts: tuple[Mistake, ...] = ()  # those of the ops that the right answer calls
    memory: Callable[[Any], None] | None = None
    parts: tuple[str, ...] = ()  # backwards and layers of the package that an answer may use
    from_scratch: bool = False  # the student writes the forward too
    not_allowed: tuple[str, ...] = ()  # other functions of the package that an answer may not use

    @property
    def trials(self) -> dict[str, dict[str, Check]]:
        """For each function without a gradient its checks, by the texts that describe them."""
        return {name: quiz.trials for name, quiz in self.quizzes.items()}

    @property
    def needed(self) -> dict[str, str]:
        """The names that the file must define, each with "function" or "class"."""
        needed = {name: "class" if name[0].isupper() else "function" for name in self.quizzes}
        for one in self.tries:
            needed |= one.needed
        return needed

    @property
    def subjects(self) -> list[str]:
        """The names that are graded separately: each function with its backward, each class."""
        return list(dict.fromkeys([*self.quizzes, *(one.name for one in self.tries)]))

    @property
    def answers(self) -> list[str]:
        """Functions and classes of the package, other than backwards, that an answer may not call."""
        return [*self.quizzes, *(self.subjects if self.from_scratch else ()), *self.not_allowed]


def or_none(run: Callable[[], Any]) -> Any:
    """The result of a call, or None if it raises an exception."""
    try:
        with np.errstate(all="ignore"):
            return run()
    except Exception:  # an answer may raise any error
        return None


def difference(answer: Any, expected: Any, what: str = "the result", names: tuple[str, ...] = ()) -> str:
    """A text about the first difference between two answers, or ""; `names` are the names of a tuple's parts."""
    if answer is None:
        return f"{what} is None; does the function end with `return ...`?"
    if isinstance(expected, tuple | list):
        if not isinstance(answer, tuple | list):
            return f"{what} must be a {type(expected).__name__} of {len(expected)}, got {type(answer).__name__}"
        if len(answer) != len(expected):
            return f"{what} must have {len(expected)} elements, but has {len(answer)}"
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
    return "" if answer == expected else f"{what} is {answer}, but must be {expected}"


def _difference_of_arrays(answer: Any, expected: np.ndarray, what: str) -> str:
    if not isinstance(answer, np.ndarray):
        return f"{what} must be an array of shape {expected.shape}, got {type(answer).__name__}"
    if answer.shape != expected.shape:
        return f"{what} must have shape {expected.shape}, but has {answer.shape}"
    if answer.dtype != expected.dtype:
        hint = f"\n{WIDENED}" if answer.dtype == np.float64 else ""
        return f"{what}{WRONG_DTYPE}{expected.dtype}, but has {answer.dtype}{hint}"
    off = ~np.isclose(answer, expected, rtol=1e-6 if expected.dtype == np.float64 else 1e-4, atol=1e-9)
    if not off.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(off)[0])
    place = f" at [{', '.join(map(str, at))}]" if at else ""
    return f"{what}{place} is {answer[at]:.6g}, but must be {expected[at]:.6g}"


def shown(name: str, value: Any, digits: int = 4) -> list[str]:
    """Lines that show the value of a name: one line, or one line for each row if it is too long."""
    head = f"  {name} " if ":" in name else f"  {name} = "
    line = head + value_text(value, digits)
    if len(line) <= WIDTH or not isinstance(value, np.ndarray):
        return [line]
    text = np.array2string(
        value, precision=digits, suppress_small=True, separator=", ", max_line_width=WIDTH, prefix=head
    )
    return (head + text).splitlines()


def shown_beside(name: str, one: np.ndarray, other_name: str, other: np.ndarray) -> list[str]:
    """Two arrays with enough digits to show a difference, without first axes of length 1."""
    while one.ndim > 2 and one.shape[0] == 1 == other.shape[0] and one.ndim == other.ndim:
        one, other = one[0], other[0]
    digits = next((n for n in range(4, 16, 2) if value_text(one, n) != value_text(other, n)), 16)
    return shown(name, one, digits) + shown(other_name, other, digits)


def value_text(value: Any, digits: int = 4) -> str:
    """A value as text; for an array with more than MAX_NUMBERS numbers, only its shape."""
    if isinstance(value, np.ndarray):
        if value.size > MAX_NUMBERS:
            return f"an array {value.shape}"
        text = np.array2string(value, precision=digits, suppress_small=True, separator=", ", max_line_width=10_000)
        return text.replace("\n", "")
    if isinstance(value, tuple | list) and any(isinstance(one, np.ndarray | dict) for one in value):
        return ", ".join(value_text(one, digits) for one in value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {value_text(one, digits)}" for name, one in value.items()) + "}"
    return repr(value)[:200]


def peak_memory(f: Callable[..., Any], *args: Any) -> int:
    """The maximum number of bytes allocated during a call."""
    tracemalloc.start()
    try:
        f(*args)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
