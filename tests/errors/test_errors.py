"""What a user is told fits on one printable line, however odd the names in it."""

import time

import pytest

from tpkd.errors import InputError, did_you_mean, extra, reason, shortened, some


@pytest.mark.parametrize("odd", ["\n", "\x1b[2J", "\r", "\u2028", "\u202e", "\ud800", "\x00", "\u200b"])
def test_a_message_is_one_printable_line_that_keeps_the_rest(odd):
    message = str(InputError(f"naïve{odd}name: expected a file"))
    assert message.isprintable()
    assert message.startswith("naïve\\")
    assert message.endswith("name: expected a file")
    assert len(message.splitlines()) == 1
    message.encode()  # half a character cannot be written to a terminal


def test_a_printable_message_is_left_as_it_is():
    assert str(InputError("C:\\new: größer")) == "C:\\new: größer"


def test_texts_are_cut_only_where_they_are_too_long():
    assert (shortened("abcd", 4), shortened("abcde", 4)) == ("abcd", "abc…")
    assert (some(["a", "b", "c"]), some([])) == ("a, b, c", "")


def test_a_name_without_end_is_compared_at_once():
    start = time.process_time()
    assert did_you_mean("x" * 10_000_000, ["tpkd"] * 100) == ""
    assert time.process_time() - start < 1


def test_only_a_missing_library_is_blamed_on_an_extra():
    with (
        pytest.raises(InputError, match=r"^no_such_library is not installed: pip install 'tpkd\[train\]'$"),
        extra("train"),
    ):
        import no_such_library  # noqa: F401
    with pytest.raises(ImportError, match="no_such_name") as caught, extra("train"):
        from tpkd.errors import no_such_name  # noqa: F401
    assert not isinstance(caught.value, InputError)
    assert reason(caught.value).startswith("cannot import name 'no_such_name'")
