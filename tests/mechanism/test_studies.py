"""A study is found by its name, and its record goes where it is asked to."""

import pytest

from tpkd.mechanism.record import BlockingRecord
from tpkd.mechanism.studies import run_study, study_path


def test_a_record_is_published_where_asked(ce_run, tmp_path):
    config = ce_run.studied("blocking.samples=3", "blocking.states=[2]", "blocking.splits=[train]")
    seen = []
    record = run_study("blocking", config, out=tmp_path / "b.json", on_progress=lambda *progress: seen.append(progress))
    assert BlockingRecord.from_json((tmp_path / "b.json").read_text()) == record
    assert seen == [(1, 1)]
    assert study_path("blocking", tmp_path) == tmp_path / "studies" / "blocking.json"


def test_an_unknown_study_is_refused(ce_run):
    with pytest.raises(ValueError, match="name: expected one of blocking, exact-head"):
        run_study("blocks", ce_run.config)
