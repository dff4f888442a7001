"""Training and sampling on the device: steps of every model, every optimizer, clipping, checkpoints, generation."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numpy_attention.app.tasks import TASKS, make_task
from numpy_attention.backend import move, to_host
from numpy_attention.catalogue.table import CATALOGUE
from numpy_attention.models.gpt import GPT
from numpy_attention.models.gpt_config import GPTConfig
from numpy_attention.models.seq2seq import Seq2Seq
from numpy_attention.models.seq2seq_config import Seq2SeqConfig
from numpy_attention.training import loop
from numpy_attention.training import trainer as trainer_file
from numpy_attention.training.clipping import clip_by_global_norm
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.optimizers import SGD, Adam, AdamW
from numpy_attention.training.parallel import Workers
from numpy_attention.training.restore import load_run
from numpy_attention.training.trainer import Trainer
from tests.backend.devices import Device, waits

OPTIMIZERS = {
    "sgd": lambda p: SGD(p, 0.1),
    "momentum": lambda p: SGD(p, 0.1, momentum=0.9),
    "adam": lambda p: Adam(p, 0.01),
    "adamw": lambda p: AdamW(p, 0.01, weight_decay=0.1),
}
KINDS = ("GPT", "SequenceClassifier", "Seq2Seq", "TextEncoder")
MODELS = [name for name, entry in CATALOGUE.items() if entry.covers in KINDS and ": directions" not in name]
TINY = {
    "layers": 1, "heads": 2, "d_model": 8, "context": 6, "batch": 4, "steps": 3, "warmup": 1, "workers": 1,
    "learning_rate": 1e-2, "eval_every": 100, "save_every": 100,
}  # fmt: skip


def three_steps(model: Any, inputs: dict[str, Any], options: dict[str, Any]) -> list[Any]:
    """The losses and norms before each of three steps of clipped gradient descent; the inputs are on the host."""
    optimizer = SGD(model.parameters(), 0.1, momentum=0.5)
    seen = []
    for _ in range(3):
        loss, cache = model.loss(**inputs, **copy.deepcopy(options))
        grads = model.backward(cache)
        norm = clip_by_global_norm(grads, max_norm=0.5)
        optimizer.step(grads)
        seen += [loss, norm]
    return seen


@pytest.mark.parametrize("name", MODELS)
def test_three_training_steps_agree_with_the_host(name: str, device: Device) -> None:
    """Ids, targets and lengths are on the host: the model moves them."""
    case = CATALOGUE[name].case(seed=8, dtype=np.float32)
    given = case.own_inputs
    here, there = case.layer, copy.deepcopy(case.layer).to(device.backend)
    with device.same_path():
        expected = three_steps(here, given, case.options)
    with waits() as found:
        seen = three_steps(there, given, case.options)
    assert not found, f"{name} waits for the device: {found}"
    for i, (a, b) in enumerate(zip(seen, expected, strict=True)):
        device.agree(a, b, f"{name}: {'norm' if i % 2 else 'loss'} of step {i // 2}")
    for key, p in here.parameters().items():
        device.agree(there.parameters()[key], p, f"{name}: {key} after three steps", 1.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_steps_agree_with_the_host(
    name: str, dtype: Any, device: Device, rng: np.random.Generator
) -> None:
    parameters = {"w": rng.standard_normal((7, 5)).astype(dtype), "b": rng.standard_normal(5).astype(dtype)}
    steps = [{key: rng.standard_normal(p.shape).astype(dtype) for key, p in parameters.items()} for _ in range(4)]
    moved = move(parameters, device.move)
    optimizers = OPTIMIZERS[name](parameters), OPTIMIZERS[name](moved)
    for grads in steps:
        with waits() as found:
            optimizers[1].step(move(grads, device.move))
        optimizers[0].step(grads)
        assert not found
    for key, p in parameters.items():
        device.agree(moved[key], p, key)
    saved, state = move(optimizers[1].state(), to_host), optimizers[0].state()
    assert saved.keys() == state.keys()
    for key, array in state.items():
        device.agree(saved[key], array, key)
    again = OPTIMIZERS[name](moved)
    again.load_state(saved)  # a state from the host, moved to the device
    again.step(move(steps[0], device.move))
    optimizers[0].step(steps[0])
    for key, p in parameters.items():
        device.agree(moved[key], p, f"{key} after one more step")


@pytest.mark.parametrize("max_norm", [0.3, 1e3])
def test_clipping_agrees_with_the_host(max_norm: float, device: Device, rng: np.random.Generator) -> None:
    grads = {"a": rng.standard_normal((3, 4)).astype(np.float32), "b": rng.standard_normal(6).astype(np.float32)}
    moved = move(grads, device.move)
    with waits() as found:
        norm = clip_by_global_norm(moved, max_norm)
    assert not found
    device.agree(norm, clip_by_global_norm(grads, max_norm), "norm")
    for key, g in grads.items():
        device.agree(moved[key], g, key)


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "text.txt"
    path.write_text("to be or not to be, that is the question. " * 20, encoding="utf-8")
    return str(path)


@pytest.fixture
def as_cupy(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--backend cupy` computes on the device of this test run."""
    usual = trainer_file.get_backend
    monkeypatch.setattr(trainer_file, "get_backend", lambda name: device.backend if name == "cupy" else usual(name))


def trainer(directory: Path, text: str, **settings: Any) -> Trainer:
    directory.mkdir(exist_ok=True)
    config = TrainConfig(**(TINY | {"text": text} | settings))
    return Trainer(config, make_task(config), directory)


@pytest.mark.usefixtures("as_cupy")
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_training_loop_waits_once_per_step(dropout: float, device: Device, tmp_path: Path, text: str) -> None:
    there = trainer(tmp_path / "there", text, backend="cupy", dropout=dropout, optimizer="sgd")
    here = trainer(tmp_path / "here", text, dropout=dropout, optimizer="sgd")
    for step in range(3):
        with waits() as found:
            loss, norm, counted = there.one_step()
        assert len(found) <= 1, f"step {step} waits for {found}"
        with device.same_path():
            expected = here.one_step()
        device.agree(np.array([loss, norm]), np.array(expected[:2]), f"loss and norm of step {step}")
        assert counted == expected[2]


def test_branch_on_a_norm_adds_a_second_wait(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    monkeypatch.setattr(trainer_file, "get_backend", lambda name: Device("strict").backend)
    run = trainer(tmp_path / "run", text, backend="cupy")
    monkeypatch.setattr(loop, "clip_by_global_norm", _clipped_by_a_branch)
    with waits() as found:
        run.one_step()
    assert len(found) > 1


def _clipped_by_a_branch(grads: dict[str, Any], max_norm: float) -> Any:
    norm = loop.global_norm(grads)
    return clip_by_global_norm(grads, max_norm) if norm > max_norm else norm


@pytest.mark.usefixtures("as_cupy")
@pytest.mark.parametrize(("first", "second"), [("numpy", "cupy"), ("cupy", "numpy"), ("cupy", "cupy")])
def test_run_can_be_resumed_on_another_backend(
    first: str, second: str, device: Device, tmp_path: Path, text: str
) -> None:
    whole, broken = trainer(tmp_path / "whole", text), trainer(tmp_path / "broken", text, backend=first)
    with device.same_path():
        losses = [whole.one_step()[0] for _ in range(4)]
        again = [broken.one_step()[0] for _ in range(2)]
        broken.save()
        config, arrays, meta = load_run(tmp_path / "broken")
        assert all(isinstance(array, np.ndarray) for array in arrays.values())
        resumed = trainer(tmp_path / "broken", text, backend=second)
        resumed.restore(arrays, meta)
        again += [resumed.one_step()[0] for _ in range(2)]
    assert config.backend == first
    if device.exact:
        assert again == losses
    else:
        assert again == pytest.approx(losses, rel=1e-4)


@pytest.mark.usefixtures("as_cupy")
def test_both_backends_start_from_the_same_weights(device: Device, tmp_path: Path, text: str) -> None:
    here, there = trainer(tmp_path / "here", text), trainer(tmp_path / "there", text, backend="cupy")
    for key, p in here.model.parameters().items():
        np.testing.assert_array_equal(device.host(there.model.parameters()[key]), p)


@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi", "sinusoidal"])
@pytest.mark.parametrize(
    "how", [{"temperature": 0.0}, {"temperature": 0.7, "top_k": 3}, {"top_p": 0.8}, {"use_cache": False}]
)
def test_generation_gives_the_same_tokens(positions: str, how: dict[str, Any], device: Device) -> None:
    config = GPTConfig(vocab_size=11, context_length=6, d_model=8, num_heads=2, num_layers=2, positions=positions)
    here = GPT(config, np.random.default_rng(0), np.float64)
    there = copy.deepcopy(here).to(device.backend)
    prompts = [[1, 2, 3], [4], [5, 6, 7, 8, 9, 10, 1]]  # unequal lengths, one beyond the context
    expected = here.generate(prompts, 5, rng=np.random.default_rng(1), **how)
    with waits() as found:
        rows = there.generate(prompts, 5, rng=np.random.default_rng(1), **how)
    assert len(found) <= 5, f"five tokens wait for {found}"
    for row, other in zip(rows, expected, strict=True):
        np.testing.assert_array_equal(row, other)


def test_translation_gives_the_same_tokens(device: Device) -> None:
    config = Seq2SeqConfig(7, 8, context_length=6, d_model=8, num_heads=2, pad_token=0)
    here = Seq2Seq(config, np.random.default_rng(0), np.float64)
    there = copy.deepcopy(here).to(device.backend)
    source = np.array([[3, 4, 5, 0], [6, 2, 0, 0]])
    lengths = {"source_lengths": np.array([3, 2])}
    ways = [("greedy", {}), ("greedy", lengths), ("beam_search", {"beam_size": 3}), ("beam_search", lengths)]
    for search, more in ways:
        rows, expected = (getattr(model, search)(source, 1, 2, 5, **more) for model in (there, here))
        for row, other in zip(rows, expected, strict=True):
            np.testing.assert_array_equal(row, other)


def test_refuses_invalid_ids_before_they_are_moved(device: Device) -> None:
    """CuPy would silently read another row of the table."""
    config = GPTConfig(vocab_size=11, context_length=6, d_model=8, num_heads=2, num_layers=1)
    model = GPT(config, np.random.default_rng(0)).to(device.backend)
    good = np.array([[1, 2, 3]])
    with pytest.raises(ValueError, match="embedding: ids must be integers in \\[0, 11\\)"):
        model.loss(np.array([[1, 11, 3]]), good)
    with pytest.raises(ValueError, match="cross_entropy: targets must be integers in \\[0, 11\\)"):
        model.loss(good, np.array([[1, -1, 3]]))


def test_two_ways_to_sum_the_gradient_of_an_embedding_agree(device: Device, rng: np.random.Generator) -> None:
    """`np.add.at` on a GPU and sorting on the host give the same sums in another order."""
    entry = CATALOGUE["embedding"].case(seed=3, sizes={"B": 40, "T": 30, "V": 7, "d_model": 5})
    y, cache = entry.op(**entry.inputs)
    dy = rng.standard_normal(y.shape)
    sorted_sum = entry.op_backward(dy, cache)
    with device.same_path():
        plain_sum = entry.op_backward(dy, cache)
    np.testing.assert_allclose(plain_sum, sorted_sum, rtol=0, atol=1e-13 * np.abs(dy).sum())


@pytest.mark.usefixtures("as_cupy")
def test_induction_task_gives_the_same_figures(device: Device, tmp_path: Path) -> None:
    """Losses, attention scores of heads, and eigenvalues, which are computed on the host."""
    sizes = {"context": 8, "d_model": 8, "heads": 2, "d_ff": 6, "batch": 2, "steps": 1}
    figures = []
    for backend in ("cupy", "numpy"):
        task = TASKS["induction"].defaults | {"task": "induction", "workers": 1, "backend": backend}
        config = TrainConfig(**(task | sizes))
        run = Trainer(config, make_task(config), tmp_path)
        with Workers(1) as workers:
            figures.append(run.task.evaluate(run.model, workers))
            assert "guessing" in run.task.report(run.model, np.random.default_rng(0), workers)
    assert figures[0].keys() == figures[1].keys()
    for name, there in figures[0].items():
        np.testing.assert_allclose(there, figures[1][name], rtol=1e-4, atol=1e-4, err_msg=name)
