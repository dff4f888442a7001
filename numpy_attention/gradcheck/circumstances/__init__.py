"""The same backward in other circumstances: right numbers once are not enough.

    answers       when are two answers the same?
    structure     called again, with another dy, after another forward; and whose memory the results lie in
    layouts       arrays that are strided, reversed, read-only, or spread out without a copy
    small_sizes   axes of length 1
"""
