"""`tpkd compare --status`: what another terminal sees of a grid."""

from cli.training_runs import run
from tpkd.cli.status import status_table
from tpkd.executors.jobs import JobEvent
from tpkd.executors.status import JobStatus, StatusWriter, announce


def test_the_cells_of_a_directory(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    announce(tmp_path, ["ce-1", "kd-1", "tpkd-1"], where="here")
    writer = StatusWriter(tmp_path, where="node-1")
    writer.note(JobEvent("started", "ce-1"))
    writer.note(JobEvent("progress", "ce-1", 30, 90))
    writer.note(JobEvent("failed", "kd-1", problem="out of memory"))
    code, out, err = run(capsys, monkeypatch, "compare", tmp_path, "--status")
    assert (code, err) == (0, "")
    rows = [line for line in out.splitlines() if "-1 " in line]
    assert [row.split()[1] for row in rows] == ["kd-1", "ce-1", "tpkd-1"]  # what needs a look first
    assert "out of memory" in rows[0]
    assert "30 of 90" in rows[1]
    assert "node-1" in rows[1]
    assert "0 of 3 finished, 1 running, 1 waiting, 1 failed" in out


def test_a_directory_without_a_grid(tmp_path, capsys, monkeypatch):
    code, _, err = run(capsys, monkeypatch, "compare", tmp_path, "--status")
    assert code == 2
    assert err == f"tpkd: {tmp_path}: expected the directory of a grid, found no status/ in it\n"


def test_a_cell_that_lost_its_machine():
    table = status_table([JobStatus("ce-1", "started", "node-2", 0.0, attempt=2)], 7200.0)
    assert [next(iter(column.cells)) for column in table.columns][1:5] == [
        "running (attempt 2)",
        "",
        "node-2",
        "2 h ago",
    ]
