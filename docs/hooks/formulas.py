"""Formulas as MathML, written when the site is built: a browser needs no script, no font and no network for them."""

import html
import re

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(?P<tag>span|div) class="arithmatex">\\(?P<open>[(\[])(?P<latex>.*?)\\[)\]]</(?P=tag)>', re.S)


def render_formulas(page: str) -> str:
    """Replace each formula that the Markdown extension `arithmatex` has marked.

    Example:
        >>> rendered = render_formulas(r'<span class="arithmatex">\\(p_y &gt; 0\\)</span>')
        >>> rendered.startswith('<span class="arithmatex"><math'), "<msub>" in rendered
        (True, True)
    """
    return FORMULA.sub(_render, page)


def _render(formula: re.Match[str]) -> str:
    display = "block" if formula["open"] == "[" else "inline"
    latex = html.unescape(formula["latex"]).strip()
    mathml = convert(latex, display=display).removesuffix("</math>")
    # The source beside the drawing: what is copied, and what a reader without MathML sees.
    source = f'<annotation encoding="application/x-tex">{html.escape(latex)}</annotation>'
    head, content = mathml.split(">", 1)
    tag = formula["tag"]
    return f'<{tag} class="arithmatex">{head}><semantics>{content}{source}</semantics></math></{tag}>'
