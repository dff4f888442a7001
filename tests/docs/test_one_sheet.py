"""docs/one_sheet.md: its lines are read from the page and run; loss and gradients equal those of the package's GPT.

The page gives the lines and their order. This test gives NumPy's names, the parameters, and the loop over the blocks.
"""

import functools
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import numpy_attention as na
from tests.every import each

PAGE = Path(__file__).parents[2] / "docs" / "one_sheet.md"
DEFINITIONS, LINES = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
COLUMN = LINES.index("|")
Arrays = dict[str, Any]


class Part(NamedTuple):
    """The statements of a part of the sheet in the order in which they run."""

    forward: tuple[str, ...]
    backward: tuple[str, ...]


def statements(lines: list[str]) -> tuple[str, ...]:
    return tuple(one.strip() for line in lines for one in line.split(";") if one.strip())


def read_sheet() -> dict[str, Part]:
    """The parts between the comment lines; both kinds of lines of a block are one part."""
    columns: dict[str, tuple[list[str], list[str]]] = {}
    name = ""
    for line in filter(None, LINES.splitlines()):
        if line.startswith("#"):
            name = re.split(r"[,:]", line.removeprefix("#").strip())[0]
            continue
        assert line[COLUMN] == "|", line
        left, right = columns.setdefault(name, ([], []))
        left.append(line[:COLUMN])
        right.append(line[COLUMN + 1 :])
    return {name: Part(statements(left), statements(right[::-1])) for name, (left, right) in columns.items()}


TOKENS, BLOCK, LOSS = "Tokens become vectors", "Each block", "After the last block"
SHEET = read_sheet()
MODEL = na.GPT(na.GPTConfig(vocab_size=11, context_length=9, d_model=12, num_heads=3, num_layers=3, d_ff=20),
               np.random.default_rng(0), np.float64)
RENAMED = {
    "token_embedding.table": "table", "position_embedding.table": "positions",
    "norm_1.gamma": "gamma_1", "norm_1.beta": "beta_1", "norm_2.gamma": "gamma_2", "norm_2.beta": "beta_2",
}


def on_sheet(name: str) -> tuple[int | None, str]:
    """The block and the name on the sheet of a parameter of the package."""
    block = re.match(r"blocks\.(\d)\.", name)
    short = name[block.end() :] if block else name
    return (int(block[1]) if block else None), RENAMED.get(short, short.rpartition(".")[2])


def run(lines: tuple[str, ...], names: Arrays) -> None:
    for line in lines:
        exec(line, names)


def loss_and_gradients(sheet: dict[str, Part], ids: np.ndarray, targets: np.ndarray) -> tuple[float, Arrays]:
    """Run the sheet with the parameters of MODEL: the left column down, and the right column up."""
    outside: Arrays = {**vars(np), "ids": ids, "targets": targets, "H": MODEL.config.num_heads}
    parameters = {name: on_sheet(name) for name in MODEL.parameters()}
    outside |= {name: p for (i, name), p in zip(parameters.values(), MODEL.parameters().values()) if i is None}
    exec(DEFINITIONS, outside)
    run(sheet[TOKENS].forward, outside)
    blocks: list[Arrays] = []
    for number in range(MODEL.config.num_layers):
        own = {name: p for (i, name), p in zip(parameters.values(), MODEL.parameters().values()) if i == number}
        blocks.append({**outside, **own})
        run(sheet[BLOCK].forward, blocks[-1])
        outside["x"] = blocks[-1]["x"]
    run(sheet[LOSS].forward + sheet[LOSS].backward, outside)
    for block in reversed(blocks):
        block["dx"] = outside["dx"]
        run(sheet[BLOCK].backward, block)
        outside["dx"] = block["dx"]
    run(sheet[TOKENS].backward, outside)
    gradients = {full: (outside if i is None else blocks[i])[f"d{name}"] for full, (i, name) in parameters.items()}
    return float(outside["loss"]), gradients


def drawn() -> tuple[np.ndarray, np.ndarray]:
    """Random parameters in MODEL, and random ids and targets."""
    rng = np.random.default_rng(1)
    for p in MODEL.parameters().values():
        p[...] = rng.normal(0.0, 0.6, p.shape)
    ids, targets = rng.integers(8, size=(2, 4, 7))  # 28 tokens of 8 kinds; 7 of 9 positions
    return ids, targets


IDS, TARGETS = drawn()


@functools.cache
def of_package() -> tuple[float, Arrays]:
    loss, cache = MODEL.loss(IDS, TARGETS)
    return float(loss), MODEL.backward(cache)


def errors(sheet: dict[str, Part]) -> dict[str, float]:
    """The largest differences from the package, relative to the loss and to the largest element of each gradient."""
    right, expected = of_package()
    loss, gradients = loss_and_gradients(sheet, IDS, TARGETS)
    assert expected.keys() == gradients.keys()
    found = {"loss": abs(loss / right - 1)}
    for name, gradient in expected.items():
        assert gradients[name].shape == gradient.shape, name
        largest = 1.0 if name.endswith(".b_k") else abs(gradient).max()  # the gradient of b_k is zero
        found[name] = float(abs(gradients[name] - gradient).max() / largest)
    return found


def test_loss_and_every_gradient_equal_those_of_the_package() -> None:
    off = errors(SHEET)
    assert len(off) == 1 + len(MODEL.parameters())
    assert max(off.values()) < 1e-10, off


BACKWARD = [(part, n) for part in SHEET for n in range(len(SHEET[part].backward))]
ZERO = ("dpositions", "db_k")  # a changed sign changes nothing: dpositions before add.at, and db_k always


@each(BACKWARD, lambda place: SHEET[place[0]].backward[place[1]])
def test_a_deleted_or_negated_line_of_the_backward_is_found(place: tuple[str, int]) -> None:
    part, n = place
    lines = SHEET[part].backward
    target, _, value = lines[n].partition(" = ")
    if target in ZERO:
        wrong_line = f"{lines[n]} + 1"
    else:
        wrong_line = f"{target} = -({value})" if value else target.replace(", dx)", ", -dx)")  # or add.at(a, ids, dx)
    assert wrong_line != lines[n]
    for wrong in ("pass", wrong_line):
        sheet = SHEET | {part: SHEET[part]._replace(backward=(*lines[:n], wrong, *lines[n + 1 :]))}
        try:
            largest = max(errors(sheet).values())
        except (NameError, KeyError):
            continue  # without a deleted line, an array does not exist
        assert largest > 1e-3, wrong
