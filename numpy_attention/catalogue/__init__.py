"""The catalogue: every op, layer and model in every variant, and what each must do.

    ops, layers, models,  a line for each variant, with the spec of its inputs
    inside
    table                 all of them, and `run`, which checks them by complex steps and differences
    properties            what every line must do beside: keep dtypes, change nothing, not mind strides, refuse nonsense
    plain                 the forward of each once more, in the plainest NumPy
    trials                what has no gradient to check: masks, optimizers, clipping, stored keys

Adding an op adds a line here; its gradients, dtypes, purity, strides, errors, and its twin on a GPU are then all
tested by that line. A public backward, layer or model that is missing fails a test.
"""
