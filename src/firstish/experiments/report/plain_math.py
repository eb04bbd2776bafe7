"""A formula in LaTeX as plain text, for a page without a renderer."""

from __future__ import annotations

import re

_OPEN = {"langle": "⟨", "lVert": "‖", "lbrace": "❴", "Big(": "(", "big(": "("}
_CLOSE = {"rangle": "⟩", "rVert": "‖", "rbrace": "❵", "Big)": ")", "big)": ")"}
_WORDS = {"sum": "Σ", "dots": "…", "in": "∈", "cdot": "·", "alpha": "α", "lambda": "λ", "mu": "μ"}
_WORDS |= dict.fromkeys(("operatorname", "quad", "qquad"), "")
_LOW = dict(zip("0123456789+-=aijkn", "₀₁₂₃₄₅₆₇₈₉₊₋₌ₐᵢⱼₖₙ", strict=True))
_HIGH = dict(zip("0123456789+-=ijkn", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼ⁱʲᵏⁿ", strict=True))
_GROUP = r"(?:\{([^{}]*)\}|([^\s{}]))"  # {several} or one character


def plain(latex: str) -> str:
    r"""The formula in Unicode; a command that is not known is its name.

    >>> plain(r"\frac1n \sum_{i=1}^n \log x_{b_i} + \frac{\lambda}{2} \lVert x \rVert^2")
    '1/n Σᵢ₌₁ⁿ log x_(bᵢ) + λ/2 ‖x‖²'
    """
    text = latex.replace(r"\{", r"\lbrace ").replace(r"\}", r"\rbrace")
    text = re.sub(r"\\([Bb]ig\(|langle|lVert|lbrace)\s*", lambda m: _OPEN[m[1]], text)
    text = re.sub(r"\s*\\([Bb]ig\)|rangle|rVert|rbrace)", lambda m: _CLOSE[m[1]], text)
    text = re.sub(r"\\(?!frac)([A-Za-z]+)", lambda m: _WORDS.get(m[1], m[1]), text)
    text = re.sub(rf"\\frac\s*{_GROUP}\s*{_GROUP}", _fraction, text)
    before = ""
    while text != before:  # one within another
        before, text = text, re.sub(rf"([_^]){_GROUP}", _script, text)
    text = text.translate(str.maketrans("❴❵", "{}", "{}"))
    return " ".join(text.split())


def _fraction(found: re.Match[str]) -> str:
    above, below = found[1] or found[2], found[3] or found[4]
    return f"{above}/{below}"


def _script(found: re.Match[str]) -> str:
    """A subscript or superscript, where Unicode has its characters."""
    text, marks = found[2] or found[3], _LOW if found[1] == "_" else _HIGH
    if all(c in marks for c in text):
        return "".join(marks[c] for c in text)
    return f"{found[1]}{text}" if len(text) == 1 else f"{found[1]}({text})"
