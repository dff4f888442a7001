"""`sample`: a prompt goes on, repeatably, or is refused."""


from numpy_attention.cli import main
from tests.cli.commands import refused, run_directory, text

__all__ = ["run_directory", "text"]


def test_a_sample_continues_the_prompt_and_is_repeatable(run_directory, capsys):
    command = ["sample", str(run_directory), "--prompt", "The ", "--tokens", "30", "--temperature", "0.8",
               "--top-k", "40", "--top-p", "0.95", "--seed"]
    texts = []
    for seed in ("1", "1", "2"):
        assert main([*command, seed]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]
    assert texts[0].startswith("The ")
    assert len(texts[0]) == len("The ") + 30 + 1


def test_a_prompt_longer_than_the_context_is_continued(run_directory, capsys):
    assert main(["sample", str(run_directory), "--prompt", "The quick brown fox", "--tokens", "5"]) == 0
    assert len(capsys.readouterr().out) == len("The quick brown fox") + 5 + 1


def test_sampling_refuses_what_it_cannot_do(run_directory, tmp_path, capsys):
    assert "there is no directory" in refused(capsys, "sample", tmp_path / "nowhere")
    assert "holds no checkpoint" in refused(capsys, "sample", tmp_path)
    assert "unknown to the model: '\u20ac'" in refused(capsys, "sample", run_directory, "--prompt", "The \u20ac")
    assert "--prompt" in refused(capsys, "sample", run_directory, "--prompt", "")
    for option, bad in (("tokens", -1), ("temperature", -1), ("temperature", "nan"), ("top-k", 0), ("top-p", 1.5),
                        ("seed", -1)):  # fmt: skip
        refused(capsys, "sample", run_directory, f"--{option}", bad)
    checkpoint = run_directory / "checkpoint.npz"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    assert "damaged" in refused(capsys, "sample", run_directory)
    checkpoint.write_bytes(b"no zip at all")
    assert "damaged" in refused(capsys, "train", "--resume", run_directory)
