"""The benchmarks run on tiny sizes, and cost grows with the length of a text as the pages say."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import numpy_attention as na
from tests.benchmarks import __main__ as benchmark
from tests.benchmarks import recall, recurrence_speed
from tests.benchmarks.recall import Recall, texts


def peak_bytes(T: int, tiled: bool) -> int:
    """The peak memory of attention, forward and backward, without its inputs."""
    q, k, v, dy = np.random.default_rng(T).standard_normal((4, 2, T, 16), np.float32)
    mask = na.causal_mask(T)
    tracemalloc.start()
    if tiled:
        _, cache = na.tiled_attention(q, k, v, causal=True, block_size=128)
        na.tiled_attention_backward(dy, cache)
    else:
        _, dense_cache = na.scaled_dot_product_attention(q, k, v, mask=mask)
        na.scaled_dot_product_attention_backward(dy, dense_cache)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def test_tiled_attention_needs_memory_linear_in_T_and_plain_attention_quadratic() -> None:
    assert peak_bytes(2048, tiled=True) < 2.1 * peak_bytes(1024, tiled=True)
    assert peak_bytes(1024, tiled=False) > 3.5 * peak_bytes(512, tiled=False)
    assert peak_bytes(2048, tiled=True) < 0.2 * peak_bytes(2048, tiled=False)


@pytest.mark.slow
def test_command_compares_libraries_and_writes_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    page, readme = tmp_path / "page.md", tmp_path / "README.md"
    page.write_text("".join(f"<!-- {name} -->\n<!-- end of {name} -->\n" for name in benchmark.TITLES))
    readme.write_text("<!-- speed -->\n<!-- end of speed -->\n")
    for name, path in (("PAGE", page), ("README", readme), ("PICTURE", tmp_path / "picture.svg")):
        monkeypatch.setattr(benchmark, name, path)
    sizes = ["--sizes", "nano", "--longest", "256", "--rounds", "1"]
    monkeypatch.setattr("sys.argv", ["benchmarks", "step", "attention", *sizes, "--write"])
    benchmark.main()
    before = ["--without-torch", "--before", str(benchmark.ROOT)]
    monkeypatch.setattr("sys.argv", ["benchmarks", "step", *sizes, *before])
    benchmark.main()
    printed = capsys.readouterr().out
    for row in ("| nano | PyTorch |", "| nano | numpy_attention |", "| T = 256 | plain NumPy |", "| nano | before |"):
        assert row in printed
    assert printed.splitlines()[4] in page.read_text()
    assert "times as long as PyTorch eager's" in readme.read_text()
    assert (tmp_path / "picture.svg").stat().st_size > 5000


@pytest.mark.parametrize("rule", ["softmax", "gated delta"])
def test_gradients_of_the_recall_model_agree_with_differences(rule: str, rng: np.random.Generator) -> None:
    model = Recall(rule, 4, rng, np.float64)
    ids, answers = texts("updates", 3, 2, rng)
    grads, parameters = model.backward(model.loss(ids, answers)[1]), model.parameters()
    assert set(grads) == set(parameters)
    for name, p in parameters.items():
        direction, before, losses = rng.standard_normal(p.shape), p.copy(), []
        for step in (1e-5, -1e-5):
            p[...] = before + step * direction
            losses.append(float(model.loss(ids, answers)[0]))
        p[...] = before
        slope = (losses[0] - losses[1]) / 2e-5
        np.testing.assert_allclose((grads[name] * direction).sum(), slope, rtol=1e-5, atol=1e-8, err_msg=name)


def test_tables_of_the_pages_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("TESTED", 64), ("QUESTIONS", 32), ("SEEDS", range(1)), ("ROWS", recall.ROWS[:2])):
        monkeypatch.setattr(recall, name, value)
    assert len(recall.table("updates", steps=2).splitlines()) == 4
    monkeypatch.setattr(recurrence_speed, "CHUNKS", (8,))
    found = recurrence_speed.measure(lengths=(16, 32), at_length=16, rounds=2)
    assert len(recurrence_speed.table(found).splitlines()) == 14
