"""Three hints for each exercise: the first says where to look, the last is almost the answer."""

TEXT = """
softmax
  1. Raising x_j raises y_j and lowers every other y_i of the row. By the quotient rule the slope of y_i for
     x_j is y_i ([i = j] - y_j).
  2. Sum over all i: dx_j = sum_i dy_i y_i ([i = j] - y_j). The bracket splits the sum in two.
  3. dx_j = dy_j y_j - y_j sum_i dy_i y_i. The last sum is one number a row: .sum(axis=axis, keepdims=True).

linear
  1. Write out one element, y_nj = sum_i x_ni w_ij + b_j, and ask in which y each variable occurs.
  2. x_ni meets every output j of its own row; w_ij and b_j are used again by every row n, so their rows add up.
  3. Flatten to rows, dy.reshape(-1, d_out): dx = dy w^T, dw = x^T dy, db = dy summed over all rows. Give dx the
     shape of x again.

embedding
  1. Row v of the table is used at every place where id v stands, and not at all if it stands nowhere.
  2. So dtable[v] is the sum of dy over those places. A token that stands twice gets two terms.
  3. dtable[ids] += dy reads dtable[ids] once, before it writes, and loses repeats. np.add.at(dtable, ids, dy)
     does not, and takes ids of any shape; a loop needs one long list, ids.reshape(-1), and the rows of dy alike.

layer_norm
  1. The last line first: y = gamma * x_hat + beta. gamma and beta serve all rows, so dgamma and dbeta sum over
     every axis but the last, and dx_hat = dy * gamma.
  2. x_hat_i depends on x_j directly, through the mean, and through r. The slope of x_hat_i for x_j is
     r [i = j] - r / d - r x_hat_i x_hat_j / d.
  3. Multiply by dx_hat_i and sum over i: dx = r * (dx_hat - mean(dx_hat) - x_hat * mean(dx_hat * x_hat)), each
     mean over the last axis with keepdims=True.

gelu
  1. A product rule: y = x P(x), so y' = P + x P'.
  2. P = (1 + tanh u) / 2, and (tanh u)' = (1 - tanh(u)^2) u'.
  3. u' = sqrt(2 / pi) (1 + 3 * 0.044715 x^2), so dx = dy * (P + x * (1 - tanh(u)^2) / 2 * u').

cross_entropy
  1. Start with one place without smoothing: loss = logsumexp(x) - x_t. What is the derivative of logsumexp?
  2. d logsumexp / dx_v = p_v, so dx = p - one_hot. With smoothing the one-hot vector is q.
  3. dlogits = dloss * (p - q) / N at the places that count, and zero elsewhere: multiply by counted.

attention
  1. Undo the lines from the last to the first. y = weights v is a product of two variable factors: dweights =
     dy v^T, and dv = weights^T dy.
  2. weights = softmax(scores): dscores = weights * (dweights - sum(dweights * weights)), the sum over the keys.
     Hidden weights are 0, so the mask needs no line of its own.
  3. scores = scale q k^T: dq = scale dscores k, and dk = scale dscores^T q. Transpose with swapaxes(-1, -2).

attention_options
  1. y = dropped v, so dv uses the dropped weights; dropped = weights * factor, so dweights = ddropped * factor;
     the softmax's line uses the whole weights.
  2. dbias = dscores, summed over every axis along which the bias was broadcast: those it lacks, and those where
     it has size 1.
  3. Compute dk and dv for the repeated heads (B, H_q, ...), then add up the G heads of each group: reshape to
     (B, H_kv, G, ...) and sum over axis 2.

heads
  1. Undo the two steps of each forward in the opposite order.
  2. split: cut, then swap. Back: swap, then lay side by side. concat: swap, then lay side by side. Back: cut,
     then swap.
  3. So each backward is the other's forward. A reshape without the swap has the right shape and the wrong
     numbers.

multi_head_attention
  1. Read the forward from bottom to top, and call for each line the backward of its op with the cache of that
     line.
  2. linear_backward returns three gradients, dx, dw and None for the bias that is off; attention's returns
     four.
  3. In self-attention x was query, key and value: dx is the sum of three terms. In cross-attention the first is
     dx, and the sum of the other two is dcontext.

causal_mask
  1. Query i stands at position i + T_k - T_q. It may look at key j when j is not larger.
  2. np.arange(T_k) <= something of shape (T_q, 1) gives the whole mask at once.
  3. The gradient is that of the softmax, y * (dy - sum(dy * y)): y is 0 wherever the mask is False, so nothing
     leaks, and a row of zeros stays a row of zeros.

tiled_attention
  1. Walk over the same tiles. In each, make the weights again: w = exp(s - L[rows]), with s as in the forward,
     -inf where the mask is False.
  2. Within a tile it is plain attention, but the softmax's row sum runs over all keys. It need not be
     collected: sum_j w_ij (dy_i . v_j) = dy_i . y_i.
  3. With D = (dy * y).sum(axis=-1, keepdims=True): dv[columns] += w^T dy; ds = w * (dy v^T - D); dq[rows] +=
     scale ds k; dk[columns] += scale ds^T q.

encoder_block
  1. A sum passes its gradient on unchanged to both of its terms: y = h + f(h) gives dh = dy + (the gradient
     that comes back through f).
  2. Through the second branch: feed_forward.backward(dy, ...), then norm_2.backward(...), then add dy. The
     first branch is the same with attention and norm_1.
  3. Collect grads = prefixed('norm_2', ...) | prefixed('feed_forward', ...) | ... , and return dx, grads.

adam
  1. Count the steps from one. The two means are updated in place: m *= beta_1, then m += (1 - beta_1) * g.
  2. With a constant gradient g, m after t steps is (1 - beta_1^t) g. So m_hat = m / (1 - beta_1^t), and v_hat
     alike.
  3. p -= learning_rate * m_hat / (np.sqrt(v_hat) + eps): eps outside the root, and p changed in place.

low_rank
  1. Read the second term from left to right, z = x a and then scale z b: each is a linear map, whose gradients you
     know. scale belongs to the second.
  2. db = scale z^T dy and dz = scale dy b^T, then da = x^T dz. Flatten to rows before you multiply the transposes.
  3. x goes both ways, so dx = dy w^T + dz a^T. x^T dy, as large as w, is nobody's gradient: leave it out.

attention_forward
  1. Three lines: scores = q k^T / sqrt(d_k), weights = softmax(scores), y = weights v. Transpose with swapaxes(-1,
     -2), so that it works for any number of leading axes.
  2. Hidden scores are -inf, so that their weights are exp(-inf) = 0. Subtract the row's largest score before the
     exponential, or a score of 1000 overflows.
  3. In a row that sees nothing the largest score is -inf: take np.maximum(largest, np.finfo(scores.dtype).min). All
     its exponentials are 0, so divide by np.maximum(sum, 1). Elsewhere the largest gives exp(0) = 1, and the sum is
     1 or more.

rotary
  1. angles = positions[..., None] * frequencies, with frequencies = base ** (-np.arange(0, d_k, 2) / d_k). Then cut
     x into halves, x_1 = x[..., :d_k // 2] and x_2 the rest.
  2. A turn of a pair: y_1 = x_1 cos - x_2 sin, y_2 = x_2 cos + x_1 sin. Lay both side by side. For the backward ask
     which matrix that is, and what its transpose does.
  3. The transpose of a turn is the turn back: dx_1 = dy_1 cos + dy_2 sin, dx_2 = dy_2 cos - dy_1 sin. The forward
     with -sin for sin. cos and sin in the dtype of x keep float32.

rms_norm
  1. r = 1 / sqrt(mean(x^2) + eps), one number a row; x_hat = x r; y = gamma x_hat. It is layer norm without the
     mean and without beta.
  2. dx_hat = dy gamma, and dgamma sums dy x_hat over all axes but the last. x_j moves its own x_hat and, by r, all
     of its row: the slope of x_hat_i for x_j is r [i = j] - r x_hat_i x_hat_j / d.
  3. Multiply by dx_hat_i and sum over i: dx = r * (dx_hat - x_hat * mean(dx_hat * x_hat)), the mean over the last
     axis with keepdims=True.

dropout
  1. With kept drawn, y is x where kept and 0 elsewhere, and what is kept is divided by the share that is kept, 1 -
     rate, so that the expectation stays x.
  2. Without a generator nothing is dropped, and nothing is divided: y is x. The cache must tell the backward which
     of the two it was.
  3. For a mask that is drawn, y is linear in x: dx = dy * kept / (1 - rate), with the very mask of this call, out
     of the cache. (kept / (1 - rate)).astype(x.dtype) is a factor for both directions, in use simply 1.

differences
  1. To find dx at one place, move x at that place alone by h, up and down, and see how far L = sum(dy * f(x)) goes.
     All else stays where it was.
  2. dx_i = (L(x + h e_i) - L(x - h e_i)) / (2 h), where e_i is 1 at place i and 0 elsewhere. np.ndindex(x.shape)
     visits all places.
  3. For each i: step = np.zeros_like(x); step[i] = h; dx[i] = ((f(x + step) - f(x - step)) * dy).sum() / (2 * h).

tied_table
  1. The table stands in two lines, x = table[ids] and logits = h table^T. Derive each as if the other's table were
     another array, and add.
  2. From logits = h table^T: dh = dlogits table, and the table's first gradient is dlogits^T h over all rows. Then
     h = x w gives dw = x^T dh and dx = dh w^T.
  3. The second: np.add.at(dtable, ids, dx), into the same dtable that holds the first. Flatten to rows with
     reshape(-1, ...) before you multiply transposes.

byte_pairs
  1. Counter(pairwise(ids)) counts all neighbours; the best pair is the most frequent, of equals min(...). The new
     id is 256 plus the number of merges so far.
  2. One function does the replacing for both: walk from the left, and where two neighbours are the pair, put the
     new id and step over both, else copy one.
  3. learn_merges: count, stop if the best stands less than twice, replace, append, and again. encode: for i, pair
     in enumerate(merges) replace the pair by 256 + i.

kv_cache
  1. A key depends on its own token alone, so that of a stored one never changes: only x @ w_k and x @ w_v are new.
     Put them behind the store.
  2. Then it is attention with fewer queries than keys. Query i stands at position i + stored, and sees the keys up
     to there, its own included.
  3. np.tri(new, stored + new, stored, dtype=bool) is that mask; for one new token it is all True. Scores hidden to
     -inf, softmax, times v; return y, k, v with the longer k and v.

top_p
  1. Softmax, then sort: order = np.argsort(-y, axis=-1). How far do the sums of the likelier tokens, before each,
     come?
  2. A token stays if the sum of all likelier ones is below p: np.cumsum(ranked) - ranked < p. So the first always
     stays, and so does the one that takes the sum past p.
  3. np.put_along_axis(kept, order, ..., axis=-1) puts them back at their places; divide by the sum. draw: the first
     token with cumulative > u is number (cumulative <= u).sum().

several_workers
  1. Worker w sends the gradient of (1 / n_w) sum of its losses. Wanted is that of (1 / n) sum of all, n = n_1 + n_2
     + ...
  2. n_w times what it sends is the gradient of its sum of losses, and sums add up.
  3. For each name: sum of n_w * grads[w][name] over the workers, divided by max(n, 1), so that no places at all
     give 0 and not 0 / 0.

ablation
  1. x and add both stand in y without anything bent: which factor does each have? Ask it first where x is kept, then
     where it is thrown away.
  2. dx is dy where x was kept, and 0 elsewhere. add counts everywhere, kept or not, so keep has no say in dadd.
  3. dadd = dy, summed over every axis that add lacks and every axis where it has size 1, in the shape of add. dx =
     np.where(keep, dy, 0.0); keep may be None, and so may dadd.

prefix_matching
  1. Write down for N = 3 which key each of the queries 3, 4, 5 is to look at: the one behind the earlier copy of its
     token.
  2. Query t looks at key t - N + 1, so these are the keys 1 .. N. Two lists of indices of equal length pick pairs:
     weights[:, [3, 4, 5], [1, 2, 3]].
  3. With t = np.arange(N, 2 * N) it is weights[:, t, t - N + 1], of shape (H, N); then the mean over the last axis.

direct_effect
  1. Two things are taken of the part and one of the stream: the part, its mean; and sigma, by which the norm divides.
  2. sigma = np.sqrt(stream.var(axis=-1) + eps), one number a position, of the whole stream, eps under the root.
  3. (part - part.mean(axis=-1, keepdims=True)) * gamma * direction, summed over the last axis, divided by sigma.
"""


def _read(text: str) -> dict[str, tuple[str, ...]]:
    """A name at the start of a line, then its numbered hints."""
    hints: dict[str, list[str]] = {}
    for line in text.strip().splitlines():
        if line and not line.startswith(" "):
            own = hints.setdefault(line, [])
        elif line[:5].strip():
            own.append(line[5:])
        elif line:
            own[-1] += " " + line.strip()
    return {name: tuple(own) for name, own in hints.items()}


HINTS: dict[str, tuple[str, ...]] = _read(TEXT)
