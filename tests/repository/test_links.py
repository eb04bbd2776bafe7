"""Links within the repository lead somewhere, anchors included. Others are not fetched."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md")),
]
FENCED = re.compile(r"^[ \t]*(`{3,}|~{3,}).*?^[ \t]*\1[ \t]*$", flags=re.S | re.M)
LINK = re.compile(
    r"\]\(\s*<?([^)\s>]+)>?[^)]*\)"  # [text](target "title"), ![text](target)
    r"|^\s*\[[^\]]+\]:\s*(\S+)"  # [name]: target
    r"|(?:href|src)=[\"']([^\"']+)[\"']",
    flags=re.M,
)
OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:|//", flags=re.I)


def prose(text):
    """The text without its code, which may hold brackets of its own."""
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", FENCED.sub("", text))


def links(text):
    found = ("".join(groups) for groups in LINK.findall(prose(text)))
    return [target for target in found if not OUTSIDE.match(target)]


def anchors(path):
    """The anchors of a page as the site has them; names of the API are anchors too."""
    text = FENCED.sub("", path.read_text(encoding="utf-8"))
    for included in re.findall(r'^--8<-- "([^"]+)"', text, flags=re.M):
        text += "\n" + FENCED.sub("", (ROOT / included).read_text(encoding="utf-8"))
    found = set(re.findall(r"^::: ([\w.]+)", text, flags=re.M))
    for heading in re.findall(r"^#{1,6}\s+(.*)$", text, flags=re.M):
        explicit = re.search(r"\{[^}]*#([\w-]+)[^}]*\}\s*$", heading)
        slug = explicit[1] if explicit else slug_of(heading)
        number = 0
        while slug in found:  # the second of a name is `name_1` on the site
            number += 1
            slug = f"{slug_of(heading)}_{number}"
        found.add(slug)
    return found


def slug_of(heading):
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def dead(text, home):
    """The links of a text, lying in the file `home`, that lead nowhere."""
    found = []
    for target in links(text):
        file, _, anchor = target.partition("#")
        path = (home.parent / file).resolve() if file else home
        if not path.exists() or (anchor and anchor not in anchors(path)):
            found.append(target)
    return found


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name):
    assert dead((ROOT / name).read_text(encoding="utf-8"), ROOT / name) == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_link_to_a_file_of_the_repository_names_one(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    named = re.findall(r"github\.com/firstish/firstish/blob/main/([\w./-]+)", text)
    assert [path for path in named if not (ROOT / path).is_file()] == []


def test_an_example_that_a_page_names_is_linked():
    for path in (ROOT / "docs").glob("*.md"):
        text = FENCED.sub("", path.read_text(encoding="utf-8"))
        named = re.findall(r"(\[?)`(?:python )?examples/(\w+\.\w+)", text)
        assert [file for bracket, file in named if not bracket] == [], path


def test_the_pages_of_the_site_link_within_the_site():
    """What lies outside of docs/ is not on the site."""
    docs = ROOT / "docs"
    for path in docs.glob("**/*.md"):
        targets = (t.partition("#")[0] for t in links(path.read_text(encoding="utf-8")))
        found = [(path.parent / target).resolve() for target in targets]
        assert [target for target in found if not target.is_relative_to(docs)] == [], path


def test_every_page_is_in_the_navigation():
    listed = re.findall(
        r"^  +- .*: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), flags=re.M
    )
    assert len(listed) == len(set(listed))
    pages = (ROOT / "docs").glob("**/*.md")
    assert set(listed) == {path.relative_to(ROOT / "docs").as_posix() for path in pages}


@pytest.mark.parametrize(
    ("question", "heading"),
    [
        ("Which method", "Which method"),
        ("oracle call", "Oracle call"),
        ("weight decay", "weight decay"),
        ("GPU", "GPU"),
        ("mini-batches", "Mini-batches"),
        ("log a run", "Logging"),
        ("stop early", "Early stopping"),
        ("curvature", "Curvature of a model"),
        ("resume", "resume"),
        ("machines", "machines"),
        ("L-BFGS", "Coming from"),
        ("float64", "float64"),
        ("BatchNorm", "Batch normalisation"),
        ("command line", "Command line"),
    ],
)
def test_common_questions_are_one_link_away_from_the_start(question, heading):
    """A row of the start page links to the heading that answers it."""
    start = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    (row,) = [r for r in re.findall(r"^\| (.*) \|$", start, re.M) if question in r.split(" | ")[0]]
    file, _, anchor = links(row)[0].partition("#")
    page = FENCED.sub("", (ROOT / "docs" / file).read_text(encoding="utf-8"))
    headings = re.findall(r"^#+\s+(.*)$", page, flags=re.M)
    if anchor:
        headings = [h for h in headings if f"#{anchor}" in h or slug_of(h) == anchor]
    assert heading in headings[0]


@pytest.mark.parametrize(
    "text",
    [
        "[a](missing.md)",
        "[a](method.md#no-such-heading)",
        "[a](#no-such-heading)",
        "![a](assets/missing.png)",
        "[a]: missing.md",
        '<img src="assets/missing.png">',
        "[a](api/index.md#firstish.NoSuchName)",
        "`code` and [a](missing.md 'title')",
    ],
)
def test_a_dead_link_is_seen(text):
    assert len(dead(text, ROOT / "docs" / "index.md")) == 1


@pytest.mark.parametrize(
    "text",
    [
        "[a](method.md#three-cases)",
        "[a](api/optimizer.md#firstish.ScaledGD)",
        "[a](https://example.org/missing#here) and `x[0](y)`",
        "```python\nx[0](missing.md)\n```",
        "![a](assets/digits-gap.png)",
    ],
)
def test_a_good_link_is_not_called_dead(text):
    assert dead(text, ROOT / "docs" / "index.md") == []


@pytest.mark.parametrize(
    "target",
    [
        "which-method.md",
        "glossary.md#oracle-call",
        "faq.md#where-is-weight-decay",
        "gpu.md",
        "mini-batches.md",
        "logging.md",
        "early-stopping.md",
        "curvature.md",
        "resume.md",
        "large-data.md",  # several machines
    ],
)
def test_a_common_question_is_one_click_from_the_start_page(target):
    assert target in links((ROOT / "docs" / "index.md").read_text(encoding="utf-8"))
