"""What was run and how, as tables."""

from compare.cases import cell, comparison
from tpkd.compare.protocol_tables import plain, protocol_table, settings_table, source_table
from tpkd.compare.record import DataFacts, EnvironmentGroup, NetworkState, ReportRecords
from tpkd.compare.reporting import catalogue
from tpkd.report.tables import text


def plain_rows(table):
    return [[text(content) for content in row] for row in table.rows]


def test_protocol_and_settings():
    records = ReportRecords(catalogue(), comparison([cell("ce", 42, 0.5)]))
    assert plain_rows(protocol_table(records)) == [["epochs", "3"], ["optimizer.name", "sgd"]]
    assert plain_rows(settings_table(records))[0] == ["CE", "none", "0.001", "nothing", ""]


def test_sources_name_data_networks_and_versions():
    found = comparison(
        [cell("ce", 42, 0.5), cell("ce", 43, 0.5)],
        data=DataFacts("toys", 3, 1200, 300, "ab12"),
        start=NetworkState("mlp", "cd34", 0.25, 1.0),
        teacher=NetworkState("from its cache", "ef56", None, None),
        environments=(EnvironmentGroup(("ce-42",), "3.11", "linux", "cpu", {"torch": "2.10"}),),
    )
    assert plain_rows(source_table(ReportRecords(catalogue(), found))) == [
        ["data", "toys: 1,200 training and 300 test samples, 3 classes", "ab12"],
        ["student at its start", "mlp, accuracy 25.00 %", "cd34"],
        ["teacher", "from its cache", "ef56"],
        ["environment of ce-42", "Python 3.11, torch 2.10, on cpu", ""],
    ]


def test_values_are_written_as_in_a_configuration():
    assert [plain(value) for value in (None, False, 1e-4, "sgd", [1, 2])] == [
        "null",
        "false",
        "0.0001",
        "sgd",
        "[1, 2]",
    ]
