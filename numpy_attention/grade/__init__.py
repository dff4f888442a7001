"""The tutor: it grades an answer to an exercise, and explains a wrong one with a small example in numbers.

    python -m numpy_attention grade softmax.py

    run          which exercise is it?
     | starts
    process ~~ wire ~~ worker          another Python with limits imports the file, behind a guard; the
     |                                 functions of the file then look to the grader as if they were here
    grading      checks one property after another; at the first that fails, Hypothesis finds the smallest example
     |           form: number, shapes and dtypes of the gradients;  formula: our own gradient tells right from
     |           wrong, and only then the checker says why
    tutor        explains that example: in the words of the known mistake if `recognize` finds one (its docstring in
                 catalogue/pages), else in those of the checker (gradcheck: terms, diagnosis)

    page         the claim, the hints and the solution of an exercise, from pages/NAME.md
    wire         one line of JSON for each request and each reply
    guard        refuses the package's own backward, programs that differentiate, differences of the forward

The pages of the catalogue hold the inputs on which an exercise is tried, its right answer and its known mistakes.
"""
