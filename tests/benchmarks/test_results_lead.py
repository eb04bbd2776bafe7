"""The first paragraphs of the results: their numbers stand on the pages they speak of."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_number_of_the_lead_stands_on_a_page_of_results():
    lead = (ROOT / "benchmarks" / "results_lead.md").read_text(encoding="utf-8")
    pages = [p for p in (ROOT / "docs" / "results").glob("*.md") if p.name != "index.md"]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    numbers = re.findall(r"\d[\d,]*\d", lead)
    assert "41,783" in numbers
    assert not [n for n in numbers if n not in text and n.replace(",", "") not in text]


def test_the_index_begins_with_it():
    lead = (ROOT / "benchmarks" / "results_lead.md").read_text(encoding="utf-8").strip()
    index = (ROOT / "docs" / "results" / "index.md").read_text(encoding="utf-8")
    assert index.startswith(f"# Results\n\n{lead}\n")
