"""The page of an audit: nothing but its own scripts may run, and names are texts."""

import re
from dataclasses import replace
from html import unescape

from audit.cases import HOSTILE, make_case
from tpkd.audit.page import audit_page


def test_names_and_notes_are_escaped(tmp_path):
    record = make_case(tmp_path).audit()
    student = replace(record.students[0], name=HOSTILE, file=HOSTILE)
    page = audit_page(replace(record, students=(student,), teacher=HOSTILE, data=HOSTILE, notes=(HOSTILE,)))
    assert "<img" not in page
    assert page.count("&lt;img") == 5


def test_the_policy_names_every_script_and_allows_no_other(tmp_path):
    page = audit_page(make_case(tmp_path).audit())
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)[1]
    policy = unescape(policy)
    sources = re.search(r"script-src ([^;]+)", policy)[1]
    assert sources.count("sha256-") == len(re.findall(r"<script>", page)) == 2
    assert "unsafe" not in sources
    assert "default-src" in policy


def test_nothing_is_asked_of_the_network(tmp_path):
    page = audit_page(make_case(tmp_path).audit())
    addresses = set(re.findall(r"https?://[^\s\"'`]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}


def test_one_student_has_no_flips(tmp_path):
    case = make_case(tmp_path)
    assert 'data-view="flips"' in audit_page(case.audit())
    assert 'data-view="flips"' not in audit_page(case.audit(students=1))
