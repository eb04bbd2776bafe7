"""A hook of the documentation: `<g,p>` in a docstring is an inner product, not an HTML tag."""

import re

from markdown import Extension, Markdown
from markdown.preprocessors import Preprocessor

# Code in backticks is left alone; a name with a comma behind it is no tag.
INNER_PRODUCT = re.compile(r"(`[^`]*`)|<(?=[A-Za-z]\w*(?:\([^()]*\))?,)")
AFTER_FENCES, BEFORE_HTML = 25, 20  # the priorities of Python-Markdown's own steps


class InnerProducts(Preprocessor):
    """Escapes the brackets of inner products, before Markdown looks for HTML."""

    def run(self, lines: list[str]) -> list[str]:
        return [line if line.startswith("    ") else _escaped(line) for line in lines]


def _escaped(line: str) -> str:
    return INNER_PRODUCT.sub(lambda found: found.group(1) or "&lt;", line)


class Escape(Extension):
    def extendMarkdown(self, md: Markdown) -> None:  # the name of the interface
        between = (AFTER_FENCES + BEFORE_HTML) / 2
        md.preprocessors.register(InnerProducts(md), "inner-products", between)


def on_config(config):
    config.markdown_extensions.append(Escape())
    return config
