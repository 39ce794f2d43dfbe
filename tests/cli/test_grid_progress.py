"""What a log says of a grid."""

from tpkd.cli.grid_progress import grid_progress


def test_a_stage_is_done_once(capsys):
    """Its last step tells, and then its end, which alone tells of one that was done before."""
    with grid_progress() as watcher:
        for name, done in (("teacher", 1), ("teacher", 2), ("teacher", 2), ("figures", 2)):
            watcher.on_stage(name, done, 2)
    assert capsys.readouterr().err.splitlines() == ["teacher: done", "figures: done"]
