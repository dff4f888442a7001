"""The result of grading an answer, which the other process sends to the command."""

from dataclasses import dataclass, field

RECORD = "\x1e"  # begins a line of the other process with the grade so far and the property that is checked next
STATES = ("right", "to do", "wrong", "broken", "too slow")


@dataclass
class Grade:
    """The result: `state` is one of STATES, `text` is the text for the student."""

    exercise: str
    state: str = "right"
    passed: int = 0
    of: int = 0
    lines: list[str] = field(default_factory=list)
    summary: str = ""

    def __bool__(self) -> bool:
        return self.state == "right"

    def __repr__(self) -> str:
        return f"<{self.exercise}: {self.state}, {self.passed} of {self.of} properties hold>"

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def stopped(exercise: str, state: str, text: str) -> Grade:
    """The result if no property was checked."""
    return Grade(exercise, state, lines=["  " + text], summary=text)
