"""A mistake is an edit of a chapter with an explanation; an edit that does not fit is refused with its line."""

from dataclasses import replace

import pytest

from numpy_attention.tutor.catalogue import CATALOGUE, EXERCISES, MISTAKES, TRIALS
from numpy_attention.tutor.change import module_of, with_functions_of
from numpy_attention.tutor.mistake import Mistake
from numpy_attention.tutor.page import Edit


def test_every_mistake_has_both_explanations() -> None:
    known = {entry.covers for entry in CATALOGUE.values()} | set(TRIALS)
    known |= {subject for exercise in EXERCISES.values() for subject in exercise.subjects}
    for mistake in MISTAKES.values():
        assert mistake.covers in known, f"{mistake.name} belongs to {mistake.covers}, which has no entry and no trial"
        for text in (mistake.wrong, mistake.hides):
            assert text.endswith("."), mistake.name
            assert len(text) > 10, mistake.name


def changed(old: str, new: str = "    pass", where: str = "softmax_backward") -> Mistake:
    edit = Edit(where, old.splitlines(), [new], 7)
    return replace(MISTAKES["zero"], edits=(edit,))


@pytest.mark.parametrize(("old", "where", "message"), [
    ("    dx = dy + average", "softmax_backward", "these lines .* in softmax_backward, but occur 0 times"),
    ("", "softmax_backward", "but occur 0 times"),
    ("    row_max = max_in_rows(x, axis)", "softmax_backward", "must occur exactly once in softmax_backward"),
    ("    check_shapes(op, SHAPES, x=x)", "softmax", "but occur 0 times"),
    ("    pass", "soft_max", "there is no function soft_max"),
])
def test_edit_whose_old_lines_do_not_occur_once_is_refused(old: str, where: str, message: str) -> None:
    with pytest.raises(ValueError, match=rf"(?s)pages/softmax\.md, line 7: zero: .*{message}"):
        changed(old, where=where).made("softmax_backward")


def misfit(mistake: Mistake) -> str:
    try:
        mistake.made(mistake.covers)
    except ValueError as error:
        return str(error)
    return ""


def test_every_edit_occurs_once_in_its_function() -> None:
    wrong = "\n\n".join(filter(None, map(misfit, MISTAKES.values())))
    assert not wrong, f"write these mistakes again:\n{wrong}"


def test_mistake_of_a_layer_replaces_its_methods_in_a_copy() -> None:
    entry = CATALOGUE["EncoderBlock: post-norm"]
    cls = type(MISTAKES["residual_twice"].spoil(entry).case(0).layer)
    right = type(entry.case(0).layer)
    assert cls.__name__ == right.__name__ == "EncoderBlock"
    assert issubclass(cls, right)
    assert cls.backward is not right.backward


def test_method_of_a_changed_base_class_does_not_hide_the_method_of_a_subclass() -> None:
    class Base:
        def f(self) -> str:
            return "base"

    class Sub(Base):
        def f(self) -> str:
            return "sub of " + super().f()

    Base.__module__ = "of_base"
    module = module_of("class Base:\n    def f(self):\n        return 'changed'\n", "of_base", "<of_base>")
    assert with_functions_of(Sub, [module])().f() == "sub of base"
    assert with_functions_of(Base, [module])().f() == "changed"
