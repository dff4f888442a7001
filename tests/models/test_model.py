"""Every model streams its gradients, and can be saved and loaded."""


import numpy as np
import pytest

import numpy_attention as na
from tests.models import test_gpt, test_seq2seq, test_sequence_classifier

MODELS = {
    "gpt": lambda rng: (test_gpt.gpt(rng), test_gpt.batch(rng)),
    "gpt, untied": lambda rng: (test_gpt.gpt(rng, tie_weights=False, positions="rotary"), test_gpt.batch(rng)),
    "seq2seq": lambda rng: (test_seq2seq.seq2seq(rng), test_seq2seq.batch(rng)),
    "seq2seq, one table": lambda rng: (
        test_seq2seq.seq2seq(rng, **test_seq2seq.VARIANTS["one table for all"]),
        test_seq2seq.batch(rng),
    ),
    "classifier": lambda rng: with_batch(test_sequence_classifier.classifier(rng, pooling="class_token"), rng),
}


def with_batch(model, rng):
    return model, test_sequence_classifier.batch(model, rng)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_have_the_names_and_the_order_of_the_parameters(name, rng):
    model, batch = MODELS[name](rng)
    grads = model.backward(model.loss(*batch)[1])
    assert list(grads) == list(model.parameters())
    assert all(grads[key].shape == p.shape for key, p in model.parameters().items())


@pytest.mark.parametrize("name", MODELS)
def test_dloss_multiplies_every_gradient(name, rng):
    model, batch = MODELS[name](rng)
    _, cache = model.loss(*batch)
    weighted = model.backward(cache, -0.3)
    for parameter, gradient in model.backward(cache).items():
        np.testing.assert_allclose(weighted[parameter], -0.3 * gradient, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_from_logits_equal_gradients_of_the_loss(name, rng):
    model, (*inputs, targets) = MODELS[name](rng)
    logits, cache = model.forward(*inputs)
    _, loss_cache = na.cross_entropy(logits, targets)
    grads = model.gradients_from_logits(cache, na.cross_entropy_backward(1.0, loss_cache))
    for parameter, gradient in model.backward(model.loss(*inputs, targets)[1]).items():
        np.testing.assert_array_equal(grads[parameter], gradient)


def test_loaded_model_equals_the_saved_model(rng, tmp_path):
    model, (ids, _) = MODELS["gpt"](rng)
    model.save(tmp_path / "model.npz")
    back = na.GPT.load(tmp_path / "model.npz")
    assert back.config == model.config
    np.testing.assert_array_equal(back.forward(ids)[0], model.forward(ids)[0])


def broken(name, rng):
    model = na.GPT(na.GPTConfig(5, 4, d_model=8, num_heads=2, num_layers=2), rng)
    if name == "a NaN":
        model.blocks[1].attention.w_k[0, 3] = np.nan
    elif name == "an extra block":
        model.blocks.append(model.blocks[0])
    elif name == "a missing block":
        model.blocks.pop()
    else:
        model.norm.gamma = model.norm.gamma.astype(np.float64)
    return model


@pytest.mark.parametrize(
    ("name", "message"),
    {
        "a NaN": r"blocks\.1\.attention\.w_k must be finite, got nan at \[0, 3\]",
        "an extra block": r"do not match the configuration: blocks\.2\.attention.* is not part of the",
        "a missing block": r"do not match the configuration: blocks\.1\.attention.* is missing",
        "two dtypes": r"do not match the configuration: norm\.gamma is float64",
    }.items(),
)
def test_save_refuses_a_model_that_load_would_refuse_and_keeps_the_old_file(name, message, rng, tmp_path):
    path = tmp_path / "model.npz"
    path.write_bytes(b"good")
    with pytest.raises(ValueError, match=rf"^GPT\.save: .*{message}") as caught:
        broken(name, rng).save(path)
    assert len(str(caught.value)) <= 500
    assert path.read_bytes() == b"good"
