"""`vectors` writes a case in three formats, and `compare` judges what a program in another language made of it."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import numpy_attention as na
from numpy_attention.app.main import main
from numpy_attention.tutor.vector_files import read_case, read_results, write_case

LANGUAGES = Path(__file__).parents[2] / "docs" / "languages"
OPS = {"softmax": "softmax", "layer_norm": "layer_norm", "attention": "scaled_dot_product_attention: mask"}
PLANTED = {
    "softmax": ("diagonal", "diagonal_only"), "layer_norm": ("mean", "mean_path_forgotten"),
    "attention": ("scale", "scale_left_out"),
}
FORMATS = ("case.npz", "case.safetensors", "case")


def run(*given: object) -> int:
    return main([str(one) for one in given])


@pytest.fixture(scope="module")
def in_c(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("c") / "gradients"
    strict = ("-O2", "-Wall", "-Wextra", "-Werror")
    subprocess.run(["cc", *strict, "-o", program, LANGUAGES / "gradients.c", "-lm"], check=True)
    return program


@pytest.mark.skipif(not shutil.which("cc"), reason="the C program needs a compiler, cc")
@pytest.mark.parametrize("op", OPS)
def test_a_c_program(op: str, in_c: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case, mine = tmp_path / "case", tmp_path / "mine"
    mine.mkdir()
    assert run("vectors", OPS[op], "--out", case, "--seed", 5) == 0
    subprocess.run([in_c, op, case, mine], check=True)
    assert run("compare", case, mine) == 0
    mistake, name = PLANTED[op]
    subprocess.run([in_c, op, case, mine, mistake], check=True)
    assert run("compare", case, mine) == 1
    assert f"likely mistake: the known mistake {name}: " in capsys.readouterr().out


@pytest.mark.skipif(not shutil.which("node"), reason="the JavaScript program needs node")
@pytest.mark.parametrize("op", OPS)
def test_a_javascript_program(op: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case, mine = tmp_path / "case.safetensors", tmp_path / "mine.safetensors"
    assert run("vectors", OPS[op], "--out", case, "--seed", 6) == 0
    subprocess.run(["node", LANGUAGES / "gradients.js", op, case, mine], check=True)
    assert run("compare", case, mine) == 0
    mistake, name = PLANTED[op]
    subprocess.run(["node", LANGUAGES / "gradients.js", op, case, mine, mistake], check=True)
    assert run("compare", case, mine) == 1
    assert f"likely mistake: the known mistake {name}: " in capsys.readouterr().out


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_is_read_back_by_plain_tools(name: str, tmp_path: Path) -> None:
    case = na.reference_case("MultiHeadAttention: self, mask, biases", sizes={"T": 6})
    path = tmp_path / "new" / name
    write_case(case, path)
    if name == "case.npz":
        arrays = dict(np.load(path, allow_pickle=False))
        about = json.loads(str(arrays.pop("case")))
    elif name == "case.safetensors":
        with safe_open(path, framework="numpy") as file:
            about = json.loads(file.metadata()["case"])
            arrays = {one: file.get_tensor(one) for one in about["arrays"]}
    else:
        about = json.loads((path / "case.json").read_text())
        arrays = {
            one: np.fromfile(path / f"{one}.bin", how["dtype"]).reshape(how["shape"])
            for one, how in about["arrays"].items()
        }
    assert about["layer"].startswith("MultiHeadAttention(")
    assert {"dw_o", "db_q", "w_o", "mask", "dy", "y", "dx"} <= set(arrays)
    assert list(about["arrays"]) == list(case.arrays)
    for one, array in case.arrays.items():
        np.testing.assert_array_equal(arrays[one], array)
    again = read_case(path)
    np.testing.assert_array_equal(again.y, case.y)
    assert again.compare(*read_results(path, case)).ok


def test_the_same_case_is_the_same_bytes(tmp_path: Path) -> None:
    for name in FORMATS[:2]:
        for copy in ("one", "two"):
            write_case(na.reference_case("layer_norm"), tmp_path / copy / name)
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_all_cases_with_an_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("vectors", "--all", tmp_path) == 0
    index = json.loads((tmp_path / "index.json").read_text())
    assert f"{len(index)} cases" in capsys.readouterr().out
    assert "MultiHeadAttention: cross" in index
    assert not any(name.startswith(("GPT", "Seq2Seq")) for name in index)
    assert len(set(index.values())) == len(index) == len(list(tmp_path.glob("*.npz")))
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 30_000_000
    assert run("compare", tmp_path / index["silu"], tmp_path / index["silu"]) == 0


def test_leading_axes_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("vectors", "softmax", "--sizes", "...=2x4,d=3", "--out", tmp_path / "case.npz") == 0
    assert "x (2, 4, 3), dy (2, 4, 3)" in capsys.readouterr().out


def test_the_list_names_every_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("vectors", "--list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split() == ["softmax:", "axis", "0", "x:", "A", "B", "C"] for line in lines)


def test_half_precision_of_a_safetensors_file(tmp_path: Path) -> None:
    case = na.reference_case("softmax")
    save_file({"dx": case.grads["x"].astype(np.float16)}, tmp_path / "mine.safetensors")
    arrays, dtypes = read_results(tmp_path / "mine.safetensors", case)
    assert dtypes == {"dx": "float16"}
    assert case.compare(arrays, dtypes).ok


@pytest.mark.parametrize(("given", "words"), [
    (["vectors"], "give a name and a file"),
    (["vectors", "softmax", "--out", "case.npz", "--sizes", "d"], "--sizes must be like T=16,d=64 or ...=2x3,d=64"),
    (["vectors", "softmax", "--variant", "axis 7", "--out", "case.npz"], "no op, layer or model 'softmax: axis 7'"),
    (["vectors", "softmax", "--out", "case.npz", "--dtype", "float8"], "dtype must be one of float32, float64"),
    (["compare", "case.npz", "right.npz", "--dtype", "float8"], "in float32, float64, float16, bfloat16, got dx in"),
    (["compare", "absent.npz", "right.npz"], "cannot read absent.npz"),
    (["compare", "right.npz", "right.npz"], "right.npz is damaged or not a case"),
    (["compare", "case.npz", "absent"], "cannot read absent"),
    (["compare", "case.npz", "empty.npz"], "empty.npz holds no result of softmax; its results are y, dx"),
    (["compare", "case.npz", "other.npz"], "other.npz holds dq; the results of softmax are y, dx"),
    (["compare", "case.npz", "nan.npz"], "softmax: dx holds nan at index [0, 0, 0]"),
    (["compare", "case.npz", "short"], "short cannot be used: dx.bin has 12 bytes; 30 numbers of float32 are 120"),
    (["compare", "case.npz", "damaged.npz"], "damaged.npz cannot be used"),
    (["compare", "old.npz", "right.npz"], "its x was changed, or version 0.0 drew other numbers; write the case again"),
    (["compare", "short", "right.npz"], "cannot read short/case.json"),
    (["vectors", "softmax", "--out", "case.txt"], "--out must be a .npz or .safetensors file"),
    (["vectors", "softmax", "--out", "used"], "used also holds gamma.bin; give an empty folder"),
    (["vectors", "softmax", "--all", "new"], "give a name and a file"),
])
def test_unusable_input_is_one_line(
    given: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    case = na.reference_case("softmax")
    write_case(case, Path("case.npz"))
    about: Any = json.loads(str(np.load("case.npz")["case"]))
    changed = {"x": case.inputs["x"] + 1, "case": np.array(json.dumps(about | {"version": "0.0"}))}
    np.savez("old.npz", **{**case.arrays, **changed})
    Path("used").mkdir()
    Path("used/gamma.bin").touch()
    np.savez("right.npz", dx=case.grads["x"])
    np.savez("empty.npz")
    np.savez("other.npz", dq=case.dy)
    np.savez("nan.npz", dx=np.full_like(case.dy, np.nan))
    Path("damaged.npz").write_bytes(Path("right.npz").read_bytes()[:-40])
    Path("short").mkdir()
    np.zeros(3, np.float32).tofile("short/dx.bin")
    assert run(*given) == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.splitlines()) == 1
