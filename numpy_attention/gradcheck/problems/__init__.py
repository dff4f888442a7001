"""What is checked, brought into one form: a function of named arrays, and the gradients it claims.

    trees      dicts, lists, dataclasses: taken apart into named arrays, and put together again
    options    what a function takes besides its inputs
    returned   what a backward returned, matched with the arguments
    problem    an op, or a function with its vector-Jacobian product
    layer      a layer or a model: a function of its inputs and its parameters
"""
