"""Chapter 38, continued: a model with places is the same model, and its gradients at places are right."""

import numpy as np

import numpy_attention as na
from numpy_attention import inside


def model_of(seed: int = 0, **config: object) -> na.GPT:
    rng = np.random.default_rng(seed)
    sizes = {"d_model": 8, "num_heads": 2, "num_layers": 2, "d_ff": 5, **config}
    model = na.GPT(na.GPTConfig(7, 6, **sizes), rng, np.float64)
    for p in model.parameters().values():
        p += 0.5 * rng.standard_normal(p.shape)
    return model


def test_without_edits_it_is_the_same_run(rng: np.random.Generator) -> None:
    model, ids = model_of(), rng.integers(0, 7, (3, 5))
    logits, cache = model.forward(ids)
    watched, watched_cache = inside.forward_with(model, {}, ids)
    np.testing.assert_array_equal(watched, logits)
    dlogits = rng.standard_normal(logits.shape)
    grads = dict(model.gradients_from_logits(cache, dlogits))
    _, watched_grads = inside.backward_with(dlogits, watched_cache)
    assert list(watched_grads) == list(model.parameters())
    for name, grad in watched_grads.items():
        np.testing.assert_array_equal(grad, grads[name], err_msg=name)
