"""Marks that tests of several folders share."""

import codecs
import locale

import pytest

# With LC_ALL=C and without Python's UTF-8 mode torch cannot read its compiler's own templates.
AOT = pytest.mark.skipif(
    codecs.lookup(locale.getpreferredencoding(False)).name != "utf-8",
    reason="torch's compiler reads its own files in the encoding of the locale",
)
