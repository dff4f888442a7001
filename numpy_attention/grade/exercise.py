"""What an exercise is: what its file must define, and on which inputs that is tried.

    Try         one set of inputs for an op with its backward, or for a layer class: a line of the catalogue in small
    Exercise    one file: its tries, its trials for what has no gradient, the mutants that are its known wrong answers

The right answers, `references.ours()`, are tried in the same way.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Entry
from numpy_attention.gallery.registry import Mutant, mutants_of
from numpy_attention.gradcheck.problems.problem import Problem
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.grade.limits import peak_memory
from numpy_attention.grade.quizzes import QUIZZES
from numpy_attention.grade.slips import slips_of


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
        """As an entry of a catalogue, with the functions of a module (a student's file, or our own)."""
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
    """A draw for the checker: the gradients are those of a student's backward, what is differenced is our own forward.

    So it does not matter how theirs computes, or in which process, as long as it gives the same (which is a property of
    its own).
    """
    theirs, ours = (one.case(seed, np.float64, sizes).problem() for one in (entry, right))
    return _beside(theirs, ours)


def _beside(theirs: Problem, ours: Problem) -> Problem:
    def with_options(options: Mapping[str, Any]) -> Problem:
        return _beside(theirs.with_options(options), ours.with_options(options))

    return replace(theirs, bind=ours.bind, with_options=with_options)


@dataclass(frozen=True)
class Exercise:
    """One file of exercises; `trials` check, each in words, what has no gradient, by the name of the thing on trial."""

    name: str
    title: str
    claim: str
    tries: tuple[Try, ...] = ()
    trials: Mapping[str, Mapping[str, Callable[[Any, int], None]]] = field(default_factory=dict)
    imprints: Mapping[str, Callable[[Any], list[np.ndarray]]] = field(default_factory=dict)
    leave_out: tuple[str, ...] = ()  # mutants of options that this exercise does not have
    memory: Callable[[Any], None] | None = None
    parts: tuple[str, ...] = ()  # backwards and layers of the package that an answer may use
    from_nothing: bool = False  # the forward is the student's to write, too
    theirs_to_write: tuple[str, ...] = ()  # what else of the package an answer may not use

    @property
    def needed(self) -> dict[str, str]:
        """What the file must define, and whether it is a function or a class."""
        needed = {name: "class" if name[0].isupper() else "function" for name in self.trials}
        for one in self.tries:
            needed[one.name] = "class" if one.build else "function"
            if one.build is None:
                needed[f"{one.name}_backward"] = "function"
        return needed

    @property
    def subjects(self) -> list[str]:
        """What is graded by itself: each function with its backward, each class."""
        return list(dict.fromkeys([*self.trials, *(one.name for one in self.tries)]))

    @property
    def answers(self) -> list[str]:
        """What the package has of this, besides its backwards, and an answer may not call."""
        return [*self.trials, *(self.subjects if self.from_nothing else ()), *self.theirs_to_write]

    @property
    def mutants(self) -> list[Mutant]:
        """The known wrong answers, those of the gallery and the slips."""
        known = mutants_of(*self.subjects) + slips_of(*self.subjects)
        return [mutant for mutant in known if mutant.name not in self.leave_out]


def of_results(name: str, title: str, claim: str, *functions: str, theirs_to_write: tuple[str, ...] = ()) -> Exercise:
    """An exercise whose functions have no gradient: their results are compared."""
    quizzes = {function: QUIZZES[function] for function in functions}
    return Exercise(
        name, title, claim, trials={function: quiz.trials for function, quiz in quizzes.items()},
        imprints={function: quiz.imprint for function, quiz in quizzes.items()}, theirs_to_write=theirs_to_write,
    )


def masks_imprint(make: Callable[[int, int], np.ndarray]) -> list[np.ndarray]:
    """What a causal mask looks like at some lengths."""
    return [np.asarray(make(*lengths)) for lengths in ((3, 3), (2, 5), (4, 2), (1, 4))]


def adam_imprint(optimizer: Callable[..., Any]) -> list[np.ndarray]:
    """Where three steps lead."""
    rng = np.random.default_rng(4)
    p = {"w": rng.standard_normal((2, 3)), "b": rng.standard_normal(2)}
    stepper = optimizer(p, learning_rate=0.1, beta_1=0.7, beta_2=0.8, eps=1e-3)
    for _ in range(3):
        stepper.step({name: rng.standard_normal(x.shape) for name, x in p.items()})
    return list(p.values())


def no_square_array(module: Any) -> None:
    """Forward and backward of 1200 tokens in tiles of 60, in much less memory than 1200 x 1200 numbers take."""
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 1200, 4))
    y, cache = module.tiled_attention(q, k, v, block_size=60)
    peak = peak_memory(module.tiled_attention_backward, rng.standard_normal(y.shape), cache)
    assert peak < 1200 * 1200 * 8 / 2, (
        f"the backward of 1200 tokens used {peak / 1e6:.1f} MB at once; one array of 1200 x 1200 has "
        f"{1200 * 1200 * 8 / 1e6:.1f} MB, a tile of 60 x 60 has 0.03 MB: is a whole T_q x T_k array built?"
    )
