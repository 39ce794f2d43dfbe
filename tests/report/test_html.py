"""Cells on a page: text is escaped, and sorted by its first number."""

from tpkd.report.html import content_markup, sort_key
from tpkd.report.tables import Number

NUMBER = Number("record.mean", "percent", 0.875)


def test_text_is_escaped_and_numbers_are_elements():
    assert content_markup("<b>") == "&lt;b&gt;"
    assert content_markup((NUMBER, " & ")) == '<data value="0.875" data-path="record.mean">87.50</data> &amp; '


def test_a_cell_of_several_pieces_is_sorted_by_its_first_number():
    assert sort_key((NUMBER, " ± ", Number("record.deviation", "percent", 0.01))) == "0.875"
    assert sort_key((Number("record.mean", "percent", None), " %")) == ""
    assert sort_key(NUMBER) is None
    assert sort_key(("a", "b")) is None
