"""Generation: the KV cache changes only the time, and prompts of a batch do not influence each other."""

import dataclasses
import threading
from types import SimpleNamespace

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.layers.kv_cache import KeyValueCache, PieceOfCache
from numpy_attention.models.generate import SHORT_CACHE, last_logits, stream
from numpy_attention.ops.attention import scaled_dot_product_attention
from numpy_attention.training import parallel
from numpy_attention.training.parallel import Workers
from tests.models.gradients import randomized
from tests.models.test_gpt import CONFIG, VARIANTS, V, gpt

PROMPTS = ([3, 1, 4], [1, 5, 9, 2, 6], [5], [3, 5, 8, 9, 7, 9, 3, 2, 3, 8])  # the last is longer than the context


@pytest.fixture(params=[256, 4])
def pieces(request, monkeypatch):
    """These texts are read in one piece, or in several pieces."""
    monkeypatch.setattr("numpy_attention.models.generate.PIECE", request.param)


@pytest.mark.usefixtures("pieces")
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


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("variant", VARIANTS)
def test_batch_of_unequal_prompts_gives_the_tokens_of_each_prompt_alone(variant, rng):
    model = gpt(rng, **VARIANTS[variant])
    for use_cache in (True, False):
        for several in (PROMPTS, PROMPTS[:3]):
            together = model.generate(several, 9, temperature=0.0, use_cache=use_cache)
            for prompt, row in zip(several, together, strict=True):
                np.testing.assert_array_equal(row, model.generate(prompt, 9, temperature=0.0))


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("count", [1, 2, 3, 9])
@pytest.mark.parametrize("use_cache", [True, False])
def test_lent_threads_generate_the_same_texts(count, use_cache, rng):
    model = gpt(rng)
    how = {"num_tokens": 9, "stop_token": 2, "use_cache": use_cache}
    alone = model.generate(PROMPTS, rng=np.random.default_rng(5), **how)
    with Workers(count) as workers, workers.lent():
        together = model.generate(PROMPTS, rng=np.random.default_rng(5), **how)
    for row, same in zip(together, alone, strict=True):
        np.testing.assert_array_equal(row, same)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("piece", [1, 2, 3, 5])
def test_pieces_of_a_prompt_give_the_logits_and_the_kv_cache_of_one_run(variant, piece, rng, monkeypatch):
    model = gpt(rng, context_length=13, **VARIANTS[variant])
    ids, start = rng.integers(0, V, (3, 12)), np.array([0, 4, 7])

    def read(size):
        monkeypatch.setattr("numpy_attention.models.generate.PIECE", size)
        past = [KeyValueCache(13) for _ in model.blocks]
        logits = [last_logits(model, ids, start, T, past) for T in (9, 12)]  # the second run continues the first
        return [*logits, *(array for one in past for array in one.filled())]

    for found, expected in zip(read(piece), read(99), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
def test_pieces_give_the_same_bits_for_any_number_of_threads(variant, rng, monkeypatch):
    monkeypatch.setattr("numpy_attention.models.generate.PIECE", 2)
    model = gpt(rng, np.float32, context_length=13, **VARIANTS[variant])
    ids, start = rng.integers(0, V, (1, 12)), np.zeros(1, int)

    def read():
        past = [KeyValueCache(13) for _ in model.blocks]
        logits = last_logits(model, ids, start, 12, past)
        return [logits, *(array for one in past for array in one.filled())]

    alone = read()
    for count in (2, 3, 9):
        with Workers(count) as workers, workers.lent():
            for _ in range(5):
                for found, expected in zip(read(), alone, strict=True):
                    np.testing.assert_array_equal(found, expected)


def test_two_threads_read_two_pieces_at_the_same_time(rng, monkeypatch):
    monkeypatch.setattr("numpy_attention.models.generate.PIECE", 3)
    model, together = gpt(rng, context_length=9), threading.Barrier(2, timeout=20)
    append = PieceOfCache.append

    def appended(self, k, v):
        result = append(self, k, v)
        if self._i == 0:
            together.wait()  # passes only after the other thread has begun its piece
        return result

    forward = na.GPT.forward

    def begun(self, ids, past, **options):
        if past[0]._i == 1:
            for _ in model.blocks:
                together.wait()
        return forward(self, ids, past=past, **options)

    monkeypatch.setattr(PieceOfCache, "append", appended)
    monkeypatch.setattr(na.GPT, "forward", begun)
    with Workers(2) as workers, workers.lent():
        last_logits(model, rng.integers(0, V, (1, 6)), np.zeros(1, int), 6, [KeyValueCache(9) for _ in model.blocks])


def test_a_prompt_on_a_gpu_is_read_at_once(rng, monkeypatch):
    monkeypatch.setattr("numpy_attention.models.generate.PIECE", 2)
    model, runs = gpt(rng, context_length=9), []
    forward = na.GPT.forward

    def counted(self, ids, **options):
        runs.append(ids.shape[1])
        return forward(self, ids, **options)

    monkeypatch.setattr(na.GPT, "forward", counted)
    model.generate(rng.integers(0, V, 8), 1, rng)
    assert runs == [2, 2, 2, 2]
    monkeypatch.setattr("numpy_attention.models.generate.on_host", lambda _: False)
    model.generate(rng.integers(0, V, 8), 1, rng)
    assert runs[4:] == [8]


@pytest.mark.parametrize("failing", range(4))
@pytest.mark.parametrize("count", [1, 2, 3])
def test_no_piece_waits_for_a_failed_piece(failing, count, rng, monkeypatch):
    monkeypatch.setattr("numpy_attention.models.generate.PIECE", 2)
    model = gpt(rng, context_length=9)
    append, calls = PieceOfCache.append, []

    def failed(self, k, v):
        calls.append(self._i)
        if self._i == failing and calls.count(failing) == 2:  # in the second layer
            raise MemoryError(f"piece {failing}")
        return append(self, k, v)

    monkeypatch.setattr(PieceOfCache, "append", failed)
    with Workers(count) as workers, workers.lent(), pytest.raises(MemoryError, match=f"piece {failing}"):
        model.generate(rng.integers(0, V, 8), 1, rng)


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


@pytest.fixture
def threadpoolctl(monkeypatch):
    """The library that sets the number of BLAS's threads; the environment asks for no number."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    return pytest.importorskip("threadpoolctl")


@pytest.mark.parametrize("how", ["stream", "generate", "without a KV cache", "on a GPU", "two texts"])
def test_blas_uses_several_threads_for_the_next_token_of_one_text(how, rng, monkeypatch, threadpoolctl):
    model, runs = gpt(rng, context_length=9), []
    forward, limit = na.GPT.forward, 7 * CONFIG.head_width()
    monkeypatch.setattr("numpy_attention.models.generate.SHORT_CACHE", limit)
    if how == "on a GPU":
        monkeypatch.setattr("numpy_attention.models.generate.on_host", lambda _: False)
    monkeypatch.setattr(parallel, "time", SimpleNamespace(perf_counter=lambda: 0.0))  # no token is slow

    def counted(self, ids, **options):
        info = threadpoolctl.threadpool_info()
        runs.append((ids.shape[1], *{one["num_threads"] for one in info if one["user_api"] == "blas"}))
        return forward(self, ids, **options)

    prompts = [[1, 2, 3], [5, 6, 7]] if how == "two texts" else [1, 2, 3]
    how_many = {"num_tokens": 9, "temperature": 0.0}
    expected = model.generate(prompts, **how_many)
    monkeypatch.setattr(na.GPT, "forward", counted)
    with Workers(2) as workers, workers.lent(blas_threads=1):
        if how == "stream":
            found = [*prompts, *stream(model, np.array(prompts), **how_many)]
        else:
            found = model.generate(prompts, use_cache=how != "without a KV cache", **how_many)
    np.testing.assert_array_equal(found, expected)
    if how in ("stream", "generate"):  # the prompt, the trial, T = 4 to 7, a long cache, a full context
        assert runs == [(3, 1), (1, 2), (1, 1), *4 * [(1, 2)], *2 * [(1, 1)], *2 * [(9, 1)]]
    else:
        assert {threads for _, threads in runs} == {1}


@pytest.mark.parametrize("d_k", [32, 64, 96, 128])
def test_threads_of_blas_change_no_bit_of_attention_to_a_short_kv_cache(d_k, rng, threadpoolctl):
    longest = SHORT_CACHE // d_k
    k, v = rng.standard_normal((2, 1, 2, longest, d_k), dtype=np.float32)
    q = rng.standard_normal((1, 6, 1, d_k), dtype=np.float32)  # three heads share the keys of one head
    for T in [*rng.integers(1, longest, 20), longest - 1, longest]:
        found = []
        for count in (1, 2, 3, 4):
            with threadpoolctl.threadpool_limits(count, user_api="blas"):
                found.append(scaled_dot_product_attention(q, k[:, :, :T], v[:, :, :T])[0])
        for y in found[1:]:
            np.testing.assert_array_equal(y, found[0])


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
    assert tokens_until({whole[later], V + 1}) == whole[: later + 1]


@pytest.mark.parametrize("prompts", [[[1, 2]], [[1, 2], [3]], np.ones((2, 3), np.int64)], ids=["list", "two", "array"])
def test_stream_refuses_several_prompts(prompts, rng):
    with pytest.raises(ValueError, match=r"stream: prompt_ids must be one prompt, \(T,\), got a list of [12]"):
        next(stream(gpt(rng), prompts, 3, rng))


def test_zero_new_tokens_return_the_prompt(rng):
    np.testing.assert_array_equal(gpt(rng).generate([1, 2], 0, rng), [1, 2])


def test_an_array_of_prompts_gives_a_list(rng):
    rows = gpt(rng).generate(np.array([[1, 2], [3, 4]]), 3, rng)
    assert [len(row) for row in rows] == [5, 5]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt_ids": []}, "at least one token"),
        ({"prompt_ids": [[1, 2], []]}, "at least one token"),
        ({"prompt_ids": 1}, "a prompt must be \\(T,\\) with at least one token, got \\(\\)"),
        ({"prompt_ids": [1, 99]}, "integers in"),
        ({"num_tokens": -1}, "num_tokens must be at least 0, got -1"),
        ({"num_tokens": 2.5}, "num_tokens must be an integer at least 0, got 2.5"),
        ({"temperature": -0.5}, "temperature must be at least 0"),
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


def test_refuses_a_prompt_of_floats(rng):
    with pytest.raises(TypeError, match="generate: prompt_ids must be an integer array, got float64"):
        gpt(rng).generate([1.0, 2.5], 3, rng)


def test_model_trained_to_count_generates_counting(rng):
    config = dataclasses.replace(CONFIG, num_layers=1, vocab_size=7)
    model = randomized(na.GPT(config, None), rng, 0.02)
    optimizer = na.AdamW(model.parameters(), learning_rate=1e-2)
    rows = (np.arange(7)[:, None] + np.arange(8)) % 7  # counting, from every start
    for _ in range(60):
        _, cache = model.loss(rows[:, :-1], rows[:, 1:])
        optimizer.step(model.backward(cache))
    np.testing.assert_array_equal(model.generate([5, 6], 10, temperature=0.0), [5, 6, 0, 1, 2, 3, 4, 5, 6, 0, 1, 2])
