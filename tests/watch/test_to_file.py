import pytest

from tpkd.errors import InputError
from tpkd.watch.to_file import PageFile
from tpkd.watch.watch import Watch
from watch.runs import metrics, write_grid


@pytest.fixture
def watch(tmp_path):
    found = Watch(write_grid(tmp_path / "grid"))
    found.refresh()
    return found


def test_only_what_changed_is_written_again(tmp_path, watch):
    page = PageFile(tmp_path / "live.html", watch)
    page.update(every=2.0)
    data = tmp_path / "live-data"
    assert sorted(path.name for path in data.iterdir()) == ["cells.js", "curves-0.js", "curves-1.js"]
    for path in data.iterdir():
        path.chmod(0o600)
        path.write_text("// seen")
    with (tmp_path / "grid" / "tpkd-42" / "metrics.jsonl").open("a") as file:
        file.write(metrics([6]))
    watch.refresh()
    page.update(every=2.0)
    written = {path.name for path in data.iterdir() if path.read_text() != "// seen"}
    assert written == {"cells.js", "curves-1.js"}


def test_a_page_can_be_written_over_its_own_earlier_one_but_over_nothing_else(tmp_path, watch):
    for _ in range(2):
        PageFile(tmp_path / "live.html", watch).update(every=None)
    (tmp_path / "other-data").mkdir()
    (tmp_path / "other-data" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="other-data: expected the data of an earlier page"):
        PageFile(tmp_path / "other.html", watch)
    assert not (tmp_path / "other.html").exists()


@pytest.mark.parametrize("name", ["page", "page.txt", "metrics.jsonl"])
def test_a_name_that_is_no_page_is_refused(tmp_path, watch, name):
    with pytest.raises(InputError, match=r"expected a name that ends in \.html"):
        PageFile(tmp_path / name, watch)
