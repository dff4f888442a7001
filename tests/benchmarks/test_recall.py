"""Each question of the recall task has one right answer, and the page about the recurrence shows the stored runs."""

import numpy as np
import pytest

import numpy_attention as na
from tests.benchmarks import recall
from tests.benchmarks.recall import KEYS, PAGE, PAIRS, ROWS, SEEDS, Recall, read, run, spread, table, texts
from tests.generated import block


@pytest.mark.parametrize("task", PAIRS)
def test_answer_is_the_last_value_of_the_key(task: str) -> None:
    ids, answers = texts(task, 5, 7, np.random.default_rng(0))
    for text, right in zip(ids.tolist(), answers.tolist()):
        story, questions = text[:-5], text[-5:]
        memory = dict(zip(story[::2], story[1::2]))  # a later value replaces an earlier value
        assert [memory[key] - KEYS for key in questions] == right
        assert sorted(questions) == sorted(memory)
        assert all(story[::2].count(key) == (2 if task == "updates" else 1) for key in questions)


@pytest.mark.parametrize("rule", dict.fromkeys(row.rule for row in ROWS))
def test_gradients_of_the_whole_model_agree_with_differences(rule: str, rng: np.random.Generator) -> None:
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


def test_all_models_have_the_same_size_except_for_the_gates(rng: np.random.Generator) -> None:
    sizes = {rule: Recall(rule, 16, rng).num_parameters() for rule, d_k in ROWS if d_k == 16}
    assert sizes["linear"] - sizes["softmax"] == 16  # the norm on the output
    gate = recall.D_MODEL + 1
    assert sizes["gated"] == sizes["delta"] == sizes["linear"] + gate
    assert sizes["gated delta"] == sizes["linear"] + 2 * gate


def test_table_shows_the_stored_runs() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for task in PAIRS:
        assert block(task, table(read(), task)) in page


def test_every_row_was_run_once_with_each_seed() -> None:
    runs = [(one["task"], one["rule"], one["d_k"], one["seed"]) for one in read()]
    assert sorted(runs) == sorted((task, *row, seed) for task in PAIRS for row in ROWS for seed in SEEDS)


def test_only_perfect_answers_count_as_100() -> None:
    assert spread([99.99, 98.0, 100.0]) == "99 (98 to 100)"
    assert spread([100.0, 100.0, 100.0]) == "100"


def test_a_seed_gives_the_same_figures_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recall, "TESTED", 128)
    monkeypatch.setattr(recall, "QUESTIONS", 64)
    first, second = (run("recall", "delta", 4, 0, steps=2) for _ in range(2))
    assert first | {"seconds": 0} == second | {"seconds": 0}
    assert len(first["accuracy"]) == len(PAIRS["recall"])


def test_linear_rule_adds_the_two_values_of_a_key() -> None:
    """Why the linear rule cannot do the task "updates": it reads the sum, in which the order is lost."""
    key, values = np.array([[0.6, 0.8]] * 2), np.array([[1.0, 0.0], [0.0, 1.0]])
    y, _ = na.linear_attention(key, key, values, scale=1.0)
    np.testing.assert_allclose(y[-1], [1.0, 1.0])
    y, _ = na.linear_attention(key, key, values, beta=np.ones((2, 1)), scale=1.0)
    np.testing.assert_allclose(y[-1], [0.0, 1.0])
