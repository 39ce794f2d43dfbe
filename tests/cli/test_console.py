"""Lines of a command are printed as they are."""

from tpkd.cli.console import say


def test_lines_keep_their_brackets_and_their_length(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    long = "runs/[red]" + 100 * "x"
    say(long, "second")
    say("wrong", error=True)
    assert capsys.readouterr() == (f"{long}\nsecond\n", "wrong\n")
