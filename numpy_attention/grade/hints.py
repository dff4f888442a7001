"""Three hints for each exercise: the first says where to look, the last is almost the answer."""

TEXT = """
softmax
  1. Raising x_j raises y_j and lowers every other y_i of the row. By the quotient rule dy_i/dx_j = y_i ([i = j]
     - y_j).
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
  2. x_hat_i depends on x_j directly, through the mean, and through r: dx_hat_i/dx_j = r [i = j] - r / d - r
     x_hat_i x_hat_j / d.
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
