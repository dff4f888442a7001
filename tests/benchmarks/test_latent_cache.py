"""The tables of docs/latent_cache.md are the output of the script, and a layer stores as many bytes as they say."""

import numpy as np
import pytest

import numpy_attention as na
from tests.benchmarks.latent_cache import MODELS, PAGE, Sizes, bytes_of, tables
from tests.generated import block


@pytest.mark.parametrize("name", tables())
def test_tables_show_the_output_of_the_script(name: str) -> None:
    assert block(name, "\n".join(tables()[name])) in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("one", MODELS, ids=lambda one: one.model)
def test_a_layer_of_these_sizes_stores_these_bytes(one: Sizes) -> None:
    if one.stored is None:
        layer = na.LatentAttention(2, one.H, None, one.r, one.d_k - one.d_rope, one.d_rope, one.d_v, dtype=np.float16)
    else:
        layer = na.MultiHeadAttention(2, one.H, None, one.stored, one.d_k, one.d_v, dtype=np.float16)
    past = na.KeyValueCache(3)
    layer.forward(np.zeros((1, 3, 2), np.float16), past=past)
    assert past.k.nbytes + past.v.nbytes == 3 * bytes_of(one)
