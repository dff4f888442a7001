"""Generation: the KV cache changes only the time, and prompts of a batch do not influence each other."""

import warnings

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.errors import InputError
from numpy_attention.models.c23b_generate import stream
from tests.models.test_gpt import CONFIG, VARIANTS, V, gpt

PROMPTS = ([3, 1, 4], [1, 5, 9, 2, 6], [5], [3, 5, 8, 9, 7, 9, 3, 2, 3, 8])  # the last is longer than the context


@pytest.mark.parametrize("variant", VARIANTS)
def test_kv_cache_does_not_change_the_tokens(variant, rng):
    model = gpt(rng, **VARIANTS[variant])
    for prompt in PROMPTS:  # twelve tokens: more than the context of seven
        with_cache = model.generate(prompt, 12, np.random.default_rng(1), use_cache=True)
        without = model.generate(prompt, 12, np.random.default_rng(1), use_cache=False)
        np.testing.assert_array_equal(with_cache, without)
        assert len(with_cache) == len(prompt) + 12
        np.testing.assert_array_equal(with_cache[: len(prompt)], prompt)


@pytest.mark.parametrize("variant", VARIANTS)
def test_model_reads_the_last_context_length_tokens(variant, rng):
    model = gpt(rng, **VARIANTS[variant])
    for prompt in PROMPTS:
        ids = list(prompt)
        for _ in range(9):
            logits, _ = model.forward(np.array([ids[-CONFIG.context_length :]]))
            ids.append(int(logits[0, -1].argmax()))
        np.testing.assert_array_equal(model.generate(prompt, 9, temperature=0.0), ids)


@pytest.mark.parametrize("variant", VARIANTS)
def test_batch_of_unequal_prompts_gives_the_tokens_of_each_prompt_alone(variant, rng):
    model = gpt(rng, **VARIANTS[variant])
    alone = [model.generate(prompt, 9, temperature=0.0) for prompt in PROMPTS]
    for use_cache in (True, False):
        for count in (3, 4):
            together = model.generate(PROMPTS[:count], 9, temperature=0.0, use_cache=use_cache)
            for row, same in zip(together, alone[:count], strict=True):
                np.testing.assert_array_equal(row, same)


def test_step_with_kv_cache_runs_the_model_on_one_token(rng, monkeypatch):
    model = gpt(rng, context_length=40)
    runs = []
    forward = na.GPT.forward

    def counted(self, ids, **options):
        runs.append(ids.shape[1])
        return forward(self, ids, **options)

    monkeypatch.setattr(na.GPT, "forward", counted)
    model.generate([1, 2, 3], 20, rng)
    assert runs == [3] + [1] * 19


def test_blas_uses_one_thread_for_each_next_token(rng, monkeypatch):
    threadpoolctl = pytest.importorskip("threadpoolctl")
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    model, runs, forward = gpt(rng), [], na.GPT.forward

    def counted(self, ids, **options):
        info = threadpoolctl.threadpool_info()
        runs.append((ids.shape, *{one["num_threads"] for one in info if one["user_api"] == "blas"}))
        return forward(self, ids, **options)

    monkeypatch.setattr(na.GPT, "forward", counted)
    with threadpoolctl.threadpool_limits(3, user_api="blas"):
        model.generate([[1, 2, 3], [4]], 7, rng)
        assert runs == [((2, 3), 3)] + 4 * [((2, 1), 1)] + 2 * [((2, 7), 3)]  # prompts, tokens, a sliding window


def test_a_row_ends_with_its_stop_token(rng):
    model = gpt(rng)
    whole = model.generate(PROMPTS[:3], 30, np.random.default_rng(2))
    stop = int(whole[0][len(PROMPTS[0]) + 4])
    rows = model.generate(PROMPTS[:3], 30, np.random.default_rng(2), stop_token=stop)
    for prompt, row, full in zip(PROMPTS, rows, whole):
        new = full[len(prompt) :].tolist()
        length = len(prompt) + (new.index(stop) + 1 if stop in new else 30)
        np.testing.assert_array_equal(row, full[:length])
    assert stop not in rows[0][len(PROMPTS[0]) : -1]


def test_stream_ends_with_its_first_stop_token(rng):
    model = gpt(rng)
    prompt = PROMPTS[0]

    def tokens_until(stop):
        return list(stream(model, prompt, 30, np.random.default_rng(2), stop=stop))

    whole = tokens_until(())
    np.testing.assert_array_equal(whole, model.generate(prompt, 30, np.random.default_rng(2))[len(prompt) :])
    assert tokens_until({whole[0]}) == whole[:1]
    later = next(i for i, token in enumerate(whole) if token != whole[0])
    assert tokens_until({whole[later], V - 1} - {whole[0]}) == whole[: later + 1]


@pytest.mark.parametrize("prompts", [[[1, 2]], [[1, 2], [3]], np.ones((2, 3), np.int64)], ids=["list", "two", "array"])
def test_stream_refuses_several_prompts(prompts, rng):
    with pytest.raises(ValueError, match=r"stream: prompt_ids must be one prompt, \(T,\), got a list of [12]"):
        next(stream(gpt(rng), prompts, 3, rng))


def test_an_array_of_prompts_gives_a_list(rng):
    rows = gpt(rng).generate(np.array([[1, 2], [3, 4]]), 3, rng)
    assert [len(row) for row in rows] == [5, 5]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt_ids": []}, "at least one token"),
        ({"prompt_ids": [[1, 2], []]}, "at least one token"),
        ({"prompt_ids": [1, 99]}, "integers in"),
        ({"num_tokens": -1}, r"num_tokens must be in \[0, 2147483647\], got -1"),
        ({"num_tokens": 2.5}, r"num_tokens must be an integer in \[0, 2147483647\], got 2.5"),
        ({"num_tokens": 2**62}, r"generate: num_tokens must be in \[0, 2147483647\], got 4611686018427387904"),
        ({"num_tokens": 2**63}, r"generate: num_tokens must be in \[0, 2147483647\], got 9223372036854775808"),
        ({"temperature": -0.5}, "temperature must be at least 0"),
        ({"min_p": 1.5}, r"min_p must be in \[0, 1\], got 1.5"),
        ({"repetition_penalty": 0}, "repetition_penalty must be above 0 and finite, got 0; 1 is no penalty"),
        ({"temperature": float("nan")}, "temperature must be at least 0 and finite, got nan"),
        ({"top_k": 0}, "top_k must be at least 1"),
        ({"top_p": 0.0}, "top_p must be in"),
        ({"rng": None}, "rng must be a np.random.Generator"),
    ],
    ids=str,
)
def test_refuses_invalid_settings(options, message, rng):
    how = {"prompt_ids": [1], "num_tokens": 2, "rng": rng} | options
    with pytest.raises((TypeError, ValueError), match=message):
        gpt(rng).generate(**how)
    if how["prompt_ids"] != [[1, 2], []]:
        with pytest.raises((TypeError, ValueError), match=message):
            next(stream(gpt(rng), **how))


@pytest.mark.parametrize("choose", [lambda a, b: [a, b], lambda a, b: {b}, lambda a, b: np.array([a]), lambda a, b: b,
                                    lambda a, b: ()], ids=["list", "set", "array", "int", "none"])  # fmt: skip
def test_any_of_several_stop_tokens_ends_a_text(choose, rng):
    model, prompts = gpt(rng), [[1, 2], [3, 4, 1]]
    whole = model.generate(prompts, 12, temperature=0.0)
    new = [row[len(prompt) :].tolist() for row, prompt in zip(whole, prompts)]
    stop = choose(new[0][3], new[1][5])
    stops = {stop} if np.isscalar(stop) else {*stop}
    ends = [min([row.index(i) for i in stops if i in row], default=11) for row in new]
    found = model.generate(prompts, 12, temperature=0.0, stop_token=stop)
    for prompt, row, all_new, end in zip(prompts, found, new, ends):
        assert row.tolist() == [*prompt, *all_new[: end + 1]]
        assert model.generate(prompt, 12, temperature=0.0, stop_token=stop).tolist() == row.tolist()


@pytest.mark.parametrize(("stop", "message"), [
    (V, rf"stop_token must be integers in \[0, {V}\), got {V}"), ([1, -1], "got -1"), ("a", "an integer array"),
    (6.5, "stop_token must be an integer array, got float64"), ({0.5}, "an integer array"),
], ids=repr)  # fmt: skip
def test_refuses_a_stop_token_that_is_no_id(stop, message, rng):
    with pytest.raises((TypeError, ValueError), match=message):
        gpt(rng).generate([1, 2], 3, temperature=0.0, stop_token=stop)
    if stop != V:
        with pytest.raises((TypeError, ValueError), match=message.replace("stop_token", "stop")):
            next(stream(gpt(rng), [1, 2], 3, temperature=0.0, stop=[stop] if np.isscalar(stop) else stop))


def test_a_repetition_penalty_lowers_the_tokens_of_each_text(rng):
    """Greedy, and with the penalty applied by hand to the logits of a plain forward."""
    model = gpt(rng)
    prompts = [[1, 2], [3, 4, 1]]
    found = model.generate(prompts, 6, temperature=0.0, repetition_penalty=1.7)
    for prompt, row in zip(prompts, found):
        ids = list(prompt)
        for _ in range(6):
            x = model.forward(np.array([ids[-model.config.context_length :]]))[0][0, -1].astype(float)
            for i in set(ids):
                x[i] = x[i] / 1.7 if x[i] > 0 else x[i] * 1.7
            ids.append(int(x.argmax()))
        assert row.tolist() == ids
        assert [*prompt, *stream(model, prompt, 6, temperature=0.0, repetition_penalty=1.7)] == ids
    plain = model.generate(prompts, 6, temperature=0.0)
    assert any((a != b).any() for a, b in zip(found, plain))


def test_refuses_a_prompt_of_floats(rng):
    with pytest.raises(TypeError, match="generate: prompt_ids must be an integer array, got float64"):
        gpt(rng).generate([1.0, 2.5], 3, rng)


@pytest.mark.parametrize("value", [3e38, np.nan, np.inf])
def test_reports_too_large_weights_without_numpy_warnings(value):
    model = na.GPT(CONFIG, None)
    for p in model.parameters().values():
        p[...] = value
    message = "the logits are (nan|inf|-inf): the weights are too large or damaged"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for prompts in ([1, 2], [[1, 2], [3]]):
            with pytest.raises(InputError, match=message):
                model.generate(prompts, 3, temperature=0.0)
