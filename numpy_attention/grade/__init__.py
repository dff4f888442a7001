"""The tutor: it grades an answer to an exercise, and explains a wrong one with a small example in numbers.

    python -m numpy_attention grade softmax.py

    run          which exercise is it?
     | starts
    process ~~ messages ~~ worker      another Python with limits imports the file, behind a guard; the
     |                                 functions of the file then look to the grader as if they were here
    grading      checks one property after another; at the first that fails, Hypothesis finds the smallest example
     |           form: number, shapes and dtypes of the gradients;  formula: are they as exact as a formula?
    tutor        explains that example
     |
    recognize    is it one of the known mistakes?  Then the tutor names it.

    page         the claim, the hints and the solution of an exercise, from pages/NAME.md
    messages     one line of JSON for each request and each reply
    guard        refuses the package's own backward, programs that differentiate, differences of the forward

The pages of the catalogue hold the inputs on which an exercise is tried, its right answer and its known mistakes.
"""
