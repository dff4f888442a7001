"""The tutor: exercises, three hints for each, and a look at an answer in numbers.

    softmax.py --> run --------> remote ~~~~~~> worker        another Python, with limits: it imports the file last,
                   which         starts it,  <~~~~~~ arrays    and calls its functions as it is told
                   exercise?       |
                                   v
                                 grading ----------> recognize --------> tutor
                                 each property in    the gallery's       the example in numbers, and the known mistake
                                 turn, until one     wrong answers, and  by name, or else the likely one
                                 fails: the smallest the slips, beside
                                 example against it  this one: the same?

    exercises     the list, in the order of the tutorials
    exercise      what an exercise is: what the file must hold, on which inputs it is tried
    references    the right answers;    slips: wrong ones that are known, beside those of the gallery
    quiz          for a function without a gradient: questions, and its answers beside the right ones;    quizzes: all
    hints         the first says where to look, the last is almost the answer;    solution: the answer, and why
    wire          what travels between the two processes: arrays, and no objects
    proxies       the functions and layers of the other process, to be called as if they were here
    guard         what is no answer: the package's own backward, a program that derives, differences of the forward
    formula       is a gradient as exact as a formula makes it?
    limits        on memory and time;    stopped: an exception, on its way from one process to the other
"""
