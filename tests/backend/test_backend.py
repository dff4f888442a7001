"""The backends, their errors when a GPU is missing, and arrays that no op accepts."""

import copy
import json
import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numpy_attention.app.main import main
from numpy_attention.backend import BackendError, NumPyBackend, copied_to_host, get_backend, move, to_host
from numpy_attention.catalogue.table import CATALOGUE
from numpy_attention.ops import linear, linear_backward
from tests.backend.devices import Device
from tests.backend.strict_array import StrictArray
from tests.every import each


def broken(error: Exception) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        raise error

    return call


def fake_cupy(arange: Any) -> types.ModuleType:
    module = types.ModuleType("cupy")
    module.__dict__.update(arange=arange)
    return module


def test_numpy_arrays_stay_where_they_are(rng: np.random.Generator) -> None:
    backend, x = get_backend("numpy"), rng.standard_normal(3)
    assert backend.name == "numpy"
    assert backend.asarray(x) is x
    assert backend.to_host(x) is x
    backend.synchronize()


def test_array_moved_to_the_device_and_back_is_unchanged(device: Device, rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 3)).astype(np.float32)
    there = device.move(x)
    assert not isinstance(there, np.ndarray)
    assert device.move(there) is there
    back = to_host(there)
    assert back.dtype == x.dtype
    np.testing.assert_array_equal(back, x)
    device.backend.synchronize()


def test_move_moves_every_array_of_a_tree() -> None:
    cache = CATALOGUE["layer_norm"].case().op(**CATALOGUE["layer_norm"].case().inputs)[1]
    tree = {"cache": cache, "more": [np.ones(2), None, "text", (1, np.zeros(3))], "rate": 0.5}
    moved = move(tree, StrictArray)
    assert isinstance(moved["cache"], type(cache))
    assert all(isinstance(part, StrictArray) for part in moved["cache"])
    assert isinstance(moved["more"][3][1], StrictArray)
    assert moved["more"][1:3] == [None, "text"]
    back = move(moved, to_host)
    np.testing.assert_array_equal(back["cache"].x_hat, cache.x_hat)


def test_op_copied_to_host_takes_and_returns_host_arrays(device: Device, rng: np.random.Generator) -> None:
    x, w = rng.standard_normal((5, 3)), rng.standard_normal((3, 2))
    op, op_backward = copied_to_host(linear, linear_backward, device.backend)
    y, cache = op(x, w=w)
    dx, dw, db = op_backward(np.ones_like(y), cache)
    assert isinstance(cache.w, type(device.move(w)))
    assert db is None
    device.agree(y, x @ w, "y")
    device.agree(dw, x.T @ np.ones((5, 2)), "dw")
    assert isinstance(dx, np.ndarray)


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(BackendError, match="choose one of numpy, cupy"):
        get_backend("cuda")


MISSING = {
    "not installed": (None, r"pip install 'cupy-cuda12x\[ctk\]'"),
    "no device": (fake_cupy(broken(RuntimeError("none\nat all"))), r"on a GPU here \(none\); check that nvidia-smi"),
}


@pytest.mark.parametrize("what", MISSING)
def test_missing_gpu_gives_an_error_of_one_line_with_a_fix(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, sentence = MISSING[what]
    monkeypatch.setitem(sys.modules, "cupy", module)
    if module is None:  # as if CuPy were not installed
        absent = ModuleNotFoundError("No module named 'cupy'", name="cupy")
        monkeypatch.setattr("importlib.import_module", broken(absent))
    with pytest.raises(BackendError, match=sentence) as caught:
        get_backend("cupy")
    assert "\n" not in str(caught.value)


def test_a_cupy_that_does_not_import_gives_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.import_module", broken(ImportError("libcuda.so.1: cannot open\nshared object")))
    message = r"on a GPU here \(libcuda.so.1: cannot open\); check that nvidia-smi"
    with pytest.raises(BackendError, match=message) as caught:
        get_backend("cupy")
    assert "\n" not in str(caught.value)


def test_command_line_prints_the_error_in_one_line_and_exits_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(broken(RuntimeError("no device"))))
    for command in (["train", "--out", str(tmp_path / "run")], ["gradcheck", "softmax"]):
        assert main([*command, "--backend", "cupy"]) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.startswith("numpy-attention: CuPy cannot compute on a GPU here (no device); check")
        assert shown.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_gradcheck_computes_on_the_backend(
    device: Device, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = []
    usual = device.backend.asarray
    monkeypatch.setattr("numpy_attention.app.gradcheck.get_backend", lambda name: device.backend)
    monkeypatch.setattr(device.backend, "asarray", lambda array: made.append(array) or usual(array))
    assert main(["gradcheck", "linear", "Linear", "--backend", "cupy"]) == 0
    assert made
    assert "0 wrong" in capsys.readouterr().out


def test_loaded_parameters_move_to_the_device_of_the_layer(device: Device) -> None:
    layer = CATALOGUE["Linear"].case().layer
    there = copy.deepcopy(layer).to(device.backend)
    assert there.num_parameters() == layer.num_parameters()
    there.load_parameters({name: p + 1.0 for name, p in layer.parameters().items()})
    for name, p in layer.parameters().items():
        device.agree(there.parameters()[name], p + 1.0, name)
    back = there.to(NumPyBackend())
    assert all(isinstance(p, np.ndarray) for p in back.parameters().values())


class LazyArray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array like those of some libraries: NumPy functions that it does not implement run on a copy.

    `np.copyto(lazy, ...)` then writes into the copy, and attention would silently ignore its mask.
    """

    def __init__(self, numbers: Any) -> None:
        self.numbers = np.array(numbers)
        self.shape, self.dtype = self.numbers.shape, self.numbers.dtype
        self.ndim, self.size = self.numbers.ndim, self.numbers.size

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.numbers.copy()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return LazyArray(getattr(ufunc, method)(*move(inputs, np.asarray), **move(kwargs, np.array)))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        found = function(*move(args, np.asarray), **move(kwargs, np.asarray))
        return LazyArray(found) if isinstance(found, np.ndarray) else found

    def __getitem__(self, index: Any) -> Any:
        return LazyArray(self.numbers[move(index, np.asarray)])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **kwargs: LazyArray(getattr(self.numbers, name)(*args, **kwargs))


@each(sorted(CATALOGUE))
def test_array_of_another_library_works_or_is_refused_with_a_fix(name: str) -> None:
    case = CATALOGUE[name].case(seed=9)
    refusal = ""
    try:
        y, _ = case.op(**move(case.inputs, LazyArray), **case.options)
    except TypeError as error:
        refusal = str(error)
    if refusal:
        assert "of NumPy or CuPy, got " in refusal
        assert "convert it: np.asarray(" in refusal
    else:
        expected, _ = CATALOGUE[name].case(seed=9).op(**case.inputs, **case.options)
        np.testing.assert_array_equal(np.asarray(y), expected)


@pytest.mark.parametrize("argument", ["mask", "bias", "k"])
def test_refuses_one_array_of_another_library_among_numpy_arrays(argument: str) -> None:
    case = CATALOGUE["scaled_dot_product_attention: mask and bias"].case()
    mixed = {**case.inputs, argument: LazyArray(case.inputs[argument])}
    with pytest.raises(TypeError, match=rf"{argument} must be .* of NumPy or CuPy, got .*LazyArray; convert it"):
        case.op(**mixed)
    y, cache = case.op(**case.inputs)
    with pytest.raises(TypeError, match="dy must be an array of NumPy or CuPy"):
        case.op_backward(LazyArray(np.ones_like(y)), cache)


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_refuses_np_matrix() -> None:
    with pytest.raises(TypeError, match=r"gelu: x must be an array of floats of NumPy or CuPy, got numpy\.matrix"):
        CATALOGUE["gelu: tanh"].op(np.matrix([[1.0, 2.0], [3.0, 4.0]]))


def test_the_code_in_the_docs_runs(
    device: Device, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "gpu.md").read_text("utf-8")
    monkeypatch.setattr("numpy_attention.backend.get_backend", lambda name: device.backend)
    for block in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        names: dict[str, Any] = {}
        exec(compile(block, "docs/gpu.md", "exec"), names)
        assert names["backend"] is device.backend
        assert isinstance(names["tokens"], np.ndarray)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["0", "1", "2"]
    version = json.loads(Path(__file__).with_name("cupy_signatures.json").read_text("utf-8"))["versions"]["cupy"]
    assert f"the real CuPy {version}" in page
