"""The command `grade`: grades files, each in another process with a time limit, and prints the results."""

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from numpy_attention.errors import InputError, command, escaped, shell_path
from numpy_attention.tutor.answer import MAX_TEXT, printed_lines
from numpy_attention.tutor.page import exercise_texts
from numpy_attention.tutor.result import RECORD, Grade

TIME_LIMIT = 10.0  # seconds for each call; a right answer needs less than a tenth of a second
FILE_LIMIT = 6.0  # time limit for a whole file, as a multiple of the time limit for one call
CHILD = "numpy_attention.tutor.child"
MORE_TIME = "The option --time-limit S allows S seconds for each call."
START_SECONDS = 10.0  # time for the start of Python and the import of NumPy
FOLDERS = (Path("tutorials/exercises"), Path("."), Path(__file__).parents[2] / "tutorials" / "exercises")
MARKS = {"right": "done", "to do": "to do", "wrong": "wrong", "broken": "stops", "too slow": "too slow"}


def grade_files(files: Sequence[str], name: str | None = None, time_limit: float = TIME_LIMIT) -> bool:
    """Grade files and print the results; true if all answers are right."""
    right = True
    for file in files:
        exercise = exercise_of(file, name)
        grade = grade_file(Path(file), exercise, time_limit)
        right &= grade.state == "right"
        again = command(f"grade {shell_path(file)}")
        text = answer_text(exercise, grade, f"{again} --hint 1", f"{again} --solution {exercise}")
        print(text, flush=True)
    return right


def exercise_of(file: str, name: str | None = None) -> str:
    """The exercise with this name, or else with the name of the file: softmax.py, softmax_2.py, my_softmax.py.

    Raises: InputError, with a message of one line, if the file or the exercise does not exist.
    """
    if os.path.isdir(file):
        every = command(f"grade --all {shell_path(file)}")
        raise InputError(f"grade: {file} is a folder; grade all its exercises with: {every}")
    if file and not os.path.isfile(file):
        raise InputError(f"grade: there is no file {file}")
    stem = Path(file).stem.lower()
    fitting = [one for one in exercise_texts() if (one == name if name is not None else f"_{one}_" in f"_{stem}_")]
    if not fitting:
        unknown = f"{name} is not an exercise" if name else f"add --exercise NAME, because {file} names no exercise"
        raise InputError(f"grade: {unknown}; the exercises are {', '.join(exercise_texts())}")
    return max(fitting, key=len)


def grade_file(file: Path, exercise: str, time_limit: float = TIME_LIMIT) -> Grade:
    """Grade a file in another Python process."""
    child = [sys.executable, "-P", "-W", "ignore", "-m", CHILD, str(file.resolve()), exercise]
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    environment = {"PYTHONPATH": path, "PYTHONIOENCODING": "utf-8:backslashreplace", "OPENBLAS_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [*child, str(time_limit)], env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
            capture_output=True, check=False, timeout=START_SECONDS + FILE_LIMIT * time_limit,
        )
        said, limit = _text(done.stderr), time_limit
        output = _text(done.stdout)
    except subprocess.TimeoutExpired as slow:
        said, limit = "Timeout", FILE_LIMIT * time_limit
        output = _text(slow.stdout)
    grade, running = Grade(exercise), "the import of the file"
    for record in re.findall(f"^{RECORD}(.*)", output, re.MULTILINE)[-1:]:
        so_far, running = json.loads(record)
        grade = Grade(**so_far)
    if running:
        grade.state, text = _no_result(file, limit, running, said)
        grade.summary = grade.summary or text
        grade.lines += [f"  {line}" for line in _wrapped(text)]
    grade.lines += printed_lines(re.sub(f"\n{RECORD}.*\n", "", output), "The file")
    return grade


def _text(output: bytes | None) -> str:
    return (output or b"").decode("utf-8", errors="replace")


def _no_result(file: Path, seconds: float, running: str, said: str) -> tuple[str, str]:
    """The state and the text if there is no grade: a call or all calls took too long, or the file ended Python."""
    if said.startswith("Timeout"):
        places = re.findall(rf'File "[^"]*{re.escape(file.name)}", line (\d+) in (\w+)', said)
        at = "".join(f" Python was in {name}, line {line} of {file.name}: is there an endless loop?"
                     for line, name in places[:1])
        return "too slow", f"No answer after {seconds:g} seconds in: {running}.{at} {MORE_TIME}"
    why = f": {escaped(said.splitlines()[-1])[:MAX_TEXT]}" if said else ""
    return "broken", f"{file.name} ended the Python process before the grader had a result{why}"


def answer_text(exercise: str, grade: Grade, hint: str, solution: str) -> str:
    """The whole text about an answer; `hint` and `solution` say how to see the first hint and the solution."""
    page = exercise_texts()[exercise]
    lines = [f"{exercise}: {page.title}", *grade.lines]
    holds = f"{grade.passed} of {grade.of} properties hold"
    if grade.state == "right":
        lines += _wrapped(f"All {grade.of} properties hold. Checked: {page.checked}")
        lines += ["Compare with a worked solution:", f"  {solution}"]
    elif grade.state == "to do":
        lines += ["", f"{holds}. The first hint:", f"  {hint}"]
    elif grade.of:
        waiting = "" if grade.passed + 1 == grade.of else "; the other properties of a wrong function were not checked"
        lines += ["", f"{holds}{waiting}. A hint:", f"  {hint}"]
    return "\n".join(lines) + "\n"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 110)


def hint_text(exercise: str, number: int, option: str) -> str:
    """A hint; `option` is the option that asks for a hint, "--hint " or "hint="."""
    hints = exercise_texts()[exercise].hints
    if number not in range(1, len(hints) + 1):
        raise InputError(f"grade: {exercise} has the hints 1 to {len(hints)}, got {option}{number}")
    more = f"\nTry again. If this hint does not help: {option}{number + 1}" if number < len(hints) else ""
    return "\n".join(_wrapped(f"Hint {number} of {len(hints)}: {hints[number - 1]}")) + more


def show_solutions(names: Sequence[str], files: Sequence[str], time_limit: float = TIME_LIMIT) -> bool:
    """Print the solution of each exercise that is passed or named twice, otherwise the last hint; true if all shown.

    The student's answer is the given file, or NAME.py in the given folder, in this folder or in tutorials/exercises.
    """
    shown = True
    for name in dict.fromkeys(names):
        exercise, page = exercise_of("", name), exercise_texts()[name]
        places = [Path(file) for file in files] or [Path("."), FOLDERS[0]]
        own = next((file for one in places for file in (one, one / f"{name}.py") if file.is_file()), None)
        if names.count(name) > 1 or (own is not None and grade_file(own, exercise, time_limit).state == "right"):
            print(f"{name}: {page.title}\n\n{page.solution}\n")
            continue
        shown = False
        print(
            f"{name}: {f'{own} is not right yet' if own else 'your answer was not found here'}, so here is the last "
            f"hint.\n{page.hints[-1]}\n\nTo see the solution before your answer is right, give the name "
            f"twice: {command(f'grade --solution {name} --solution {name}')}\n"
        )
    return shown


def grade_all(files: Sequence[str], time_limit: float = TIME_LIMIT) -> bool:
    """Print a table of all exercises in a folder; true if all are right."""
    folder = next((one for one in map(Path, files or FOLDERS) if files or (one / "softmax.py").is_file()), None)
    if folder is None or not folder.is_dir():
        folder_given = command("grade --all FOLDER")
        raise InputError(f"grade: no exercises found; copy tutorials/exercises, and give its folder: {folder_given}")
    names = list(exercise_texts())
    width = max(map(len, names))
    print(f"{'exercise':<{width}}  state     passed    problem")
    done = 0
    for exercise in names:
        file = folder / f"{exercise}.py"
        if not file.is_file():
            print(f"{exercise:<{width}}  no file")
            continue
        grade = grade_file(file, exercise, time_limit)
        done += grade.state == "right"
        holds = f"{grade.passed:>2} of {grade.of:<2}" if grade.of else ""
        following = "" if grade.state == "to do" else grade.summary
        following = following if len(following) <= 90 else following[:87] + "..."
        line = f"{exercise:<{width}}  {MARKS[grade.state]:<8}  {holds:<8}  {following}"
        print(line.rstrip(), flush=True)
    print(f"{done} of {len(names)} done")
    others = sorted(file.name for file in folder.glob("*.py") if file.stem not in names)
    if others:
        print(f"not graded, because no exercise has this name: {', '.join(map(escaped, others))}")
    return done == len(names)
