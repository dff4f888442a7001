"""Worked solutions: the reasoning, and the functions as they can be put into the exercise's file.

Each is a page in `solutions`, text with one block of code. A method stands there as a function of its own.
"""

from pathlib import Path

FOLDER = Path(__file__).parent / "solutions"
FENCE = "```"


def solution_of(name: str) -> tuple[str, str]:
    """Reasoning and code of an exercise's solution."""
    reasoning, _, code = (FOLDER / f"{name}.md").read_text(encoding="utf-8").partition(f"{FENCE}python\n")
    return reasoning.rstrip(), code.partition(FENCE)[0].rstrip()


def told(name: str) -> str:
    """Both for a terminal: the code indented below the reasoning."""
    reasoning, code = solution_of(name)
    return "\n".join([reasoning, "", *(f"    {line}".rstrip() for line in code.splitlines())])
