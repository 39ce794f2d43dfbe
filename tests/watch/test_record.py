from tpkd.watch.record import CurvesRecord, WatchRecord
from tpkd.watch.watch import Watch
from watch.runs import write_grid


def test_records_come_back_as_they_were(tmp_path):
    watch = Watch(write_grid(tmp_path))
    watch.refresh()
    record = watch.record(every=2.0)
    assert WatchRecord.from_json(record.to_json()) == record
    curves = watch.curves(0)
    assert CurvesRecord.from_json(curves.to_json()) == curves
