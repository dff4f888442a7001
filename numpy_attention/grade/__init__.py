"""The tutor: it looks at an answer to an exercise in numbers, and says what it sees.

    softmax.py --> run --------> process ~~~~~> worker        another Python, with limits: it imports the file last,
                   which         starts it,  <~~~~~ arrays    and calls its functions as it is told
                   exercise?       |
                                   v
                                 grading ----------> recognize --------> tutor
                                 each property in    the known wrong     the example in numbers, and the known mistake
                                 turn, until one     answers beside      by name, or else the likely one
                                 fails: the smallest this one: the
                                 example against it  same?

    page         what a student reads of an exercise: claim, hints and solution, in pages/NAME.md
    messages     what travels between the two processes: JSON and arrays, and no objects
    guard        what is no answer: the package's own backward, a program that derives, differences of the forward
    form         is what a backward returns so many arrays, of these shapes?
    formula      is a gradient as exact as a formula makes it?

On which inputs an exercise is tried, the right answers and the known wrong ones stand on the catalogue's pages.
"""
