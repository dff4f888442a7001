"""The page of an exercise, `pages/NAME.md`: what is checked, three hints and a worked solution, for the student.

    # the gradient of the softmax
    **What is checked.** The properties of a right answer.
    ## Hints          numbered; the first hint names the place to look at, the last hint is almost the answer
    ## Solution       the reasoning, and one block of code that can be appended to the exercise's file

The block of code shows a method as a plain function.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "pages"
PAGE = re.compile(
    r"# (?P<title>.+)\n\n\*\*What is checked\.\*\* (?P<checked>.+?)\n\n## Hints\n\n(?P<hints>.+?)\n\n"
    r"## Solution\n\n(?P<reasoning>.+?)\n\n```python\n(?P<code>.+?)\n```\n", re.DOTALL,
)


@dataclass(frozen=True)
class Page:
    """The parts of a page, as plain text."""

    title: str
    checked: str
    hints: tuple[str, ...]
    reasoning: str
    code: str

    @property
    def solution(self) -> str:
        """The solution for a terminal: the reasoning, and below it the indented code."""
        return "\n".join([self.reasoning, "", *(f"    {line}".rstrip() for line in self.code.splitlines())])


@cache
def page_of(name: str) -> Page:
    """The page of this exercise."""
    found = PAGE.fullmatch((FOLDER / f"{name}.md").read_text(encoding="utf-8"))
    assert found is not None, f"grade/pages/{name}.md lacks a part or has an unknown part"
    hints = re.split(r"^\d\. ", found["hints"], flags=re.MULTILINE)[1:]
    return Page(
        found["title"], " ".join(found["checked"].split()), tuple(" ".join(hint.split()) for hint in hints),
        found["reasoning"], found["code"],
    )
