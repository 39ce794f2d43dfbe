"""`tpkd figures` as a user meets it."""

import sys

from typer.testing import CliRunner

from tpkd.cli.main import app
from tpkd.errors import InputError


def test_figures_says_what_it_wrote(tmp_path):
    result = CliRunner().invoke(app, ["figures", str(tmp_path / "figures")])
    assert result.exit_code == 0
    assert result.stdout.count("written: ") == 7
    for path in (tmp_path / "figures").iterdir():
        assert str(path) in result.stdout


def test_figures_without_matplotlib_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = CliRunner().invoke(app, ["figures", str(tmp_path / "figures")])
    assert isinstance(result.exception, InputError)
    assert "tpkd[report]" in str(result.exception)


def test_figures_into_a_file_is_refused(tmp_path):
    (tmp_path / "file").touch()
    result = CliRunner().invoke(app, ["figures", str(tmp_path / "file")])
    assert isinstance(result.exception, InputError)
    assert str(tmp_path / "file") in str(result.exception)
