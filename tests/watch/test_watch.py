from tpkd.watch.watch import Watch
from watch.runs import metrics, note, write_grid, write_run


def cells(watch):
    watch.refresh()
    return {cell.name: cell for cell in watch.record(every=None).cells}


def test_a_grid_with_cells_in_every_state(tmp_path):
    write_grid(tmp_path)
    write_run(tmp_path / "ce-42", finished=True)
    note(tmp_path, "waiting", "dkd-42")
    note(tmp_path, "progress", "tpkd-42", 5, 20)
    note(tmp_path, "failed", "kd-42", problem="out of memory")
    watch = Watch(tmp_path)
    found = cells(watch)
    states = {name: cell.state for name, cell in found.items()}
    assert states == {"ce-42": "finished", "kd-42": "failed", "tpkd-42": "running", "dkd-42": "waiting"}
    assert (found["tpkd-42"].step, found["tpkd-42"].num_steps) == (5, 20)
    assert found["kd-42"].problem == "out of memory"
    assert found["tpkd-42"].latest["transfer_cost"] == 1 / 5
    assert found["dkd-42"].version == 0
    assert watch.curves(found["dkd-42"].number) is None
    assert watch.curves(99) is None


def test_numbers_of_cells_stay_while_others_appear(tmp_path):
    write_grid(tmp_path)
    watch = Watch(tmp_path)
    before = {name: cell.number for name, cell in cells(watch).items()}
    write_run(tmp_path / "ce-42")
    after = {name: cell.number for name, cell in cells(watch).items()}
    assert after.items() >= before.items()
    assert len(set(after.values())) == 3
    assert watch.curves(after["ce-42"]).values["loss"] == (1.0, 1 / 2, 1 / 3, 1 / 4, 1 / 5)


def test_only_a_cell_that_grows_gets_a_new_version(tmp_path):
    write_grid(tmp_path)
    watch = Watch(tmp_path)
    before = cells(watch)
    with (tmp_path / "kd-42" / "metrics.jsonl").open("a") as file:
        file.write(metrics([6]))
    after = cells(watch)
    assert after["kd-42"].version > before["kd-42"].version
    assert after["tpkd-42"].version == before["tpkd-42"].version


def test_a_cell_whose_folder_is_moved_away_is_no_longer_shown(tmp_path):
    write_grid(tmp_path)
    watch = Watch(tmp_path)
    cells(watch)
    (tmp_path / "kd-42").rename(tmp_path / "abandoned-1")
    assert set(cells(watch)) == {"tpkd-42"}


def test_a_run_alone(tmp_path):
    watch = Watch(write_run(tmp_path / "mine"))
    (cell,) = cells(watch).values()
    assert (cell.name, cell.step, cell.state) == ("mine", 5, "not finished")
    assert not watch.record(every=2.0).is_grid
