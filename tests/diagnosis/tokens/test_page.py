"""The page of a language model's diagnosis."""

import re

from diagnosis.tokens.records import EVIL, record
from tpkd.diagnosis.tokens.page import tokens_page


def test_text_of_the_user_is_escaped():
    page = tokens_page(record())
    assert EVIL not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 5
    assert "<mark>&lt;script&gt;" in page


def test_every_number_is_one_of_the_record():
    found, page = record(), tokens_page(record())
    places = re.findall(r'<data value="([^"]*)" data-path="([^"]+)">', page)
    assert len(places) > 30
    for value, path in places:
        seen = found
        for part in path.split("."):
            seen = seen[int(part)] if part.isdigit() else getattr(seen, part)
        assert value == repr(seen), path


def test_bounds_are_marked_and_empty_groups_left_out():
    page = tokens_page(record())
    assert "≤&nbsp;<data" in page
    assert "≥ <data" in page
    assert "90 % and above" not in page
