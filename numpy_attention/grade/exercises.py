"""What each exercise is called, and what is claimed of a right answer; what is tried stands on the catalogue's pages."""

DIFFERENCES = (
    "float32 in, float32 out; every element of the gradient agrees with differences of the forward, for a random dy"
)
CLAIMS = {
    "linear": (
        "the gradients of a linear map",
        f"{DIFFERENCES} and any number of leading axes.",
    ),
    "embedding": (
        "the gradient of an embedding",
        f"{DIFFERENCES} and ids that repeat.",
    ),
    "tied_table": (
        "the two gradients of a tied table",
        f"{DIFFERENCES} and ids that repeat.",
    ),
    "softmax": (
        "the gradient of the softmax",
        f"{DIFFERENCES}, along any axis; its rows sum to zero.",
    ),
    "causal_mask": (
        "the causal mask, and a softmax that minds it",
        "mask[i, j] is True exactly when key j is not after query i, the last query standing at the last key; rows that see nothing get zero gradient, never NaN; float32 in, float32 out.",
    ),
    "dropout": (
        "dropout from nothing",
        f"{DIFFERENCES}, with a generator and without.",
    ),
    "attention_forward": (
        "attention from nothing",
        "Both results agree with the formula, with T_q != T_k, masks that hide whole rows, scores of a thousand; float32 in, float32 out.",
    ),
    "attention": (
        "the gradients of attention",
        f"{DIFFERENCES}, T_q != T_k, and masks that hide whole rows.",
    ),
    "attention_options": (
        "attention with bias, dropout and shared heads",
        f"{DIFFERENCES}, with a bias that is broadcast, dropout on the weights, and several query heads to a key head.",
    ),
    "heads": (
        "splitting and joining heads",
        f"{DIFFERENCES}; every number goes back to where it came from.",
    ),
    "rotary": (
        "rotary positions from nothing",
        f"{DIFFERENCES}; and every vector keeps its length.",
    ),
    "layer_norm": (
        "the gradients of layer norm",
        f"{DIFFERENCES} and a random gamma.",
    ),
    "rms_norm": (
        "RMS norm from nothing",
        f"{DIFFERENCES} and a random gamma.",
    ),
    "gelu": (
        "the gradient of GELU (tanh form)",
        f"{DIFFERENCES}, to nine digits: the erf form is only near.",
    ),
    "cross_entropy": (
        "the gradient of the cross-entropy",
        f"{DIFFERENCES}; ignored places get exactly zero.",
    ),
    "tiled_attention": (
        "attention in little memory",
        f"{DIFFERENCES}, masks among them; and no array of T_q x T_k is ever built.",
    ),
    "multi_head_attention": (
        "the gradients of multi-head attention",
        f"{DIFFERENCES}: for x, for the context, and for all four weight matrices.",
    ),
    "encoder_block": (
        "the gradients of a whole encoder block",
        f"{DIFFERENCES}: for x and for every parameter.",
    ),
    "kv_cache": (
        "attention with stored keys",
        "The outputs and the longer store, of one new token and of several.",
    ),
    "top_p": (
        "the next token, by top-p",
        "The probabilities that are kept, and the token for a number u in [0, 1).",
    ),
    "adam": (
        "one step of Adam",
        "Four steps agree with steps by hand, element by element, tiny gradients among them.",
    ),
    "byte_pairs": (
        "byte pairs from nothing",
        "The same merges and the same ids, ties and repeats among them.",
    ),
    "several_workers": (
        "one gradient from several workers",
        "The gradient of the mean over the places of all.",
    ),
    "low_rank": (
        "the gradients of a change of low rank",
        f"{DIFFERENCES}: for x, a and b, and none for the frozen w.",
    ),
    "ablation": (
        "the gradients of an edit",
        f"{DIFFERENCES}, whatever is kept, and an add that is repeated.",
    ),
    "prefix_matching": (
        "heads that look for what came last time",
        "The mean weight on the key behind the earlier copy, of one head and of several; float32 in, float32 out.",
    ),
    "direct_effect": (
        "what a part of the stream says about a token",
        "The effect at each position, through the norm of the whole stream; float32 in, float32 out.",
    ),
    "differences": (
        "a gradient by differences",
        "Each element is the central difference of sum(dy * f(x)).",
    ),
}
