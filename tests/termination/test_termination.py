import signal
import threading

import pytest

from tpkd.termination import EXIT_CODE, TerminatedError, deferred, handled, raise_terminated, request


def test_a_request_is_noted_and_a_second_one_is_not_sent():
    with deferred() as asked:
        assert not asked()
        request()
        request()  # as a signal it would end this process
        assert asked()
    with deferred() as asked:
        assert not asked()


def test_a_handler_of_the_program_stays():
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        with handled(raise_terminated) as placed:
            assert not placed
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_another_thread_places_no_handler():
    placed = []

    def work():
        with handled(raise_terminated) as done:
            placed.append(done)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert placed == [False]


def test_the_exception_has_the_exit_code_of_a_shell():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(TerminatedError) as caught, handled(raise_terminated):
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.code == EXIT_CODE == 143
    assert signal.getsignal(signal.SIGTERM) == before
