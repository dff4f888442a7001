"""Patterns of diagnoses that many mistakes share."""

SIGN = (r"wrong sign", r"signs? (is|are|of|in).*wrong", r"opposite sign", r"negat(ed|ive of)", r"sign.*flipped",
        r"flipped sign", r"(times|factor) -1\b", r"a minus", r"minus sign")
FACTOR_2 = (r"factor (of )?2\b", r"\bhalf\b", r"halved", r"times 2\b", r"2 times", r"twice as (large|big)",
            r"times 0\.5", r"factor 1/2", r"factor (of )?0\.5", r"(divided|division|multiplied) by 2\b")
REPEATED = (r"repeat", r"np\.add\.at", r"scatter", r"occurs? (more than once|several|twice)")
TERM_MISSING = (r"path.*missing", r"missing.*path", r"term.*(missing|left out|forgotten)", r"(missing|left out).*term",
                r"(?<!if )\b\w+ is used twice", r"second use")
TRANSPOSED = (r"transpos",)
PERMUTED = (r"wrong places", r"permut", r"exchanged", r"swapped", r"reversed", r"shift")
STALE = (r"outside the cache", r"(an)?other call", r"later (call|forward)", r"second (call|forward)",
         r"overwrit", r"state between", r"global", r"earlier call", r"next forward")
IN_PLACE = (r"in[ -]place", r"chang(es|ed) (the |its )?(cache|dy|input|array)", r"overwrit", r"modif",
            r"writes (in)?to", r"second (call|backward)")


def LEAK(mask: str) -> tuple[str, ...]:
    """A mask that acts only in the forward."""
    return rf"{mask} hides", rf"right (when|if|without).*{mask}", rf"{mask}.*backward too"


def MEAN_LEFT_OUT(n: int) -> tuple[str, ...]:
    """A factor 1/n is missing."""
    return (r"1/n\b.*missing", r"mean.*(missing|left out)", rf"division by {n}\b.*missing",
            rf"{n} times too (large|big)", rf"factor 1/{n}\b.*(missing|left out)",
            rf"(must be|missing).*divided by {n}\b")


def TWICE(n: int) -> tuple[str, ...]:
    """A factor 1/n too much."""
    return (r"once too often", r"mean instead of a sum", rf"factor {n} .*(missing|left out)", r"applied twice",
            rf"{n} times too small")
