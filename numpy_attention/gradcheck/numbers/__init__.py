"""The numbers: what a backward claims beside what two witnesses find, each with its own error bar.

    claims          the backward is asked with a random dy, and the round-off in its answer is measured
    point           where all this is asked, and what the judges share
    line            L = sum(dy y), a single number, along a line through the arrays
    differences     the derivative of L along that line, with its own error bar
    complex_step    the same to the last digit, by a step into the complex plane
    round_off       a claim in doubt: is it round-off, or only looks like it?
    kinks           corners and ties, where other claims are accepted, and some are not
    elements        small arrays by differences, element by element
    exactly         the same by complex steps, where differences confirm them
    directions      large arrays: random directions, then bisection down to the element
    low_precision   float32 and float16, held to the same backward in float64
"""
