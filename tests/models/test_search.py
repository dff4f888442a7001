"""Greedy search and beam search find the right sequences."""

import itertools

import numpy as np
import pytest

from tests.models.test_seq2seq import CONFIG, SOURCE_LENGTHS, START, STOP, VARIANTS, V, batch, seq2seq


def greedy_by_hand(model, source, max_tokens, lengths=None):
    ids = [START]
    while len(ids) <= max_tokens and (len(ids) == 1 or ids[-1] != STOP):
        logits, _ = model.forward(source[None], np.array([ids]), lengths)
        ids.append(int(logits[0, -1].argmax()))
    return ids[1:]


@pytest.mark.parametrize("variant", VARIANTS)
def test_greedy_search_takes_the_most_likely_token_each_time(variant, rng):
    model, (source, _, _) = seq2seq(rng, **VARIANTS[variant]), batch(rng)
    for row, ids in zip(source, model.greedy(source, START, STOP)):
        assert ids.tolist() == greedy_by_hand(model, row, CONFIG.context_length)
    padded = model.greedy(source, START, STOP, max_tokens=3, source_lengths=SOURCE_LENGTHS)
    for row, ids, length in zip(source, padded, SOURCE_LENGTHS):
        assert ids.tolist() == greedy_by_hand(model, row, 3, np.array([length]))


def test_greedy_search_runs_until_every_row_has_stopped(rng):
    """One row stops at once, one later, one last; stopped rows stay unchanged while the others go on."""
    model, (source, _, _) = seq2seq(rng), batch(rng)
    other = next(token for token in range(V) if token not in (START, STOP))
    answers = [[STOP], [other, STOP], [other, other, other, STOP]]
    calls = []

    def decode(ids, *_, **__):
        t = len(calls)
        calls.append(ids)
        wanted = [answer[t] if t < len(answer) else other for answer in answers]  # a stopped row would go on
        return np.eye(CONFIG.target_vocab_size)[wanted][:, None], None

    model.decode = decode
    assert [ids.tolist() for ids in model.greedy(source[:3], START, STOP)] == answers
    assert len(calls) == 4


def test_beam_of_size_one_equals_greedy_search(rng):
    for _ in range(5):
        model, (source, _, _) = seq2seq(rng), batch(rng)
        for greedy, beam in zip(model.greedy(source, START, STOP), model.beam_search(source, START, STOP, beam_size=1)):
            np.testing.assert_array_equal(greedy, beam)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_beam_of_all_sequences_finds_the_best_sequence(alpha, rng):
    model = seq2seq(rng, target_vocab_size=4, num_layers=1)
    source = rng.integers(0, V, (2, 5))
    lengths = np.array([5, 2])

    def score(b, ids):
        logits, _ = model.forward(source[b : b + 1], np.array([[START, *ids[:-1]]]), lengths[b : b + 1])
        log_p = logits[0] - np.log(np.exp(logits[0]).sum(axis=-1, keepdims=True))
        return log_p[np.arange(len(ids)), ids].sum() / ((5 + len(ids)) / 6) ** alpha

    every = [ids for n in (1, 2, 3) for ids in itertools.product(range(4), repeat=n)
             if STOP not in ids[:-1] and (n == 3 or ids[-1] == STOP)]  # fmt: skip
    found = model.beam_search(source, START, STOP, 3, beam_size=200, length_penalty=alpha, source_lengths=lengths)
    for b in range(2):
        assert tuple(found[b]) == max(every, key=lambda ids: score(b, ids))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.greedy(np.zeros((1, 2), int), START, STOP, 8), "max_tokens must be in \\[1, 7\\], got 8"),
        (lambda m: m.beam_search(np.zeros((1, 2), int), START, STOP, beam_size=0), "beam_size must be at least 1"),
        (lambda m: m.greedy(np.zeros((1, 2), int), CONFIG.target_vocab_size, STOP), "start_token must be"),
        (lambda m: m.greedy(np.zeros((1, 2), int), START, CONFIG.target_vocab_size), "stop_token must be"),
        (lambda m: m.beam_search(np.zeros((1, 2), int), START, STOP, length_penalty=-1.0), "length_penalty must be"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_errors_name_the_invalid_argument(call, message, rng):
    with pytest.raises(ValueError, match=message):
        call(seq2seq(rng))
