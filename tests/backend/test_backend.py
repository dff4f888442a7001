"""Every op, layer and model gives the same results on the device as in NumPy, and missing GPUs are explained.

The device is a simulation with CuPy's rules (strict_array.py), or with `--backend cupy` a real GPU. On the simulation
results are compared bit for bit. A GPU adds in another order, so there the tolerance is 200 eps of the dtype, relative
to the largest number.
"""

import copy
import re
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numpy_attention import GPT, GPTConfig
from numpy_attention.app.main import main
from numpy_attention.app.tasks import make_task
from numpy_attention.backend import NumPyBackend, get_backend, move, to_host
from numpy_attention.gradcheck.trees import leaves
from numpy_attention.training import c32_trainer as trainer_file
from numpy_attention.training.c25_optimizers import SGD
from numpy_attention.training.c25a_clipping import clip_by_global_norm
from numpy_attention.training.c32_trainer import Trainer
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.restore import load_run
from numpy_attention.tutor.catalogue import CATALOGUE
from tests.backend.strict_array import WAITS, StrictArray, StrictBackend

MODELS = [name for name, entry in CATALOGUE.items()
          if entry.covers in ("GPT", "SequenceClassifier", "Seq2Seq", "TextEncoder") and ": directions" not in name]


class Device:
    """A backend, and the comparison with NumPy."""

    def __init__(self, name: str) -> None:
        self.backend = StrictBackend() if name == "strict" else get_backend(name)
        self.exact = name == "strict"

    def move(self, tree: Any) -> Any:
        return move(tree, self.backend.asarray)

    def agree(self, there: Any, here: Any) -> None:
        """Compare all arrays of two trees."""
        found, expected = (dict(leaves(move(tree, to_host), "result")) for tree in (there, here))
        assert found.keys() == expected.keys()
        largest = max(float(np.abs(one).max(initial=0.0)) for one in expected.values() if one is not None)
        for name, one in expected.items():
            if one is None:
                assert found[name] is None, name
                continue
            assert found[name].dtype == one.dtype, name
            inexact = not self.exact and one.dtype.kind == "f"
            atol = 200 * float(np.finfo(one.dtype).eps) * largest if inexact else 0.0
            np.testing.assert_allclose(found[name], one, rtol=0, atol=atol, err_msg=name)


@pytest.fixture(scope="module")
def device(request: pytest.FixtureRequest) -> Device:
    return Device(request.config.getoption("--backend"))


@contextmanager
def at_most(waits: int) -> Iterator[None]:
    """The block makes the host wait for the simulated device at most this often."""
    start = len(WAITS)
    yield
    assert len(WAITS) - start <= waits, f"waits for the device: {WAITS[start:]}"


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_forward_and_backward_of_every_entry_agree_with_numpy(
    name: str, device: Device, rng: np.random.Generator
) -> None:
    case = CATALOGUE[name].case(seed=5, dtype=np.float32)
    y, cache = case.op(**case.inputs, **copy.deepcopy(case.options))
    of_one = [np.asarray(rng.standard_normal(one.shape), one.dtype) for one in (y if isinstance(y, tuple) else (y,))]
    dy = tuple(of_one) if isinstance(y, tuple) else of_one[0]
    grads = case.op_backward(dy, cache)
    with at_most(0):
        y_there, cache_there = case.op(**device.move(case.inputs), **device.move(copy.deepcopy(case.options)))
        grads_there = case.op_backward(device.move(dy), cache_there)
    device.agree(y_there, y)
    device.agree(grads_there, grads)


@pytest.mark.parametrize("name", MODELS)
def test_a_training_step_of_every_model_agrees_with_numpy(name: str, device: Device) -> None:
    """Ids, targets and lengths are on the host: the model moves them."""
    case = CATALOGUE[name].case(seed=8, dtype=np.float32)
    found = []
    for model in (case.layer, copy.deepcopy(case.layer).to(device.backend)):
        with at_most(0):
            loss, cache = model.loss(**case.own_inputs, **copy.deepcopy(case.options))
            grads = model.backward(cache)
            norm = clip_by_global_norm(grads, max_norm=0.5)
            SGD(model.parameters(), 0.1, momentum=0.5).step(grads)
        found.append([loss, norm, *model.parameters().values()])
    device.agree(found[1], found[0])


def test_run_resumes_on_another_backend_and_a_step_waits_once(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        trainer_file, "get_backend", lambda name: device.backend if name == "cupy" else NumPyBackend())
    (tmp_path / "text.txt").write_text("to be or not to be, that is the question. " * 20, "utf-8")

    def trainer(name: str, **settings: Any) -> Trainer:
        sizes = {"layers": 1, "heads": 2, "d_model": 8, "context": 6, "batch": 4, "steps": 3, "workers": 1}
        config = TrainConfig(text=str(tmp_path / "text.txt"), dropout=0.2, **{**sizes, **settings})
        (tmp_path / name).mkdir(exist_ok=True)
        return Trainer(config, make_task(config), tmp_path / name)

    whole = trainer("whole")
    losses = [whole.one_step()[0] for _ in range(4)]
    for first, second in (("numpy", "cupy"), ("cupy", "numpy")):
        broken = trainer(first, backend=first)
        with at_most(2):
            found = [broken.one_step()[0] for _ in range(2)]
        broken.save()
        _, arrays, meta = load_run(tmp_path / first)
        assert all(type(array.read()) is np.ndarray for array in arrays.values())
        resumed = trainer(first, backend=second)
        resumed.restore(arrays, meta)
        found += [resumed.one_step()[0] for _ in range(2)]
        assert found == losses if device.exact else found == pytest.approx(losses, rel=1e-4)


@pytest.mark.parametrize("how", [{"temperature": 0.0}, {"temperature": 0.7, "top_k": 3}, {"use_cache": False}])
def test_generation_gives_the_same_tokens(how: dict[str, Any], device: Device) -> None:
    config = GPTConfig(vocab_size=11, context_length=6, d_model=8, num_heads=2, num_layers=1, positions="rotary")
    here = GPT(config, np.random.default_rng(0), np.float64)
    there = copy.deepcopy(here).to(device.backend)
    prompts = [[1, 2, 3], [4], [5, 6, 7, 8, 9, 10, 1]]  # unequal lengths, one beyond the context
    expected = here.generate(prompts, 5, rng=np.random.default_rng(1), **how)
    with at_most(5):
        rows = there.generate(prompts, 5, rng=np.random.default_rng(1), **how)
    assert [row.tolist() for row in rows] == [row.tolist() for row in expected]


def test_invalid_ids_are_refused_before_they_are_moved(device: Device) -> None:
    """CuPy would read another row of the table, without an error."""
    config = GPTConfig(vocab_size=11, context_length=6, d_model=8, num_heads=2, num_layers=1)
    model = GPT(config, np.random.default_rng(0)).to(device.backend)
    with pytest.raises(ValueError, match="embedding: ids must be integers in \\[0, 11\\)"):
        model.loss(np.array([[1, 11, 3]]), np.array([[1, 2, 3]]))


def test_code_of_the_page_on_gpus_runs(
    device: Device, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "gpu.md").read_text("utf-8")
    monkeypatch.setattr("numpy_attention.backend.get_backend", lambda name: device.backend)
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "docs/gpu.md", "exec"), names)
    assert isinstance(names["tokens"], np.ndarray)
    assert [line[0] for line in capsys.readouterr().out.splitlines()] == ["0", "1", "2"]


@pytest.mark.parametrize(("cupy", "sentence"), [
    (None, "CuPy"), (types.SimpleNamespace(), r"GPU here \(.* no attribute 'arange'\); check that nvidia-smi lists"),
], ids=["no CuPy", "no GPU"])
def test_missing_gpu_is_one_line_with_a_fix(
    cupy: Any, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", cupy)  # None: `import cupy` raises ImportError
    assert main(["train", "--out", str(tmp_path / "run"), "--backend", "cupy"]) == 2
    out, error = capsys.readouterr()
    assert (out, error.count("\n")) == ("", 1)
    assert re.search(sentence, error)


X, IDS, MASK = np.arange(12.0).reshape(3, 4) - 5, np.array([2, 0, 2]), np.arange(12).reshape(3, 4) > 5
MISTAKES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a host array": lambda x, ids, mask: x + np.zeros(x.shape),
    "out on the host": lambda x, ids, mask: np.exp(x, out=np.zeros((3, 4))),
    "written from the host": lambda x, ids, mask: x.__setitem__(0, np.arange(4.0)),
    "host indices": lambda x, ids, mask: x[IDS],
    "one row written twice": lambda x, ids, mask: x.__setitem__(ids, x),
    "where= in a ufunc": lambda x, ids, mask: np.exp(x, where=mask, out=np.zeros_like(x)),
    "initial=": lambda x, ids, mask: np.max(x, axis=-1, initial=-1.0),
    "matmul(out=)": lambda x, ids, mask: np.matmul(x, x.T, out=np.empty_like(x, shape=(3, 3))),
    "shape=()": lambda x, ids, mask: np.zeros_like(x, shape=()),
    "maximum.reduce": lambda x, ids, mask: np.maximum.reduce(x, axis=-1),
    "np.asarray": lambda x, ids, mask: np.asarray(x),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_simulation_refuses_what_cupy_refuses(name: str) -> None:
    MISTAKES[name](X.copy(), IDS, MASK)  # NumPy accepts it
    with pytest.raises((TypeError, IndexError, AttributeError)):
        MISTAKES[name](StrictArray(X), StrictArray(IDS), StrictArray(MASK))


def test_simulation_notes_each_read_of_a_value() -> None:
    total = StrictArray(X).sum()
    assert isinstance(total, StrictArray), "a reduction gives an array without axes"
    for read in (float, int, bool, repr, lambda s: s.item(), lambda s: s.get(), lambda s: s[s > 0]):
        before = len(WAITS)
        read(total)
        assert len(WAITS) == before + 1
