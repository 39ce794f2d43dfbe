"""The pieces that fill pages from elsewhere, each on a small case whose answer is plain."""

import difflib
import doctest

import griffe
import pytest
from docs.hooks import blocks, formulas, reference, sources


@pytest.mark.parametrize("module", [blocks, formulas, reference, sources], ids=lambda module: module.__name__)
def test_examples_in_docstrings(module):
    assert doctest.testmod(module).failed == 0


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    monkeypatch.setattr(sources, "DOCS", tmp_path / "docs")
    (tmp_path / "docs" / "deep").mkdir(parents=True)
    return tmp_path


def test_a_difference_counts_what_is_new_and_gives_the_second_script(root):
    old, new = [f"line {i}" for i in range(20)], [f"line {i}" for i in range(20)]
    new[4], new[15:15] = "changed", ["added 1", "added 2"]
    (root / "a.py").write_text("\n".join(old) + "\n")
    (root / "b.py").write_text("\n".join(new) + "\n")
    shown = sources.difference("a.py", "b.py")
    assert "3 lines changed or added" in shown
    body = shown.splitlines()[1:-1]
    assert [line[1:] for line in body if line.startswith("+")] == ["changed", "added 1", "added 2"]
    assert [line[1:] for line in body if line.startswith("-")] == ["line 4"]
    assert body[0] == " line 2", "context keeps its column"
    assert body.count("…") == 1
    assert list(difflib.restore([line[0] + " " + line[1:] for line in body if line != "…"], 2)) == [
        *(
            "line 2",
            "line 3",
            "changed",
            "line 5",
            "line 6",
            "line 13",
            "line 14",
            "added 1",
            "added 2",
            "line 15",
            "line 16",
        )
    ]


def test_directives(root, caplog):
    (root / "README.md").write_text(
        "# T\nlead\n\n## One\n\nsee [this](docs/faq.md)\n\n```\n# no heading\n```\n\n## Two\n"
    )
    (root / "docs" / "faq.md").touch()
    (root / "x.py").write_text("pass\n")
    assert sources.expand("<!-- include README.md: T -->", "index.md") == "lead"
    assert sources.expand("<!-- include README.md: One -->", "deep/page.md") == (
        "see [this](../faq.md)\n\n```\n# no heading\n```"
    )
    assert sources.expand("a\n<!-- script x.py -->\nb", "index.md") == 'a\n```python title="x.py"\npass\n```\nb'
    with pytest.raises(ValueError, match="no heading 'Three'"):
        sources.expand("<!-- include README.md: Three -->", "index.md")
    assert sources.expand("<!-- script y.py -->", "index.md") == ""
    assert "index.md shows y.py, which does not exist" in caplog.text


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("../../PAPER.md", "../paper.md"),
        ("../../CONTRIBUTING.md#house-rules", "../contributing.md#house-rules"),
        ("../../Makefile", "https://github.com/tpkd/tpkd/blob/main/Makefile"),
        ("../faq.md#a", "../faq.md#a"),
        ("../no-such.md", "../no-such.md"),
        ("https://example.org/", "https://example.org/"),
        ("#here", "#here"),
    ],
)
def test_links(root, link, expected):
    for file in ("PAPER.md", "CONTRIBUTING.md", "Makefile", "docs/faq.md"):
        (root / file).touch()
    assert sources.redirect_links(f"[x]({link})", "docs/deep/page.md", "deep/page.md") == f"[x]({expected})"
    code = f"`y[0]({link})`"
    assert sources.redirect_links(code, "docs/deep/page.md", "deep/page.md") == code


def test_formulas_keep_their_source_and_what_is_no_formula():
    block = r'<div class="arithmatex">\[\frac{a}{b} &lt; \rho\]</div>'
    drawn = formulas.render_formulas(f"<p>costs $5</p>{block}")
    assert drawn.startswith("<p>costs $5</p>")
    assert 'display="block"' in drawn
    assert "<mfrac>" in drawn
    assert r"\frac{a}{b} &lt; \rho</annotation>" in drawn


def test_public_names_are_those_that_an_import_finds():
    import importlib

    for package in reference.PACKAGES:
        if package.startswith("tpkd.integrations."):
            continue  # one of them needs a host that is not installed here
        if listed := getattr(importlib.import_module(package), "__all__", None):
            assert set(reference.public_names(package)) == set(listed), package
    for home in set(reference.public_names("tpkd").values()):
        assert home in reference.PACKAGES
    assert "DistillationTrainer" in reference.public_names("tpkd.integrations.transformers")


def test_names_lead_to_the_reference_from_sentences_alone():
    names = "`tpkd.margins`, `tpkd.geometry.margins.margins()`, `tpkd.nothing`"
    text = f"# `tpkd.margins`\n{names}\n```python\n`tpkd.margins`\n```"
    head, sentence, *code = reference.link_names(text).split("\n")
    entry = "tpkd.geometry.margins"
    assert sentence == f"[`tpkd.margins`][{entry}], [`tpkd.geometry.margins.margins()`][{entry}], `tpkd.nothing`"
    assert "\n".join([head, names, *code]) == text


def test_settings_of_a_registered_objective_are_parameters_in_the_reference():
    """griffe does not know that `@register` makes a dataclass; the reference would show `KD` without its settings."""
    extensions = griffe.load_extensions(blocks.ROOT / "docs/hooks/docstrings.py")
    module = griffe.load("tpkd.objectives.kd", search_paths=[blocks.ROOT / "src"], extensions=extensions)
    assert [parameter.name for parameter in module["KD"].parameters] == [
        "self",
        "temperature",
        "ce_weight",
        "kd_weight",
    ]
