"""The kind `pretrained` of the benchmark, tested with a tiny random model; transformers computes the same results."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from numpy_attention.models.gpt import GPT
from numpy_attention.pretrained.fetch import SOURCES
from numpy_attention.pretrained.load import load_pretrained
from tests.benchmarks import pretrained
from tests.benchmarks.__main__ import main
from tests.benchmarks.race import _assert_same_work
from tests.pretrained import tiny

CASES = {case["name"]: case for case in pretrained.cases(quick=True)}
SETTINGS = tiny.TIED | {"max_position_embeddings": 99}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny model in the place of the real model's file."""
    monkeypatch.setenv("NUMPY_ATTENTION_CACHE", str(tmp_path))
    return tiny.write_gguf(tmp_path / SOURCES[pretrained.MODEL].model, SETTINGS, tiny.tensors_of("benchmark", SETTINGS))


def model_of(path: Path) -> GPT:
    model = load_pretrained(path).model
    assert isinstance(model, GPT)
    return model


def test_prompt_computes_the_logits_of_its_last_position(path: Path) -> None:
    work = pretrained.make(CASES["prompt"], "ours", 1)
    ids = pretrained.text_ids(path)[None, :64]
    logits, _ = model_of(path).forward(ids)
    np.testing.assert_allclose(work.results(), pretrained.summary(logits[0, -1]), rtol=1e-4)
    assert work.results()[1] == logits[0, -1].argmax()


def test_generation_writes_the_most_likely_tokens(path: Path) -> None:
    prompt = pretrained.text_ids(path)[: pretrained.SHORT_PROMPT]
    expected = model_of(path).generate(prompt, 32, temperature=0.0)[len(prompt) :].tolist()
    work = pretrained.make(CASES["generation"], "ours", 1)
    assert work.results() == expected
    assert work.call() == expected[:16]


def test_step_trains_only_the_low_rank_matrices(path: Path) -> None:
    model = model_of(path)
    table, w_q = model.token_embedding.table.copy(), model.blocks[0].attention.w_q.copy()
    work = pretrained.work_of(model, pretrained.text_ids(path), CASES["LoRA step"], 2)
    first, *_ = work.results()
    for _ in range(5):
        work.call()
    np.testing.assert_array_equal(model.token_embedding.table, table)
    np.testing.assert_array_equal(model.blocks[0].attention.w_q.w, w_q)
    assert len(model.parameters()) == 2 * 7 * SETTINGS["num_hidden_layers"]
    assert work.call() < first  # turns 0 and 8 use the same one of four batches


def test_two_shards_give_the_losses_of_one(path: Path) -> None:
    one, two = (pretrained.make(CASES["LoRA step"], "ours", threads).results() for threads in (1, 2))
    np.testing.assert_allclose(one, two, rtol=1e-5)


def test_each_batch_continues_the_text_of_the_previous_batch() -> None:
    ids = np.arange(10_000)
    batches = pretrained.batches(ids, 4 * 7)
    assert len(batches) == pretrained.NUM_BATCHES
    for batch, targets in batches:
        assert batch.shape == targets.shape == (pretrained.BATCH, 7)
        np.testing.assert_array_equal(targets, batch + 1)
    assert batches[1][0][0, 0] == batches[0][1][-1, -1] + 1


def test_reading_reads_every_number_for_every_token(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    monkeypatch.setattr(pretrained.np, "max", lambda x: read.append(x.size))
    pretrained.reading(1000, 3, 2).call()
    assert read == [500] * 6


@pytest.mark.parametrize(("name", "ways"), [("prompt", 1), ("LoRA step", 2)])
def test_products_multiply_by_every_matrix(path: Path, monkeypatch: pytest.MonkeyPatch, name, ways) -> None:
    made = []

    class Counted(np.ndarray):
        def __rmatmul__(self, x):
            made.append((x.shape[0], *self.shape))

    model = model_of(path)
    found = [(None, None, None, w) for *_, w in pretrained.matrices(model)]
    counted = [(*_, w.view(Counted)) for *_, w in found]
    monkeypatch.setattr(pretrained, "matrices", lambda _: counted)
    model.token_embedding.table = model.token_embedding.table.view(Counted)
    pretrained.products(model, CASES[name], 2).call()
    rows = CASES[name]["tokens"] // 2
    assert len(made) == ways * 2 * (len(found) + 1)
    assert sum(n == rows for n, *_ in made) == len(made) - 2 * (name == "prompt")  # prompt: only one row of logits
    assert made.count((rows, *found[0][-1].shape)) >= 2


def test_different_logits_have_different_summaries(rng: np.random.Generator) -> None:
    logits = rng.standard_normal(300).astype(np.float32)
    near, far = logits + np.float32(1e-5), logits + np.float32(0.1)
    _assert_same_work({}, {"a": pretrained.summary(logits), "b": pretrained.summary(near)})
    with pytest.raises(Exception, match="compute different results"):
        _assert_same_work({}, {"a": pretrained.summary(logits), "b": pretrained.summary(far)})


def test_failing_command_raises_its_error_message() -> None:
    work = pretrained.first_word([sys.executable, "-c", "raise SystemExit('no such model')"], 1)
    with pytest.raises(pretrained.Unavailable, match="no such model"):
        work.call()


def test_missing_model_prints_one_line(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("NUMPY_ATTENTION_CACHE", str(tmp_path))
    assert main(["pretrained"]) == 2
    error = capsys.readouterr().err
    assert "fetch smollm2" in error
    assert error.count("\n") == 1


def test_table_has_rows_for_contender_and_lower_limit(path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("tests.benchmarks.__main__.PRETRAINED_CONTENDERS", ["numpy_attention"])
    monkeypatch.setattr(pretrained, "cases", lambda quick: [CASES["generation"] | {"tokens": 3}])
    assert main(["pretrained", "--quick", "--rounds", "1", "--threads", "1"]) == 0
    output = capsys.readouterr().out
    assert "| generation, 3 tokens | numpy_attention |" in output
    assert "| generation, 3 tokens | reading alone |" in output


@pytest.mark.slow
def test_quick_run_measures_all_pretrained_cases(path, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("tests.benchmarks.__main__.PRETRAINED_CONTENDERS", ["numpy_attention"])
    found = tmp_path / "bench.json"
    assert main(["pretrained", "--quick", "--rounds", "1", "--threads", "1", "--json", str(found)]) == 0
    output = capsys.readouterr().out
    for name in ("prompt, 64 tokens", "generation, 16 tokens", "LoRA step, 64 tokens", "first word"):
        assert f"| {name} | numpy_attention |" in output
    word = json.loads(found.read_text("utf-8"))["races"][-1]["results"]["numpy_attention"]
    assert word["peak"] > 1e7
    assert word["beyond_start"] == word["peak"]  # another process, so its start is zero


@pytest.mark.slow
@pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("torch", "transformers")), reason="needs transformers"
)
@pytest.mark.parametrize("name", ["prompt", "generation", "LoRA step"])
def test_transformers_computes_the_same_results(path: Path, name: str) -> None:
    from tests.benchmarks.peers import in_transformers

    case = CASES[name]
    theirs, ours = in_transformers.make(case, "eager", 1).results(), pretrained.make(case, "ours", 1).results()
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)
