"""The command `grade`: grades files, each in another process with a time limit, and prints the results.

    python -m numpy_attention grade tutorials/exercises/softmax.py           check your function
    python -m numpy_attention grade tutorials/exercises/softmax.py --hint 1  the first of three hints
    python -m numpy_attention grade --solution softmax                       a worked solution, after you have passed
    python -m numpy_attention grade --all                                    a table of your progress
"""

import contextlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from numpy_attention.catalogue.exercise import Exercise
from numpy_attention.catalogue.table import EXERCISES
from numpy_attention.errors import escaped, shell_path
from numpy_attention.grade import child
from numpy_attention.grade.answer import MAX_TEXT, printed_lines
from numpy_attention.grade.grading import Grade
from numpy_attention.grade.page import page_of
from numpy_attention.pretrained.fetch import cache_folder

TIME_LIMIT = 10.0  # seconds for each call; a right answer needs less than a tenth of a second
MAX_SECONDS = 86_400.0
FILE_LIMIT = 6.0  # time limit for a whole file, as a multiple of the time limit for one call
START_SECONDS = 10.0  # time for the start of Python and the import of NumPy
MARKS = {"right": "done", "to do": "to do", "wrong": "wrong", "broken": "stops", "too slow": "too slow"}


class GradeError(ValueError):
    """A wrong argument of the command; the message is one line."""


def main(
    files: Sequence[str] = (), everything: bool = False, hint: int | None = None, exercise: str | None = None,
    time_limit: float = TIME_LIMIT, solutions: Sequence[str] = (), stream: TextIO | None = None,
) -> int:
    """Grade files, or all exercises; the exit code is 0 if all answers are right, otherwise 1.

    `solutions` are names of exercises. If an exercise is not passed yet, its solution is shown only if its name is
    given twice.

    Raises: GradeError, with a message of one line, if the file, the hint or the exercise does not exist.
    """
    out = sys.stdout if stream is None else stream
    if not 0 < time_limit <= MAX_SECONDS:
        raise GradeError(f"grade: --time-limit must be more than 0 seconds and at most one day, got {time_limit:g}")
    if solutions:
        return _solutions(solutions, files, time_limit, out)
    if everything:
        return _all(_folder(files), time_limit, out)
    if not files:
        raise GradeError("grade: no file is given. Examples: grade tutorials/exercises/softmax.py, or grade --all")
    for file in files:
        if os.path.isdir(file):  # os.path, unlike Path, accepts every text
            raise GradeError(f"grade: {file} is a folder; grade all its exercises with: grade --all {shell_path(file)}")
        if not os.path.isfile(file):
            raise GradeError(f"grade: there is no file {file}")
    if hint is not None:
        for file in files:
            print(hint_text(exercise_of(file, exercise), hint, "--hint "), file=out)
        return 0
    right = True
    for file in files:
        found = exercise_of(file, exercise)
        grade = grade_file(Path(file), found, time_limit)
        right &= grade.state == "right"
        command = f"python -m numpy_attention grade {shell_path(file)}"
        text = answer_text(found, grade, f"{command} --hint 1", f"{command} --solution {found.name}")
        print(text, file=out, flush=True)
    return 0 if right else 1


def grade_file(file: Path, exercise: Exercise, time_limit: float = TIME_LIMIT) -> Grade:
    """Grade a file in another Python process; without processes, as in a browser, grade it in this process."""
    require_hypothesis()
    command = [sys.executable, "-P", "-W", "ignore", "-m", child.__name__, str(file.resolve()), exercise.name]
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    environment = {"PYTHONPATH": path, "PYTHONIOENCODING": "utf-8:backslashreplace", "OPENBLAS_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [*command, str(time_limit)], env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
            capture_output=True, check=False, timeout=START_SECONDS + FILE_LIMIT * time_limit,
        )
    except OSError:
        return child.grade_here(file.resolve(), exercise)
    except subprocess.TimeoutExpired as slow:
        printed, grade = _text(slow.stdout), _too_slow(exercise, (
            f"No result after {FILE_LIMIT * time_limit:g} seconds: the function or the import of the file is "
            "too slow"
        ))
    else:
        printed, _, result = _text(done.stdout).rpartition("\n")
        try:
            grade = Grade(**json.loads(result))
        except (TypeError, ValueError):  # there is no result
            printed, grade = _text(done.stdout), _no_result(file, exercise, time_limit, _text(done.stderr))
    grade.lines += printed_lines(printed, "The file")
    return grade


def _text(output: bytes | None) -> str:
    return (output or b"").decode("utf-8", errors="replace")


def _too_slow(exercise: Exercise, text: str) -> Grade:
    return Grade(exercise.name, "too slow", lines=["  " + text], summary=text)


def _no_result(file: Path, exercise: Exercise, time_limit: float, said: str) -> Grade:
    """The grade if the other process ended without a result: a call took too long, or the file ended Python."""
    if said.startswith("Timeout"):
        at = re.search(rf'File "[^"]*{re.escape(file.name)}", line (\d+) in (\w+)', said)
        place = f" Python was in {at[2]}, line {at[1]} of {file.name}: is there an endless loop?" if at else ""
        return _too_slow(exercise, f"No answer after {time_limit:g} seconds.{place}")
    why = f": {escaped(said.splitlines()[-1])[:MAX_TEXT]}" if said else ""
    text = f"{file.name} ended the Python process before the grader had a result{why}"
    return Grade(exercise.name, "broken", lines=["  " + text], summary=text)


def answer_text(exercise: Exercise, grade: Grade, hint: str, solution: str) -> str:
    """The whole text about an answer; `hint` and `solution` say how to see the first hint and the solution."""
    lines = [f"{exercise.name}: {page_of(exercise.name).title}", *grade.lines]
    if grade.state == "right":
        lines.append(f"All {grade.of} properties hold. Checked: {page_of(exercise.name).checked}")
        lines.append(f"Compare with a worked solution: {solution}")
    elif grade.state == "to do":
        lines += ["", f"{grade.passed} of {grade.of} properties hold. The first hint: {hint}"]
    elif grade.of:
        waiting = "" if grade.passed + 1 == grade.of else "; the properties after the wrong one were not checked"
        lines += ["", f"{grade.passed} of {grade.of} properties hold{waiting}. A hint: {hint}"]
    return "\n".join(lines) + "\n"


def hint_text(exercise: Exercise, number: int, option: str) -> str:
    """A hint; `option` is the option that asks for a hint, "--hint " or "hint="."""
    hints = page_of(exercise.name).hints
    if number not in range(1, len(hints) + 1):
        raise GradeError(f"grade: {exercise.name} has the hints 1 to {len(hints)}, got {option}{number}")
    more = f"\nTry again. If this hint does not help: {option}{number + 1}" if number < len(hints) else ""
    return f"Hint {number} of {len(hints)}: {hints[number - 1]}{more}"


def _solutions(asked: Sequence[str], files: Sequence[str], time_limit: float, out: TextIO) -> int:
    """Show the solution of each exercise that is passed or given twice; for the others show the last hint."""
    exercises = {name: exercise_of("", name) for name in dict.fromkeys(asked)}
    if len(files) > 1:
        raise GradeError(f"grade: --solution takes one file or folder with your answer, got {' '.join(files)}")
    shown = True
    for name, exercise in exercises.items():
        file = _own_file(name, files)
        if asked.count(name) > 1 or (file is not None and grade_file(file, exercise, time_limit).state == "right"):
            print(f"{name}: {page_of(name).title}\n\n{page_of(name).solution}\n", file=out)
            continue
        shown = False
        print(
            f"{name}: {f'{file} is not right yet' if file else 'your answer was not found here'}, so here is the last "
            f"hint.\n{page_of(name).hints[-1]}\n\nTo see the solution before your answer is right, give the name "
            f"twice: python -m numpy_attention grade --solution {name} --solution {name}\n", file=out,
        )
    return 0 if shown else 1


def _own_file(name: str, files: Sequence[str]) -> Path | None:
    """The student's answer: the given file, or NAME.py in the given folder, in this folder or tutorials/exercises."""
    if files and not os.path.exists(files[0]):
        raise GradeError(f"grade: there is no file {files[0]}")
    if files and Path(files[0]).is_file():
        return Path(files[0])
    folders = [Path(files[0])] if files else [Path("."), Path("tutorials/exercises")]
    return next((folder / f"{name}.py" for folder in folders if (folder / f"{name}.py").is_file()), None)


def _all(folder: Path, time_limit: float, out: TextIO) -> int:
    width = max(map(len, EXERCISES))
    print(f"{'exercise':<{width}}  state     passed    problem", file=out)
    done = 0
    for exercise in EXERCISES.values():
        file = folder / f"{exercise.name}.py"
        if not file.is_file():
            print(f"{exercise.name:<{width}}  no file", file=out)
            continue
        grade = grade_file(file, exercise, time_limit)
        done += grade.state == "right"
        holds = f"{grade.passed:>2} of {grade.of:<2}" if grade.of else ""
        following = "" if grade.state in ("right", "to do") else grade.summary
        following = following if len(following) <= 90 else following[:87] + "..."
        line = f"{exercise.name:<{width}}  {MARKS[grade.state]:<8}  {holds:<8}  {following}"
        print(line.rstrip(), file=out, flush=True)
    print(f"{done} of {len(EXERCISES)} done", file=out)
    others = sorted(file.name for file in folder.glob("*.py") if file.stem not in EXERCISES)
    if others:
        print(f"not graded, because no exercise has this name: {', '.join(map(escaped, others))}", file=out)
    return 0 if done == len(EXERCISES) else 1


def _folder(given: Sequence[str]) -> Path:
    if given:
        folder = Path(given[0])
        if len(given) > 1 or not os.path.isdir(given[0]):
            raise GradeError(f"grade: --all takes one folder of exercises, got {' '.join(given)}")
        return folder
    for folder in (Path("tutorials/exercises"), Path("."), Path(__file__).parents[2] / "tutorials" / "exercises"):
        if (folder / "softmax.py").is_file():
            return folder
    raise GradeError("grade: no exercises found here; copy tutorials/exercises from the sources, or give their folder")


def exercise_of(file: str, name: str | None) -> Exercise:
    """The exercise with this name, or with the name of the file: softmax.py, softmax_2.py, my_softmax.py."""
    stem = Path(file).stem.lower()
    if name is not None:
        fitting = [name] if name in EXERCISES else []
    else:
        fitting = [one for one in EXERCISES if stem == one] or [
            one for one in EXERCISES if stem.startswith(one + "_") or stem.endswith("_" + one)]
    if not fitting:
        unknown = f"{name} is not an exercise" if name else f"add --exercise NAME, because {file} names no exercise"
        raise GradeError(f"grade: {unknown}; the exercises are {', '.join(EXERCISES)}")
    return EXERCISES[max(fitting, key=len)]


def require_hypothesis() -> None:
    """Check that Hypothesis is installed.

    Raises: GradeError, with the command that installs it.
    """
    if importlib.util.find_spec("hypothesis") is None:
        raise GradeError(
            "grade: needs Hypothesis to find the smallest wrong example: pip install hypothesis, or, in a copy of "
            "the repository, pip install '.[tutorials]'"
        )


@contextlib.contextmanager
def hypothesis_elsewhere() -> Iterator[None]:
    """Let Hypothesis write to the cache folder, not to the student's folder, unless the user has set another folder."""
    name = "HYPOTHESIS_STORAGE_DIRECTORY"
    before = os.environ.get(name)
    os.environ[name] = before or str(cache_folder() / "hypothesis")
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
