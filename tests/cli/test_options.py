"""What several verbs share: lists with commas, names of options, and the file of a wrong value."""

import sys

import pytest

from tpkd.cli.options import check_name, config_errors, need_report, read_config, split, whole_numbers
from tpkd.errors import InputError


def test_lists_have_commas():
    assert split(" ce,kd ,, tpkd") == ["ce", "kd", "tpkd"]
    assert whole_numbers("--seeds", "42, 43") == [42, 43]
    with pytest.raises(InputError, match=r"--seeds: expected comma-separated integers .* found '42;43'"):
        whole_numbers("--seeds", "42;43")


def test_an_unknown_name_is_refused_with_the_closest():
    check_name("--reduction", None, ("mean", "sum"))
    check_name("--reduction", "sum", ("mean", "sum"))
    with pytest.raises(InputError, match=r"--reduction meen: expected one of mean, sum.*did you mean mean"):
        check_name("--reduction", "meen", ("mean", "sum"))


def test_a_wrong_value_names_the_file(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("epochs: many\n")
    with pytest.raises(InputError, match=r"run\.yaml: output"), config_errors(path):
        read_config(path, None)


def test_a_page_needs_its_libraries_first(monkeypatch):
    need_report()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(InputError, match="report"):
        need_report()
