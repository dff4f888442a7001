"""The benchmarks run on tiny sizes, and cost grows with the length of a text as the pages say."""

import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import numpy_attention as na
from tests.benchmarks import __main__ as benchmark
from tests.benchmarks import recall, recurrence_speed, scaling
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


def test_predictions_of_the_page_on_scaling_come_from_its_constants() -> None:
    page = scaling.PAGE.read_text("utf-8")
    each, here = scaling.shown_constants(scaling.read_block(page, "constants"))
    assert scaling.read_block(page, "predicted").strip() == "\n".join(scaling.predicted_table(each))
    rows = re.findall(r"^\| (\w+), (\d) (rank|thread)s?(?: \| [\d.]+){2} \| ([\d.]+)", page, re.MULTILINE)
    assert len(rows) == 10
    for case, n, worker, shown in rows:
        k, count = each[case], int(n)
        model = scaling.predict(k, count, *here, 2) if worker == "rank" else scaling.predict_threads(k, count)
        assert shown == f"{1e3 * model:.1f}", (case, n, worker)
    text, long, wide = " ".join(page.split()), each["long"], each["wide"]
    wire = scaling.NETWORKS["10 Gbit/s Ethernet"]
    alone, busy = scaling.predict(long, 1, 0, 1, 1), scaling.predict(long, 2, 0, float("inf"), 2, 2 * long["examples"])
    assert f"{1e3 * alone:.1f} ms with an idle neighbour, {1e3 * busy:.1f} ms with a busy one" in text
    steps = [1e3 * scaling.predict(k, 1024, *wire, 1024, 1024 * k["examples"]) for k in (long, wide)]
    sums = [1e3 * scaling.allreduce(1024, k["bytes"], *wire) for k in (long, wide)]
    assert f"takes {sums[0]:.0f} ms of a step of {steps[0]:.0f} ms for **long**" in text
    assert f"up to {sums[1]:.0f} ms of {steps[1]:.0f} ms" in text


def test_numbers_in_the_text_on_speed_come_from_the_tables() -> None:
    page, readme = benchmark.PAGE.read_text("utf-8"), benchmark.README.read_text("utf-8")
    blocks = {kind: scaling.read_block(page, kind).splitlines() for kind in benchmark.TITLES}
    rows = {kind: [[cell.strip("* ") for cell in line.split("|")[1:-1]] for line in blocks[kind]] for kind in blocks}
    step, attention = (
        [float(row[3]) for row in rows[kind] if row[1:2] == [benchmark.OURS]] for kind in ("step", "attention")
    )
    text, (least, most) = " ".join(page.split()), (min(step), max(step))
    assert f"it takes {least:.1f} to {most:.1f} times as long as a step of PyTorch eager" in text
    assert f"A training step takes {least:.2f} to {most:.2f} times as long as PyTorch eager's" in readme
    least, most = min(attention[1:]), max(attention[1:])
    assert f"From 512 tokens on, tiled attention takes {least:.1f} to {most:.1f} times as long" in text
    tokens = [row for row in rows["pretrained"] if row[:1] == ["next token, 128 tokens"]]
    theirs, own = (float(row[2].split()[0]) / 128 for row in tokens)
    assert f"one token takes {theirs:.0f} ms with PyTorch and {own:.0f} ms with our code of that day" in text


def test_tables_of_the_pages_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("TESTED", 64), ("QUESTIONS", 32), ("SEEDS", range(1)), ("ROWS", recall.ROWS[:2])):
        monkeypatch.setattr(recall, name, value)
    assert len(recall.table("updates", steps=2).splitlines()) == 4
    monkeypatch.setattr(recurrence_speed, "CHUNKS", (8, 64))
    found = recurrence_speed.measure(lengths=(16, 32), at_length=16, rounds=2)
    assert len(recurrence_speed.table(found).splitlines()) == 15
