"""The result of a check as text, at most one screen long.

    gradcheck softmax: dx wrong (relative to the gradient's size: 1.2e+00)
    dx (3, 5): 15 of 15 elements wrong: every element                         how many elements, and their place
      dx[0, 3]   analytic -0.2   differences 0.2   ratio -1 ...                the worst element
    second opinion: the Taylor remainder falls with slope 1.00 ...            another method
    likely mistake: dx: the sign is wrong                                     the diagnosis
    60 calls of softmax; repeat with seed=0                                   all calls of the whole check

The first line of a right report counts the elements that could not be checked (without those that `skip` leaves out):

    gradcheck relu: right; 1 of 3 elements not checked (at a corner); the others: worst relative difference 0.0e+00
"""

import math
import textwrap
from dataclasses import dataclass, field

import numpy as np

COMPARED = ("numeric", "resolution", "doubt", "wrong", "kinks", "ends", "unresolved")  # one number for each element


class GradientError(AssertionError):
    """A gradient is wrong. The message is the report as text; `report` has its numbers (None after an early stop)."""

    def __init__(self, message: str, report: "Report | None" = None) -> None:
        super().__init__(message)
        self.report = report


def symbol_of(name: str) -> str:
    """The name of an argument's gradient in messages; dy is the upstream gradient, also if an argument is called y."""
    return "d(argument y)" if name == "y" else f"d{name}"


@dataclass
class ArgumentReport:
    """One argument's gradient: the analytic gradient, the reference derivative, and the tolerance.

    Most elements of a large array are not compared one by one; `numeric` is NaN at these elements. An element that
    `kinks` or `ends` marks is not wrong, but it could not be checked.
    """

    name: str
    analytic: np.ndarray
    numeric: np.ndarray  # the reference derivative
    resolution: np.ndarray  # the tolerance
    doubt: np.ndarray  # the possible error of the reference derivative
    wrong: np.ndarray
    kinks: np.ndarray  # at a corner, and the gradient lies between the slopes of the two sides
    ends: np.ndarray  # at the end of the domain, and no derivative was found on the side that exists
    unresolved: np.ndarray  # the reference derivative has too few digits
    size: float = 1.0  # the size of the gradient; errors are relative to this
    pattern: str = ""  # the place of the wrong elements
    notes: list[str] = field(default_factory=list)
    by_direction: float = 0.0  # for a large array: the relative error along a direction
    reference: str = "differences"
    tie: str = ""  # the mistake at a tie (equal elements), if any
    corner: str = ""  # the mistake at a corner, if any

    @classmethod
    def unseen(cls, name: str, analytic: np.ndarray) -> "ArgumentReport":
        """The report of a gradient that has not been compared yet, flattened."""
        numeric, resolution, doubt = np.full((3, analytic.size), np.nan)
        return cls(name, analytic.reshape(-1), numeric, resolution, doubt, *np.zeros((4, analytic.size), dtype=bool))

    def shaped(self, shape: tuple[int, ...]) -> "ArgumentReport":
        """The report with all arrays in the shape of the argument."""
        for one in ("analytic", *COMPARED):
            setattr(self, one, getattr(self, one).reshape(shape))
        return self

    def take(self, other: "ArgumentReport", some: np.ndarray) -> None:
        """Take the results of some elements from another report."""
        for one in COMPARED:
            setattr(self, one, np.where(some, getattr(other, one), getattr(self, one)))

    @property
    def symbol(self) -> str:
        return symbol_of(self.name)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.analytic.shape

    @property
    def largest(self) -> float:
        """The largest element: of the reference derivative if it is known, else of the analytic gradient."""
        seen = np.where(np.isnan(self.numeric), self.analytic, self.numeric)
        return float(np.max(np.abs(seen), initial=0.0))

    @property
    def error(self) -> float:
        """The largest error of the elements that were checked, relative to the size of the gradient."""
        unknown = self.kinks | self.ends | np.isnan(self.numeric)
        off = np.where(unknown, 0.0, np.abs(self.analytic - self.numeric))
        return max(float(np.max(off, initial=0.0)) / self.size, self.by_direction)

    def fits(self, gradient: np.ndarray | None) -> bool:
        """Whether another gradient is right in all elements that were compared."""
        if gradient is None or gradient.shape != self.shape:
            return False
        seen = np.isfinite(self.numeric)
        return bool(seen.any()) and np.allclose(gradient[seen], self.numeric[seen], rtol=1e-6, atol=1e-6 * self.size)

    @property
    def worst(self) -> tuple[int, ...]:
        """The index of the wrong element with the largest error."""
        with np.errstate(all="ignore"):
            off = np.where(self.wrong, np.abs(self.analytic - self.numeric), -1.0)
        return tuple(int(i) for i in np.unravel_index(int(np.argmax(off)), self.shape))

    def lines(self) -> list[str]:
        """The number and the place of the wrong elements, and the worst element."""
        visited, size, index = int(np.isfinite(self.numeric).sum()), self.analytic.size, self.worst
        of = f"{visited} compared (of {size})" if visited < size else f"{visited}"
        place = f": {self.pattern}" if self.pattern else ""
        analytic, numeric = float(self.analytic[index]), float(self.numeric[index])
        ratio = f"{analytic / numeric:.6g}" if numeric else "-"
        where = f"{self.symbol}[{', '.join(map(str, index))}]"
        numbers = f"analytic {analytic:<14.9g} {self.reference} {numeric:<14.9g} ratio {ratio:<10}"
        return [
            f"{self.symbol} {self.shape}: {int(self.wrong.sum())} of {of} elements wrong{place}",
            f"  {where:<22} {numbers} resolution {float(self.resolution[index]):.1e}",
        ]

    def open_question(self) -> str:
        """One line: which derivatives are known to too few digits, and what to do."""
        count, doubt = f"{self.unresolved.sum()} of {self.analytic.size}", float(self.doubt[self.unresolved].max())
        return (
            f"{self.symbol} {self.shape}: {count} derivatives have an error of up to {doubt:.1e}, for a gradient of "
            f"size {self.size:.1e}: the function is noisy or singular there; change the inputs, or allow this error: "
            "rtol=..."
        )


@dataclass
class Report:
    """The outcome of a gradient check; `calls` are all calls of the function, also of diagnosis and robustness."""

    name: str
    arguments: dict[str, ArgumentReport]
    seed: int
    calls: int
    diagnosis: str = ""
    slope: float | None = None
    why_not: str = ""  # the reason why no complex step was used
    notes: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> list[ArgumentReport]:
        """The arguments whose gradients are wrong."""
        return [argument for argument in self.arguments.values() if argument.wrong.any()]

    @property
    def unresolved(self) -> list[ArgumentReport]:
        """The arguments with elements whose derivative is known to too few digits to call them right."""
        return [argument for argument in self.arguments.values() if argument.unresolved.any()]

    @property
    def ok(self) -> bool:
        return not self.wrong and not self.unresolved

    @property
    def error(self) -> float:
        """The largest relative error of all arguments."""
        return max((argument.error for argument in self.arguments.values()), default=0.0)

    @property
    def kinks(self) -> int:
        """The number of elements at a kink (a corner), where the derivative does not exist."""
        return sum(int(argument.kinks.sum()) for argument in self.arguments.values())

    def unchecked(self) -> str:
        """How many elements could not be checked, and why; "" if all were."""
        ends = sum(int(argument.ends.sum()) for argument in self.arguments.values())
        of = sum(argument.analytic.size for argument in self.arguments.values())
        reasons = {"at a corner": self.kinks, "at the end of the domain": ends}
        why = " or ".join(reason for reason, count in reasons.items() if count)
        return f"{self.kinks + ends} of {of} elements not checked ({why})" if why else ""

    def verdict(self) -> str:
        """The first line."""
        bad, vague, unchecked = self.wrong, self.unresolved, self.unchecked()
        names = ", ".join(argument.symbol for argument in bad or vague)
        if bad:
            return f"{names} wrong (relative to the gradient's size: {self.error:.1e})"
        if vague:
            return f"{names} not resolved: the derivative is known to too few digits"
        references = sorted({argument.reference for argument in self.arguments.values()})
        source = " and ".join(references).replace("complex step", "the complex step")
        right = f"right; {unchecked}; the others:" if unchecked else "right,"
        return f"{right} worst relative difference {self.error:.1e}" + (f" from {source}" if source else "")

    def __str__(self) -> str:
        bad, vague = self.wrong, self.unresolved
        good = [argument.symbol for argument in self.arguments.values() if not argument.wrong.any()]
        lines = [f"gradcheck {self.name}: {self.verdict()}"]
        for argument in bad[:6]:
            lines += argument.lines()
        if bad and good:
            lines.append("right: " + ", ".join(good[:12]) + (" ..." if len(good) > 12 else ""))
        if not bad:
            lines += [argument.open_question() for argument in vague[:6]]
        if (bad or vague) and (unchecked := self.unchecked()):
            lines.append(unchecked)
        lines += [*(note for argument in self.arguments.values() for note in argument.notes), *self.notes][:4]
        if "is it noise" in self.diagnosis and self.calls:
            allowed = 10.0 ** math.ceil(math.log10(self.error))
            lines.append(f"if {self.name} stops an iteration at a tolerance, allow this error: rtol={allowed:.0e}")
        if self.slope is not None:
            slope = f"the Taylor remainder falls with slope {self.slope:.2f}"
            lines.append(f"second opinion: {slope} (about 2 is right, about 1 is wrong)")
        if self.why_not:
            why = f"compared with differences, since the complex step cannot be used: {self.why_not}"
            lines.append(textwrap.shorten(why, 220, placeholder=" ..."))
        if self.diagnosis:
            lines.append("likely mistake: " + self.diagnosis)
        if self.calls:  # without calls, the gradients were given
            lines.append(f"{self.calls} calls of {self.name}; repeat with seed={self.seed}")
        return "\n".join(lines)
