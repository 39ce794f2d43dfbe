"""Objectives as tables show them."""

from tpkd.compare.reporting import catalogue
from tpkd.objectives import describe, names
from tpkd.report.methods import Catalogue, Method


def test_the_catalogue_is_the_registry_in_its_order():
    known = catalogue()
    assert tuple(method.name for method in known.methods) == names()
    for method in describe():
        shown = known[method.name]
        assert (shown.title, shown.control, shown.ablation) == (method.title, method.control, method.ablation)
        assert tuple(shown.paper_accuracy.values()) == tuple(method.paper_accuracy or ())
        assert set(shown.paper_accuracy) in ({"vision", "text"}, set())
    assert sum(not method.control for method in known.methods) == 10 + len(names()) - 14


def test_what_is_not_installed_is_shown_by_its_name_in_the_main_table():
    assert Catalogue(())["gone"] == Method("gone", "gone")
    assert not Catalogue(())["gone"].control
