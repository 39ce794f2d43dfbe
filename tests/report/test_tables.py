"""Tables as text: nothing in a cell breaks Markdown, CSV or LaTeX, and a number knows where it comes from."""

import csv
import io
import re
from dataclasses import dataclass

import pytest

from tpkd.report.tables import Column, Table, Traced, latex_text, to_csv, to_latex, to_markdown

EVIL = Table(
    "evil",
    "50 % of a_b & <c>",
    (Column("na|me", text=True), Column("$x$")),
    (("\\input{x} | ~^", "#1"), ("plain", "2")),
    ("a {note}",),
    frozenset({1}),
)


def test_markdown_keeps_its_columns():
    lines = to_markdown(EVIL).splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 3 for row in rows)
    assert rows[-1] == "| **plain** | **2** |"


def test_csv_reads_back():
    read = list(csv.reader(io.StringIO(to_csv(EVIL))))
    assert read == [["na|me", "$x$"], ["\\input{x} | ~^", "#1"], ["plain", "2"]]


def test_latex_sees_nothing_to_run():
    written = to_latex(EVIL)
    assert r"\textbackslash{}input\{x\}" in written
    assert r"50 \% of a\_b \& $<$c$>$" in written
    assert written.count(r"\\") == 3
    body = re.sub(r"\\[&%$#_{}]", "", written)
    assert body.count("{") == body.count("}")
    assert latex_text("10⁻³") == "10$^-$$^3$"


@dataclass(frozen=True)
class Part:
    shares: tuple[float | None, ...]
    by_name: dict[str, float]


def test_a_traced_number_has_its_value_and_its_path():
    seen = Traced(Part((None, 0.25), {"tpkd-no-ce": 0.5}), "record")
    number = seen.shares[1]("percent")
    assert (str(number), number.path, number.value) == ("25.00", "record.shares.1", 0.25)
    assert [share("percent").path for share in seen.shares] == ["record.shares.0", "record.shares.1"]
    assert seen.by_name["tpkd-no-ce"]("share").path == "record.by_name.tpkd-no-ce"
    assert Traced(Part((1.0,), {})).shares[0]("share").path == "shares.0"


def test_a_field_that_a_record_does_not_have_is_an_error():
    with pytest.raises(AttributeError, match="share_s"):
        Traced(Part((), {})).share_s("share")
    with pytest.raises(KeyError):
        Traced(Part((), {})).by_name["ce"]


def test_a_number_on_a_page_carries_its_path_and_its_unrounded_value():
    seen = Traced(Part((None, 0.0001234), {}), "record")
    shown = [share("nats").__html__() for share in seen.shares]
    assert shown == [
        '<data value="" data-path="record.shares.0">none</data>',
        '<data value="0.0001234" data-path="record.shares.1">&lt;0.001</data>',
    ]
