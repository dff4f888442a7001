"""Losses of preference learning: DPO, IPO, KTO, PPO and Bradley-Terry."""

import numpy as np

from tests.gradcheck.acceptance.fresh.pairs import Pairs
from tests.gradcheck.acceptance.fresh.words import FACTOR_2, LEAK, MEAN_LEFT_OUT, REPEATED, SIGN, TERM_MISSING, TWICE

PAIRS = Pairs()


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def dpo(chosen, rejected, mask_chosen, mask_rejected, reference, *, beta=0.3):
    """Log-probabilities of the tokens (B, T), masks (B, T), log-ratio of the reference model (B,)."""
    margin = (chosen * mask_chosen).sum(-1) - (rejected * mask_rejected).sum(-1) - reference
    z = beta * margin
    return np.mean(np.log(1 + np.exp(-z))), (z, mask_chosen, mask_rejected, beta)


def dpo_backward(dy, cache):
    z, mask_chosen, mask_rejected, beta = cache
    dz = -dy * sigmoid(-z) / len(z)
    dmargin = beta * dz
    dchosen = dmargin[:, None] * mask_chosen
    drejected = -dmargin[:, None] * mask_rejected
    return dchosen, drejected, -dmargin


def draw_dpo(rng):
    mask = np.arange(6) < np.array([6, 3, 5, 2])[:, None]
    return {
        "chosen": rng.standard_normal((4, 6)), "rejected": rng.standard_normal((4, 6)), "mask_chosen": mask,
        "mask_rejected": mask[::-1].copy(), "reference": rng.standard_normal(4),
    }


DPO = PAIRS.right(dpo, dpo_backward, draw_dpo)
PAIRS.wrong(DPO, "the padding gets a gradient", {" * mask_rejected\n": " * np.ones(mask_rejected.shape)\n"},
            "The mask of the rejected tokens is applied only in the forward.", *LEAK("mask_rejected"))
PAIRS.wrong(DPO, "rejected rises too", {"drejected = -dmargin": "drejected = dmargin"},
            "The gradient of rejected has the wrong sign.", *SIGN)
PAIRS.wrong(DPO, "sum for mean", {" / len(z)": ""}, "The 1/B of the mean is left out of the gradient.",
            *MEAN_LEFT_OUT(4))
PAIRS.wrong(DPO, "beta forgotten", {"beta * dz": "dz"}, "The chain rule factor beta is left out.", r"factor beta",
            r"beta is (left out|missing)", r"without beta", r"right (when|if|for|with) beta (=|is) 1",
            r"left out.*beta", r"beta.*(left out|missing)", r"constant factor 3\.333")
PAIRS.wrong(DPO, "the other sigmoid", {"sigmoid(-z)": "sigmoid(z)"},
            "The derivative of -log sigmoid(z) is -sigmoid(-z), but the backward uses sigmoid(z).", r"sigmoid\(-",
            r"sigmoid.*(sign|argument)", r"1 - sigmoid", r"1 - s\b", r"wrong sign (of|in) the argument", r"complement",
            r"`np\.exp\(-z\)` .*derivative .* left out")


def ipo(chosen, rejected, *, tau=0.5):
    """Sequence log-ratios (B,): the squared distance of their difference from 1 / (2 tau)."""
    h = chosen - rejected - 1 / (2 * tau)
    return np.mean(h**2), (h, tau)


def ipo_backward(dy, cache):
    h = cache[0]
    dh = 2 * h * dy / h.size
    return dh, -dh


IPO = PAIRS.right(ipo, ipo_backward,
                  lambda rng: {"chosen": rng.standard_normal(5), "rejected": rng.standard_normal(5)})
PAIRS.wrong(IPO, "two forgotten", {"2 * h": "h"}, "The factor 2 of the derivative of a square is missing.", *FACTOR_2)
PAIRS.wrong(IPO, "target forgotten", {"2 * h": "2 * (h + 1 / (2 * cache[1]))"},
            "The backward uses chosen - rejected without the target 1 / (2 tau): the constant is missing.",
            r"constant", r"off by the same number", r"offset", r"1/\(2 \* tau\)|1 ?/ ?\(2 ?\*? ?tau\)", r"tau")


def kto(policy, reference, desirable, *, beta=0.5):
    """Log-probabilities (B,); the batch mean of the log-ratio is the zero point of the values."""
    r = policy - reference
    sign = np.where(desirable, 1.0, -1.0)
    value = 1 / (1 + np.exp(-beta * sign * (r - r.mean())))
    return np.mean(1 - value), (value, sign, beta)


def kto_backward(dy, cache):
    value, sign, beta = cache
    dr = -dy * beta * sign * value * (1 - value) / len(value)
    dr = dr - dr.mean()
    return dr, -dr


KTO = PAIRS.right(kto, kto_backward, lambda rng: {
    "policy": rng.standard_normal(6), "reference": rng.standard_normal(6),
    "desirable": np.array([True, False, False, True, False, True])})
PAIRS.wrong(KTO, "zero point detached", {"dr = dr - dr.mean()": "dr = dr + 0.0"},
            "The path through the mean (the zero point) is missing: the backward takes the mean as a constant.",
            r"- mean\(", r"mean.*(missing|left out|constant)", r"(missing|left out).*mean", r"sums? to zero",
            r"off by the same")
PAIRS.wrong(KTO, "all are desirable", {"beta * sign * value": "beta * value"},
            "The factor sign is missing: the gradient has the wrong sign where desirable is False.",
            r"where desirable is false", r"desirable", r"factor sign")
PAIRS.wrong(KTO, "tanh slope", {"value * (1 - value)": "(1 - value**2)"},
            "The derivative of tanh is used, but the value is a sigmoid: it must be value (1 - value).",
            r"sigmoid", r"tanh", r"value \(1 - value\)", r"s \(1 - s\)", r"y \(1 - y\)")


def ppo(logp, old, advantage, *, eps=0.2):
    """The clipped surrogate loss of PPO; all arguments (B, T)."""
    ratio = np.exp(logp - old)
    clipped = np.clip(ratio, 1 - eps, 1 + eps)
    plain = ratio * advantage <= clipped * advantage
    return -np.where(plain, ratio * advantage, clipped * advantage).sum() / plain.size, (
        ratio, clipped, plain, advantage, eps)


def ppo_backward(dy, cache):
    ratio, clipped, plain, advantage, eps = cache
    dy = -dy / plain.size
    inside = (ratio > 1 - eps) & (ratio < 1 + eps)
    dratio = dy * advantage * (plain | inside)
    dadvantage = dy * np.where(plain, ratio, clipped)
    dlogp = dratio * ratio
    return dlogp, -dlogp, dadvantage


PPO = PAIRS.right(ppo, ppo_backward, lambda rng: {
    "logp": -rng.uniform(0.5, 2, (3, 4)), "old": -rng.uniform(0.5, 2, (3, 4)),
    "advantage": rng.standard_normal((3, 4))})
PAIRS.wrong(PPO, "clip in the forward only", {" * (plain | inside)": ""},
            "The clip acts only in the forward: clipped samples must have the gradient zero.",
            r"clip", r"zero (where|at)", r"must be (zero|0)", r"saturat", r"forward is (constant|flat)", r"flat",
            r"does not depend")
PAIRS.wrong(PPO, "ratio forgotten", {"dratio * ratio": "dratio"},
            "The factor ratio, the derivative of exp, is missing in dlogp.",
            r"cache\[0\]", r"exp\b", r"factor ratio", r"ratio.*(left out|missing)", r"derivative of exp", r"factor exp")
PAIRS.wrong(PPO, "advantage of the plain branch", {"np.where(plain, ratio, clipped)": "ratio"},
            "dadvantage uses the ratio where the forward uses the clipped ratio.", r"clip", r"branch")


def bradley_terry(scores, winner, loser):
    """The scores (n,) of n players; winner, loser (m,) are the players of m games. The sum of their losses."""
    margin = scores[winner] - scores[loser]
    return np.log(1 + np.exp(-margin)).sum(), (margin, winner, loser, scores.shape)


def bradley_terry_backward(dy, cache):
    margin, winner, loser, shape = cache
    dmargin = -dy * sigmoid(-margin)
    dscores = np.zeros(shape)
    np.add.at(dscores, winner, dmargin)
    np.add.at(dscores, loser, -dmargin)
    return dscores


BRADLEY_TERRY = PAIRS.right(bradley_terry, bradley_terry_backward, lambda rng: {
    "scores": rng.standard_normal(5), "winner": np.array([0, 1, 1, 2, 4, 0, 0]),
    "loser": np.array([1, 2, 3, 3, 0, 4, 2])})
PAIRS.wrong(BRADLEY_TERRY, "buffered plus", {"np.add.at(dscores, winner, dmargin)": "dscores[winner] += dmargin"},
            "A player who wins several games gets the gradient of one game only: repeated indices are lost.", *REPEATED)
PAIRS.wrong(BRADLEY_TERRY, "losers ignored", {"    np.add.at(dscores, loser, -dmargin)\n": ""},
            "The second path of scores, as the loser of a game, is missing.", *TERM_MISSING, r"loser")
PAIRS.wrong(BRADLEY_TERRY, "mean for sum", {"-dy * sigmoid(-margin)": "-dy * sigmoid(-margin) / len(margin)"},
            "The gradient is divided by the number of games, but the loss is a sum.", *TWICE(7))
