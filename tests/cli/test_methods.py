"""What `tpkd methods` lists."""

from cli.training_runs import run
from tpkd.objectives import names


def test_methods_lists_every_objective(capsys, monkeypatch):
    code, out, _ = run(capsys, monkeypatch, "methods")
    assert code == 0
    listed = [line.split("│")[1].strip() for line in out.splitlines() if line.startswith("│")]
    assert [name for name in listed if name] == list(names())
