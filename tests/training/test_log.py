import errno
import hashlib
import json
import os

import pytest

from tpkd.errors import InputError
from tpkd.training.log import Averages, RunLog
from tpkd.training.trackers import Trackers


def open_log(directory, offset=0, step=0, *, tracking=(), writes=True):
    return RunLog(directory, offset=offset, step=step, trackers=Trackers(tracking, directory, {}), writes=writes)


def lines(directory):
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def test_lines_are_plain_json_and_what_is_not_finite_is_null(tmp_path):
    with open_log(tmp_path) as log:
        log.write("train", 3, {"loss": 0.5, "gradient_norm": float("inf"), "epoch": 1})
    assert lines(tmp_path) == [{"kind": "train", "step": 3, "loss": 0.5, "gradient_norm": None, "epoch": 1}]


def test_a_log_that_continues_is_cut_back_to_where_it_continues(tmp_path):
    with open_log(tmp_path) as log:
        log.write("train", 1, {})
        offset, digest = log.sync()
    assert digest == hashlib.sha256((tmp_path / "metrics.jsonl").read_bytes()).hexdigest()
    with open_log(tmp_path, offset, 1) as log:
        log.write("train", 2, {"lost": True})
    with open_log(tmp_path, offset, 1) as log:
        log.write("train", 2, {})
        after, digest = log.sync()
    assert [line["step"] for line in lines(tmp_path)] == [1, 2]
    assert "lost" not in lines(tmp_path)[1]
    assert after == (tmp_path / "metrics.jsonl").stat().st_size
    assert digest == hashlib.sha256((tmp_path / "metrics.jsonl").read_bytes()).hexdigest()


def test_a_log_that_starts_anew_forgets_what_a_killed_run_wrote(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"kind": "train"}\n{"ki')
    with open_log(tmp_path) as log:
        log.write("train", 1, {})
    assert len(lines(tmp_path)) == 1


def test_a_log_that_lost_lines_is_refused(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match=r"metrics\.jsonl: expected at least 100 bytes up to step 9, found 3"):
        open_log(tmp_path, 100, 9)


def test_a_disk_that_refuses_a_line_is_said_with_the_path(tmp_path):
    class Full:
        def write(self, data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def close(self):
            pass

    log = open_log(tmp_path)
    log._file.close()
    log._file = Full()
    with pytest.raises(InputError, match=r"metrics\.jsonl: cannot be written: No space left on device"):
        log.write("train", 1, {})
    (tmp_path / "metrics.jsonl").unlink()
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(InputError, match=r"metrics\.jsonl: expected a regular file, found a directory"):
        open_log(tmp_path)


def test_a_process_that_is_not_the_first_writes_nothing(tmp_path):
    with open_log(tmp_path, writes=False, tracking=["tensorboard"]) as log:
        log.write("train", 1, {"loss": 1.0})
        log.note("hello")
        assert log.sync() == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_what_ended_a_run_is_noted(tmp_path):
    with pytest.raises(KeyError), open_log(tmp_path) as log:
        raise KeyError("gone")
    assert (tmp_path / "run.log").read_text().endswith("stopped: 'gone'\n")
    with open_log(tmp_path) as log:
        log.note("started")
    assert (tmp_path / "run.log").read_text().endswith(" started\n")


def test_numbers_reach_tensorboard_under_kind_and_name(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with open_log(tmp_path, tracking=["tensorboard"]) as log:
        for step in (1, 2):
            log.write("train", step, {"loss": 1.0 / step, "text": "no number"})
    with open_log(tmp_path, step=1, tracking=["tensorboard"]) as log:
        log.write("train", 2, {"loss": 7.0})
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert events.Tags()["scalars"] == ["train/loss"]
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(1, 1.0), (2, 7.0)]


def test_a_tracker_that_fails_is_noted_and_the_metrics_go_on(tmp_path):
    (tmp_path / "tensorboard").write_text("in the way")
    with open_log(tmp_path, tracking=["tensorboard"]) as log:
        log.write("train", 1, {"loss": 1.0})
    assert "tracking: tensorboard failed and is left out from here on: " in (tmp_path / "run.log").read_text()
    assert [line["step"] for line in lines(tmp_path)] == [1]


def test_averages_survive_a_checkpoint_bit_for_bit():
    averages, other = Averages(), Averages()
    for value in (0.1, 0.2, 0.3):
        averages.add({"loss": value})
        other.add({"loss": value})
        other = Averages(json.loads(json.dumps(other.state)))
    assert averages.means() == other.means()


def test_averages_leave_out_what_is_not_finite():
    averages = Averages()
    averages.add({"norm": float("inf")})
    averages.add({"norm": 2.0})
    assert averages.means() == {"norm": 2.0}
    averages.reset()
    assert averages.means() == {}


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_under_the_notes_is_said_with_the_path(tmp_path):
    (tmp_path / "run.log").symlink_to("/dev/full")
    log = open_log(tmp_path)
    with pytest.raises(InputError, match=r"run\.log: cannot be written: No space left on device"), log:
        log.note("started")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_what_went_wrong_first_is_what_is_said(tmp_path):
    """Neither a note that fails as well nor a file that cannot be closed hides it."""

    def fill_the_disk_and_write():
        with open_log(tmp_path) as log, open("/dev/full", "wb") as full:
            os.dup2(full.fileno(), log._file.fileno())
            os.dup2(full.fileno(), log._notes.fileno())
            log.write("train", 1, {"loss": 1.0})

    with pytest.raises(InputError, match=r"metrics\.jsonl: cannot be written"):
        fill_the_disk_and_write()
