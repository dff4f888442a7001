"""The page of an exercise, `pages/NAME.md`: its claim, three hints and a worked solution, for the student to read.

    # the gradient of the softmax
    **What is checked.** The properties of a right answer.
    ## Hints          numbered; the first says where to look, the last is almost the answer
    ## Solution       the reasoning, and one block of code that can be appended to the exercise's file

The block shows a method as a plain function.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "pages"
PAGE = re.compile(
    r"# (?P<title>.+)\n\n\*\*(?:What is checked|Claim)\.\*\* (?P<claim>.+?)\n\n## Hints\n\n(?P<hints>.+?)\n\n"
    r"## Solution\n\n(?P<reasoning>.+?)\n\n```python\n(?P<code>.+?)\n```\n", re.DOTALL,
)


@dataclass(frozen=True)
class Page:
    """The parts of a page, as plain text."""

    title: str
    claim: str
    hints: tuple[str, ...]
    reasoning: str
    code: str

    @property
    def solution(self) -> str:
        """Reasoning and code for a terminal: the code indented below the reasoning."""
        return "\n".join([self.reasoning, "", *(f"    {line}".rstrip() for line in self.code.splitlines())])


@cache
def page_of(name: str) -> Page:
    """The page of an exercise."""
    found = PAGE.fullmatch((FOLDER / f"{name}.md").read_text(encoding="utf-8"))
    assert found is not None, f"grade/pages/{name}.md lacks a part, or has one that is not known"
    hints = re.split(r"^\d\. ", found["hints"], flags=re.MULTILINE)[1:]
    return Page(
        found["title"], " ".join(found["claim"].split()), tuple(" ".join(hint.split()) for hint in hints),
        found["reasoning"], found["code"],
    )
