"""The likely mistake, in words: what is known once something is wrong, and what more can be asked.

    evidence      all that a failed check knows, and two ways to ask further
    relations     how the wrong gradient relates to the right one; by `factors`, by what was `added`, by other `terms`
    places        where the wrong elements lie
    branches      which values of the inputs tell the wrong elements from the right ones
    experiments   when does the backward become right? With nothing masked, with gamma all ones (`neutral`), ...
    paths         which part of dy reaches which part of a gradient?
    conventions   complex gradients by the other convention
    diagnosis     the sentence, from all of these
"""
