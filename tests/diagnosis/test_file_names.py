import pytest

from tpkd.diagnosis.file_names import short_names, without_suffixes


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["a.npy"], ["a.npy"]),
        (["x/a.npy", "x/b.npy"], ["a.npy", "b.npy"]),
        (["x/a.npy", "y/a.npy", "y/b.npy"], ["x/a.npy", "y/a.npy", "b.npy"]),
        (["1/x/a.npy", "2/x/a.npy", "2/y/a.npy"], ["1/x/a.npy", "2/x/a.npy", "y/a.npy"]),
        (["a.npy", "x/a.npy"], ["a.npy", "x/a.npy"]),
        (["/x/a.npy", "./x/a.npy"], ["/x/a.npy", "x/a.npy"]),
        (["x/a.npy", "./x/a.npy", "x/a.npy"], ["a.npy", "a.npy", "a.npy"]),
    ],
)
def test_names_are_as_short_as_tells_different_files_apart(files, expected):
    assert short_names(files) == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["epoch.10.npy", "epoch.20.npy"], ["epoch.10", "epoch.20"]),
        (["a.npy", "a.npy"], ["a", "a"]),
        (["a.npy", "a.npz", "b.npy"], ["a.npy", "a.npz", "b.npy"]),
    ],
)
def test_suffixes_go_where_nothing_depends_on_them(names, expected):
    assert without_suffixes(names) == expected
