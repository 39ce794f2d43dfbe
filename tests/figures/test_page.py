import json
import re

from tpkd.figures.cases import explorer_record
from tpkd.figures.page import explorer_page
from tpkd.figures.record import ExplorerRecord


def test_the_page_holds_the_record_and_nothing_from_elsewhere():
    record = explorer_record()
    page = explorer_page(record)
    held = re.search(r'<script type="application/json" id="explorer-record">(.*?)</script>', page)[1]
    assert ExplorerRecord.from_dict(json.loads(held)).to_dict() == record.to_dict()
    assert not re.search(r'(src|href)="(?!data:|#)', page)
    assert "unsafe-inline'; img-src" not in page
