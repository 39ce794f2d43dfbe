"""Data and scripts of pages: nothing ends an element early, and no script runs that the page does not name."""

import json

import pytest

from tpkd.report.scripts import json_element, json_text, script_sources

HOSTILE = ["</script><img src=x onerror=alert(1)>", "<!--<script>", "a\u2028b\u2029", "\ud800", "\u202etfel", "'\"&"]


@pytest.mark.parametrize("text", HOSTILE)
def test_data_survive_and_hold_no_sign_that_html_knows(text):
    written = json_text({text: [text, 1.5, None]})
    assert written.isascii()
    assert not set("<>&'") & set(written)
    assert json.loads(written) == {text: [text, 1.5, None]}


def test_nan_is_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_text([float("nan")])


def test_an_element_of_data_is_one_element():
    element = json_element('a"b', HOSTILE)
    assert element.count("<") == 2
    assert 'id="a&#34;b"' in element


def test_every_script_of_a_page_is_allowed_and_data_are_none():
    markup = '<script>a()</script><script type="application/json">{}</script><script>b()</script><script src="x.js">'
    assert script_sources(f"{markup}</script>").count("sha256-") == 2
    assert "'self' file:" in script_sources(f"{markup}</script>")
    assert "unsafe" not in script_sources(markup)
