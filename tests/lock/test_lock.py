"""One holder a directory; what stands in the lock's place and is not a lock stays as it is."""

import os
import threading

import pytest

from tpkd.errors import InputError
from tpkd.lock import LOCK_NAME, locked, wait_until_free


def hold(directory):
    with locked(directory):
        return (directory / LOCK_NAME).read_text()


def test_a_lock_names_its_holder_and_may_be_taken_again(tmp_path):
    assert hold(tmp_path) == f"{os.getpid()}\n"
    (tmp_path / LOCK_NAME).write_text("1234567890\n")  # a holder with a longer number that was killed
    assert hold(tmp_path) == f"{os.getpid()}\n"


def test_a_second_holder_is_told_the_process_of_the_first(tmp_path):
    with locked(tmp_path), pytest.raises(InputError, match=rf"another build \(process {os.getpid()}\) is writing here"):
        hold(tmp_path)


@pytest.mark.parametrize("content", ["what somebody wrote", "12\n", None])
def test_a_link_is_not_followed(tmp_path, content):
    victim, directory = tmp_path / "victim", tmp_path / "cache"
    directory.mkdir()
    (directory / LOCK_NAME).symlink_to(victim)
    if content is not None:
        victim.write_text(content)
    with pytest.raises(InputError, match=r"\.lock: expected a lock file of tpkd, found a link"):
        hold(directory)
    assert (victim.read_text() if victim.exists() else None) == content


def test_a_file_that_no_lock_wrote_is_not_truncated(tmp_path):
    (tmp_path / LOCK_NAME).write_text("what somebody wrote")
    with pytest.raises(InputError, match=r"\.lock: expected a lock file of tpkd, found another file"):
        hold(tmp_path)
    assert (tmp_path / LOCK_NAME).read_text() == "what somebody wrote"


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / LOCK_NAME)
    with pytest.raises(InputError, match=r"\.lock: expected a regular file, found a FIFO"):
        hold(tmp_path)


def test_waiting_for_a_holder_that_ends(tmp_path):
    assert wait_until_free(tmp_path / "nothing", 0.0)
    with locked(tmp_path):
        assert not wait_until_free(tmp_path, 0.0)
    assert wait_until_free(tmp_path, 0.0)
    (entered, left) = (threading.Event(), threading.Event())

    def hold_until_told():
        with locked(tmp_path):
            entered.set()
            left.wait()

    holder = threading.Thread(target=hold_until_told)
    holder.start()
    entered.wait()
    threading.Timer(0.2, left.set).start()
    assert wait_until_free(tmp_path, 60.0)
    holder.join()
