"""The tutor: exercises, three hints for each, and a look at an answer in numbers.

    softmax.py --> run --------> worker -------> grading ------------> recognize -------> tutor
                   which         a Python of     each property in      the gallery's      the example in numbers,
                   exercise?     its own, with   turn, until one       wrong answers      the likely mistake, and
                   is there      a limit on      fails: the smallest   beside this one:   the known mistake by name
                   an answer?    its time        example against it    the same one?

    exercises     the list, in the order of the tutorials
    exercise      what an exercise is: what the file must hold, on which inputs it is tried
    hints         the first says where to look, the last is almost the answer
"""
