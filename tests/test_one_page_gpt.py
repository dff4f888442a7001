"""tutorials/one_page_gpt.py: two printed pages that equal a model of the package and check each gradient."""

import ast
import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from unittest import mock

import numpy as np
import pytest

import numpy_attention as na

FILE = Path(__file__).parents[1] / "tutorials" / "one_page_gpt.py"
SOURCE = FILE.read_text("utf-8")
TREE = ast.parse(SOURCE)

# A line of each backward, and the same line with a mistake.
MISTAKES = [
    ("y * (dy - (dy * y).sum(-1, keepdims=True))", "y * (1 - y) * dy"),
    ("r * (dy - y * (dy * y).mean(-1, keepdims=True))", "r * dy"),
    ("r * (dy - y * (dy * y).mean(-1, keepdims=True))", "r * (dy - y * (dy * y).sum(-1, keepdims=True))"),
    ("x.reshape(-1, x.shape[-1]).T @ dy.reshape(-1, dy.shape[-1])", "x[0].T @ dy[0]"),
    ("dheads = split(dy @ w_o.T)", "dheads = split(dy @ w_o)"),
    ("dweights = dheads @ v.mT", "dweights = dheads @ k.mT"),
    ("dv = merge(weights.mT @ dheads)", "dv = merge(weights @ dheads)"),
    ("(dweights, weights) / q.shape[-1] ** 0.5", "(dweights, weights)"),
    ("dq = merge(dscores @ k)", "dq = merge(dscores @ q)"),
    ("dk = merge(dscores.mT @ q)", "dk = merge(dscores @ q)"),
    ("dq @ w_q.T + dk @ w_k.T + dv @ w_v.T", "dq @ w_q.T + dk @ w_k.T"),
    ("dw(x, dv), dw(heads, dy)", "dw(x, dv), dw(x, dy)"),
    ("return dx, dw(x, dq), dw(x, dk),", "return dx, dw(x, dk), dw(x, dq),"),
    ("dy @ w_2.T * (h > 0)", "dy @ w_2.T"),
    ("return dh @ w_1.T, dw(x, dh), dw(h, dy)", "return dh @ w_1.T, dw(x, dh), 2 * dw(h, dy)"),
    ("(probability - one_hot) / targets.size", "(probability - one_hot)"),
    ('g["table"] += dw(dlogits, y)', "pass"),
    ('rms_norm_backward(dlogits @ p["table"], norm)', 'dlogits @ p["table"]'),
    ("= feed_forward_backward(dx, fed)", "= feed_forward_backward(2 * dx, fed)"),
    ("dx = dx + rms_norm_backward(dy, norm_2)", "dx = rms_norm_backward(dy, norm_2)"),
    ("= attention_backward(dx, attended)", "= attention_backward(dy, attended)"),
    ("dx = dx + rms_norm_backward(dy, norm_1)", "dx = dx + dy"),
    ('np.add.at(g["table"], ids, dx)', 'g["table"][ids] += dx'),
    ('g["positions"][: ids.shape[1]] = dx.sum(0)', 'g["positions"][: ids.shape[1]] = dx.mean(0)'),
]


def loaded(source: str = SOURCE) -> ModuleType:
    module = ModuleType("one_page_gpt")
    with mock.patch.dict(os.environ):  # the file sets a variable
        exec(compile(source, str(FILE), "exec"), vars(module))
    return module


def printed_by_check(module: ModuleType) -> tuple[bool, list[str]]:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        right = module.check(np.random.default_rng(0))
    return right, output.getvalue().splitlines()


def test_numpy_is_the_only_import_outside_the_standard_library() -> None:
    imports = [node for node in ast.walk(TREE) if isinstance(node, (ast.Import, ast.ImportFrom))]
    modules = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in imports}
    assert {module.split(".")[0] for module in modules} - sys.stdlib_module_names == {"numpy"}


def twin(one_page: ModuleType, p: dict[str, np.ndarray]) -> tuple[na.GPT, dict[str, tuple[str, int | None]]]:
    """The model of the package with the same parameters, and for each of its names the name and layer in `p`."""
    config = na.GPTConfig(
        vocab_size=len(p["table"]), context_length=one_page.T, d_model=one_page.d_model, d_ff=one_page.d_ff,
        num_heads=one_page.num_heads, num_layers=one_page.num_layers, norm="rms_norm", activation="relu", bias=False,
    )
    model = na.GPT(config, np.random.default_rng(0), np.float64)
    names: dict[str, tuple[str, int | None]] = {}
    for name, a in model.parameters().items():
        if name.endswith(".gamma"):
            assert (a == 1.0).all()  # the page has a norm without gamma
        elif name.startswith("blocks."):
            names[name] = (name.split(".")[-1], int(name.split(".")[1]))
        else:
            names[name] = ({"token_embedding.table": "table", "position_embedding.table": "positions"}[name], None)
        if name in names:
            key, layer = names[name]
            a[...] = p[key] if layer is None else p[key][layer]
    return model, names


@pytest.mark.parametrize("length", [32, 7])
def test_loss_and_every_gradient_equal_those_of_the_package(length: int, rng: np.random.Generator) -> None:
    one_page = loaded()
    p = one_page.new_parameters(13, rng, float)
    ids, targets = rng.integers(13, size=(2, 3, length))
    loss, g = one_page.loss_and_gradients(p, ids, targets)
    model, names = twin(one_page, p)
    expected_loss, cache = model.loss(ids, targets)
    assert loss == pytest.approx(float(expected_loss), rel=1e-14)
    gradients = model.backward(cache)
    for name, (key, layer) in names.items():
        got = g[key] if layer is None else g[key][layer]
        scale = np.abs(gradients[name]).max()
        np.testing.assert_allclose(got, gradients[name], rtol=0, atol=1e-13 * scale, err_msg=name)
    assert {key for key, _ in names.values()} == set(p) == set(g)
    assert sum(layer is not None for _, layer in names.values()) == 6 * one_page.num_layers


@pytest.mark.slow
def test_check_passes_as_a_command() -> None:
    done = subprocess.run([sys.executable, FILE, "check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(loaded().new_parameters(11, np.random.default_rng(0)))
    assert all(line.endswith(" right") for line in lines)


@pytest.mark.parametrize(("right", "wrong"), MISTAKES)
def test_check_finds_a_mistake_in_each_line_of_the_backwards(right: str, wrong: str) -> None:
    assert SOURCE.count(right) == 1
    ok, lines = printed_by_check(loaded(SOURCE.replace(right, wrong)))
    assert not ok
    assert len(lines) == 8
    assert any(line.endswith("WRONG") for line in lines)


def test_each_line_of_the_backwards_has_a_mistake_in_the_list() -> None:
    """Lines that only unpack a cache or allocate zeros are left out; the loss itself belongs to the forward."""
    lines = SOURCE.splitlines()
    without = re.compile(r"= cache|= caches\[|g = \{|return loss, g|for i in|logits, |probability =|one_hot =|loss =")
    functions = [
        node for node in TREE.body
        if isinstance(node, ast.FunctionDef) and (node.name.endswith("_backward") or node.name == "loss_and_gradients")
    ]
    assert len(functions) == 5
    for function in functions:
        for line in lines[function.lineno : function.end_lineno]:
            planted = any(right in line for right, _ in MISTAKES)
            assert planted or without.match(line.strip()) or without.search(line), f"no mistake in: {line}"


@pytest.mark.slow
def test_loss_falls_and_a_text_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    one_page = loaded()
    one_page.T, one_page.d_model, one_page.d_ff = 16, 16, 32
    one_page.train("abcdefgh " * 50, np.random.default_rng(0), steps=200, batch_size=4)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[:3]] == ["1:", "100:", "200:"]
    losses = [float(line.split()[2]) for line in lines[1:3]]
    assert losses[1] < losses[0] < np.log(9)
    assert len("\n".join(lines[3:])) == 501
