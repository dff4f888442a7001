"""The acceptance set of the gradient checker: right functions that it must not refuse, mistakes that it must catch.

    third_party/    69 functions of typical users with right gradients, drawn at up to nine scales
    mistakes/       323 mistakes in these functions, each with a pattern for the right diagnosis
    fresh/          50 more functions and 169 mistakes, written without reading the checker

`python -m tests.gradcheck.acceptance` measures all of it.
"""
