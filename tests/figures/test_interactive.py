import pytest

from tpkd.errors import InputError
from tpkd.figures.interactive import EXPLORER_NAME, write_explorer


def test_the_same_page_every_time(tmp_path):
    pages = []
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        pages.append(write_explorer(tmp_path / place))
    assert [page.name for page in pages] == [EXPLORER_NAME] * 2
    assert pages[0].read_bytes() == pages[1].read_bytes()


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file"):
        write_explorer(tmp_path / "file")
