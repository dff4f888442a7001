"""`python -m numpy_attention`: a command is needed, and one that there is."""

from tests.cli.commands import refused


def test_no_command_and_an_unknown_one_are_told(capsys):
    assert "required: COMMAND" in refused(capsys)
    assert "invalid choice: 'trian'" in refused(capsys, "trian")


def test_an_error_is_one_line_of_bounded_length_with_its_beginning_and_its_end(capsys):
    err = refused(capsys, "grade", "x" * 200 + ".py", "--exercise", "y" * 5000)
    assert len(err) < 800
    err = refused(capsys, "t" * 5000)
    assert len(err) < 800
    assert "invalid choice: 'ttt" in err
    assert err.endswith("'gradcheck', 'grade')\n")
