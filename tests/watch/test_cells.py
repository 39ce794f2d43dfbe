import pytest

from tpkd.errors import InputError
from tpkd.executors.status import read_status
from tpkd.watch.cells import find_runs, state_of, statuses_of
from watch.runs import note, write_grid, write_run


def test_a_run_is_itself_even_with_other_runs_below(tmp_path):
    write_run(tmp_path / "run")
    write_run(tmp_path / "run" / "inner")
    assert find_runs(tmp_path / "run") == {"run": tmp_path / "run"}


def test_cells_of_a_grid_in_any_folders(tmp_path):
    write_grid(tmp_path)
    write_run(tmp_path / "deep" / "dkd" / "43")
    write_run(tmp_path / "abandoned-1")
    write_run(tmp_path / "tpkd-42" / "abandoned-1")
    write_run(tmp_path / ".hidden")
    (tmp_path / "empty").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path)
    assert list(find_runs(tmp_path)) == ["deep/dkd/43", "kd-42", "tpkd-42"]


@pytest.mark.parametrize("name", ["missing", "file", "empty"])
def test_what_is_no_run_is_refused_in_one_line(tmp_path, name):
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=f"{name}: expected the directory of a run or a grid") as refused:
        find_runs(tmp_path / name)
    assert "\n" not in str(refused.value)


def test_a_grid_that_has_not_started_is_one(tmp_path):
    note(tmp_path, "waiting", "tpkd-42")
    assert find_runs(tmp_path) == {}
    assert list(statuses_of(tmp_path)) == ["tpkd-42"]


def test_states(tmp_path):
    write_grid(tmp_path)
    run = tmp_path / "tpkd-42"
    assert state_of(run, None) == "not finished"
    for kind, state in (("started", "running"), ("progress", "running"), ("stopped", "stopped"), ("failed", "failed")):
        note(tmp_path, kind, "tpkd-42")
        assert state_of(run, read_status(tmp_path, "tpkd-42")) == state
    (run / "result.json").write_text("{}")
    assert state_of(run, read_status(tmp_path, "tpkd-42")) == "finished"


def test_a_status_file_that_cannot_be_read_hides_no_cell(tmp_path):
    write_grid(tmp_path)
    (tmp_path / "status").mkdir()
    (tmp_path / "status" / "tpkd-42.json").write_text("{")
    assert statuses_of(tmp_path) == {}
    assert len(find_runs(tmp_path)) == 2
