from compare.domains.cases import two_domains
from tpkd.report.methods import Catalogue


def test_objectives_of_any_domain_in_table_order():
    records = two_domains({"tpkd": 2.0, "ce": 1.0}, {"kd": 1.0, "safe-full-kl": 1.0})
    assert records.objectives(controls=False) == ["ce", "kd", "tpkd"]
    assert records.objectives(controls=True) == ["safe-full-kl"]


def test_objectives_that_are_not_installed_come_last():
    records = two_domains({"zz-own": 2.0, "ce": 1.0}, {"kd": 1.0})
    assert records.objectives(controls=False) == ["ce", "kd", "zz-own"]
    assert isinstance(records.methods, Catalogue)
