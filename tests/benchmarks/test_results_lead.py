"""The first paragraphs of the results: their numbers stand on the pages they speak of."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_number_of_the_lead_stands_on_a_page_of_results():
    lead = (ROOT / "benchmarks" / "results_lead.md").read_text(encoding="utf-8")
    pages = (ROOT / "docs" / "results").glob("*.md")
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages).replace(lead.strip(), "")
    told, found = (re.findall(r"\d[\d,.]*\d", part) for part in (lead, text))
    assert "53,161" in told
    rounded = {f"{float(n):.{k}f}" for n in found if re.fullmatch(r"0\.\d+", n) for k in (7, 8)}
    known = {n.replace(",", "").strip(".") for n in found} | rounded
    assert not [n for n in told if n.replace(",", "") not in known]


def test_the_index_begins_with_it():
    lead = (ROOT / "benchmarks" / "results_lead.md").read_text(encoding="utf-8").strip()
    index = (ROOT / "docs" / "results" / "index.md").read_text(encoding="utf-8")
    assert index.startswith(f"# Results\n\n{lead}\n")
