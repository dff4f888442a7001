"""The result of a check as text, at most one screen long.

    gradcheck softmax: dx wrong (relative to the gradient's size: 1.2e+00)
    dx (3, 5): 15 of 15 elements wrong: every element                         how many elements, and their place
      dx[0, 3]   analytic -0.2   differences 0.2   ratio -1 ...                the worst element
    second opinion: the Taylor remainder falls with slope 1.00 ...            another method
    likely mistake: dx: the sign is wrong                                     the diagnosis
    60 calls of softmax; repeat with seed=0
"""

import math
from dataclasses import dataclass, field

import numpy as np


class GradientError(AssertionError):
    """A gradient is wrong. The message is the report as text; `report` has its numbers (None after an early stop)."""

    def __init__(self, message: str, report: "Report | None" = None) -> None:
        super().__init__(message)
        self.report = report


@dataclass
class ArgumentReport:
    """One argument's gradient: the analytic gradient, the reference derivative, and the tolerance.

    Most elements of a large array are not compared one by one; `numeric` is NaN at these elements.
    """

    name: str
    analytic: np.ndarray
    numeric: np.ndarray
    resolution: np.ndarray
    wrong: np.ndarray
    kinks: np.ndarray
    calls: int
    size: float = 1.0  # the size of the gradient; errors are relative to this
    pattern: str = ""  # the place of the wrong elements
    notes: list[str] = field(default_factory=list)
    by_direction: float | None = None  # for a large array: the relative error along a direction
    doubt: np.ndarray = field(default_factory=lambda: np.zeros(()))  # the possible error of the reference derivative
    unresolved: np.ndarray = field(default_factory=lambda: np.zeros((), dtype=bool))
    reference: str = "differences"
    tie: str = ""  # the mistake at a tie (equal elements), if any

    @classmethod
    def unseen(cls, name: str, analytic: np.ndarray) -> "ArgumentReport":
        """The report of a gradient that has not been compared yet, flattened."""
        nan, no = np.full(analytic.size, np.nan), np.zeros(analytic.size, dtype=bool)
        return cls(name, analytic.reshape(-1), nan, nan.copy(), no, no.copy(), 0, doubt=np.zeros(analytic.size))

    def shaped(self, shape: tuple[int, ...]) -> "ArgumentReport":
        """The report with all arrays in the shape of the argument."""
        for one in ("analytic", "numeric", "resolution", "wrong", "kinks", "doubt"):
            setattr(self, one, getattr(self, one).reshape(shape))
        return self

    @property
    def symbol(self) -> str:
        return f"d{self.name}"

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
        """The largest error outside kinks, relative to the size of the gradient."""
        off = np.where(self.kinks | np.isnan(self.numeric), 0.0, np.abs(self.analytic - self.numeric))
        return max(float(np.max(off, initial=0.0)) / self.size, self.by_direction or 0.0)

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
            off = np.abs(self.analytic - self.numeric)
        score = np.where(self.wrong, off, -1.0)
        return tuple(int(i) for i in np.unravel_index(int(np.argmax(score)), self.shape))

    def open_question(self) -> str:
        """One line: which derivatives are known to too few digits, and what to do."""
        count, of = int(self.unresolved.sum()), self.analytic.size
        doubt = float(np.max(np.where(self.unresolved, self.doubt, 0.0)))
        return (
            f"{self.symbol} {self.shape}: {count} of {of} derivatives have an error of up to {doubt:.1e}, for a "
            f"gradient of size {self.size:.1e}: the function is noisy or singular there; change the inputs, or allow "
            "this error: rtol=..."
        )

    def line(self) -> str:
        """One line: argument, index, analytic, numeric, ratio, resolution."""
        index = self.worst
        analytic, numeric = float(self.analytic[index]), float(self.numeric[index])
        ratio = f"{analytic / numeric:.6g}" if numeric else "-"
        where = f"{self.symbol}[{', '.join(map(str, index))}]"
        return (
            f"  {where:<22} analytic {analytic:<14.9g} {self.reference} {numeric:<14.9g} ratio {ratio:<10} "
            f"resolution {float(self.resolution[index]):.1e}"
        )


@dataclass
class Report:
    """The outcome of a gradient check."""

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
    def ok(self) -> bool:
        return not self.wrong and not self.unresolved

    @property
    def unresolved(self) -> list[ArgumentReport]:
        """The arguments with elements whose derivative is known to too few digits to call them right."""
        return [argument for argument in self.arguments.values() if argument.unresolved.any()]

    @property
    def error(self) -> float:
        """The largest relative error of all arguments."""
        return max((argument.error for argument in self.arguments.values()), default=0.0)

    @property
    def kinks(self) -> int:
        """The number of elements at a kink, where the derivative does not exist."""
        return sum(int(argument.kinks.sum()) for argument in self.arguments.values())

    def __str__(self) -> str:
        bad, vague = self.wrong, self.unresolved
        names = ", ".join(argument.symbol for argument in bad or vague)
        if bad:
            lines = [f"gradcheck {self.name}: {names} wrong (relative to the gradient's size: {self.error:.1e})"]
        elif vague:
            lines = [f"gradcheck {self.name}: {names} not resolved: the derivative is known to too few digits"]
        else:
            references = sorted({argument.reference for argument in self.arguments.values()})
            source = " and ".join(references).replace("complex step", "the complex step")
            lines = [f"gradcheck {self.name}: right, worst relative difference {self.error:.1e}"]
            lines[0] += f" from {source}" if source else ""
        for argument in bad[:6]:
            count, visited = int(argument.wrong.sum()), int(np.isfinite(argument.numeric).sum())
            size = argument.analytic.size
            of = f"{visited} compared (of {size})" if visited < size else f"{visited}"
            lines.append(
                f"{argument.symbol} {argument.shape}: {count} of {of} elements wrong"
                + (f": {argument.pattern}" if argument.pattern else "")
            )
            lines.append(argument.line())
        if len(bad) > 6:
            lines.append(f"... and {len(bad) - 6} more: " + ", ".join(argument.symbol for argument in bad[6:]))
        if not bad:
            lines += [argument.open_question() for argument in vague[:6]]
        good = [argument.symbol for argument in self.arguments.values() if not argument.wrong.any()]
        if bad and good:
            lines.append("right: " + ", ".join(good[:12]) + (" ..." if len(good) > 12 else ""))
        if self.kinks:
            lines.append(
                f"{self.kinks} element{'s' * (self.kinks > 1)} at a kink (a corner of relu, a tie in a max): "
                "no derivative exists there, so any value between the slopes of the two sides is accepted"
            )
        lines += [*(note for argument in self.arguments.values() for note in argument.notes), *self.notes][:4]
        if bad and 0 < self.error < 1e-4:
            allowed = 10.0 ** math.ceil(math.log10(self.error))
            lines.append(f"if {self.name} stops an iteration at a tolerance, allow this error: rtol={allowed:.0e}")
        if self.slope is not None:
            verdict = "about 2 is right, about 1 is wrong" if bad else "2 is right"
            lines.append(f"second opinion: the Taylor remainder falls with slope {self.slope:.2f} ({verdict})")
        if self.why_not:
            lines.append(f"compared with differences, since the complex step cannot be used: {self.why_not}"[:150])
        if self.diagnosis:
            lines.append("likely mistake: " + self.diagnosis)
        lines.append(f"{self.calls} calls of {self.name}; repeat with seed={self.seed}")
        return "\n".join(lines)
