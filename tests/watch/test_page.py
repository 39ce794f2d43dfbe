import json

from tpkd.watch.page import curves_name, curves_script, index_script, watch_page
from tpkd.watch.watch import Watch
from watch.runs import write_grid

HOSTILE = "</script><img src=x onerror=alert(1)>"


def test_scripts_hold_the_records_and_no_sign_that_html_knows(tmp_path):
    watch = Watch(write_grid(tmp_path, names=("<b>&'\u2028", "kd-42")))
    watch.refresh()
    script = index_script(watch.record(every=2.0))
    assert script.startswith("tpkdWatch.cells(")
    assert not set("<>&'\u2028") & set(script)
    assert json.loads(script[len("tpkdWatch.cells(") : -3]) == watch.record(every=2.0).to_dict() | {
        "written": json.loads(script[len("tpkdWatch.cells(") : -3])["written"]
    }
    assert curves_script(watch.curves(1)).startswith('tpkdWatch.curves({"schema":1,"number":1,')
    assert curves_name(7) == "curves-7.js"


def test_a_title_is_a_text():
    page = watch_page(HOSTILE, "data")
    assert HOSTILE not in page
    assert "&lt;/script&gt;&lt;img" in page
    assert 'src="data/cells.js"' in page
