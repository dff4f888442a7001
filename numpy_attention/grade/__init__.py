"""The tutor: exercises, three hints for each, and a look at an answer in numbers.

    exercises     the list, in the order of the tutorials
    exercise      what an exercise is: what the file must hold, on which inputs it is tried
    hints         the first says where to look, the last is almost the answer
    run           files from the command line, each in a Python of its own (`worker`)
    grading       the properties in turn, the smallest example against each
    recognize     whose mistake is it? a wrong answer beside all known wrong answers of the gallery
    tutor         what is said: the example in numbers, the likely mistake
"""
