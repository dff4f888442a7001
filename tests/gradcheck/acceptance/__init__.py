"""The acceptance set of the gradient checker: what it must call right, and what it must call wrong.

    python -m tests.gradcheck.acceptance            prints all tables; --help lists the options

Run it before and after a change of the checker, and compare.

    folder         what                                                          counted in the table
    third_party    69 functions of typical users with right gradients,           false alarms
                   drawn at up to nine scales
    fresh          50 more right functions, written without reading the checker  false alarms
    mistakes       323 mistakes in the third-party functions                     missed, accused, right causes
    fresh          169 mistakes in the fresh functions                           missed, accused, right causes
    corners        131 calls at which a checker easily errs in both directions   not as expected
    (the tutor)    223 known mistakes on the pages of the tutor                  missed, right causes

Each mistake has a pattern for the diagnosis that names its cause. The patterns of the fresh set were written before the
checker first saw its mistakes. `fresh/held_out.py` measures how the checker works on code that its rules were not made
for: do not read it when you write a rule. Cases are never removed and never expected to fail: if the checker is wrong
at one, it must change.

    __main__           measures and prints
    verdict            what the checker says of one call, in one word
    test_acceptance    the same as tests: a sample in the default run, everything with `pytest -m slow`
"""
