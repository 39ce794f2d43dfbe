"""Which runs make a grid, and which grids are refused before anything runs."""

from pathlib import Path

import pytest

from tpkd.compare.grid import grid_directory, plan_grid
from tpkd.demo.run import CONFIGS
from tpkd.errors import InputError


@pytest.mark.parametrize(
    ("overrides", "methods", "message"),
    [
        ([], ["tkpd"], "did you mean tpkd"),
        ([], ["quantum"], "methods: unknown objective 'quantum', expected some of ce, kd"),
        (["methods={kdd: {epochs: 1}}"], None, "did you mean kd"),
        (["output=runs/{objective}"], None, "output: expected {seed} in it"),
        (["objective={name: kd, settings: {temperature: 2}}"], None, "objective.settings: expected none in a grid"),
        (["methods={tpkd: {epochs: 3}}"], None, "methods.tpkd: epochs: expected the same for all objectives, as ce"),
        (["methods={tpkd: {teacher.seed: 3}}"], None, "methods.tpkd: teacher: expected the same for all"),
        (["epoch=3"], None, "epoch: unknown key"),
    ],
)
def test_bad_grids_are_refused_in_one_line(overrides, methods, message):
    with pytest.raises(InputError) as refused:
        plan_grid(CONFIGS / "demo.yaml", overrides, methods=methods)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_probe_is_fitted_once_for_all_cells():
    grid = plan_grid(CONFIGS / "demo.yaml", ["student.head=probe"], methods=["ce", "kd"], seeds=[1])
    assert {cell.config.student.probe_file for cell in grid.cells} == {"demo-output/probe.safetensors"}


def test_finished_cells_drop_their_checkpoints_unless_asked_to_keep_them():
    """Of a run of its own nothing is dropped; a grid has many, and none of them is ever continued."""

    def kept(*overrides):
        grid = plan_grid(CONFIGS / "demo.yaml", overrides, methods=["ce", "kd"], seeds=[1])
        return {cell.config.finished.checkpoints for cell in grid.cells}

    assert kept() == {False}
    assert kept("finished.checkpoints=true") == {True}
    assert kept("finished.checkpoints=false") == {False}


def test_the_directory_of_a_grid_ends_before_the_first_placeholder():
    assert grid_directory("a/b-{seed}/{objective}") == Path("a")
    assert grid_directory("{objective}/{seed}") == Path(".")
