"""`python -m numpy_attention`: a command is needed, and one that there is."""

from tests.cli.commands import refused


def test_no_command_and_an_unknown_one_are_told(capsys):
    assert "required: COMMAND" in refused(capsys)
    assert "invalid choice: 'trian'" in refused(capsys, "trian")
