"""The page of a run, in a real browser, from the disk: what a reader sees and can do."""

import json
from itertools import pairwise

import pytest

LABELS = ["CGMR", "Adam", "L-BFGS, torch"]
TRACES = "#chart .scatterlayer .trace"


class Opened:
    """The page, and all it complained of or asked for."""

    def __init__(self, browser, path, width=1400, scheme="light", chart=True):
        viewport = {"width": width, "height": 900}
        self.context = browser.new_context(viewport=viewport, color_scheme=scheme)
        self.page = self.context.new_page()
        self.complaints, self.requests = [], []
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        if chart:
            self.page.wait_for_selector("#chart .main-svg", state="attached")  # it is unpacked

    def _console(self, message):
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def traces(self):
        return self.page.locator(TRACES).count()

    def title(self, axis):
        return self.page.locator(f"#chart .{axis}title").text_content()

    def data(self):
        """What the chart draws, from plotly itself."""
        return self.page.evaluate(
            "document.getElementById('chart').data"
            ".map(t => ({name: t.name, x: [...t.x], y: [...t.y], visible: t.visible}))"
        )


@pytest.fixture
def opened(browser, folder):
    opened = Opened(browser, folder / "report.html")
    yield opened
    # Whatever a test did, nothing may have gone wrong or left the machine.
    assert opened.complaints == []
    assert opened.requests == [(folder / "report.html").as_uri()]
    opened.context.close()


def records(folder, key):
    return [
        json.loads(line)
        for line in (folder / f"{key}.jsonl").read_text(encoding="utf-8").splitlines()
    ]


def test_the_tables_have_a_line_for_each_method(opened):
    lines = opened.page.locator("[aria-labelledby=table] tbody th").all_text_contents()
    assert sorted(lines) == sorted(LABELS)
    assert opened.page.locator("[aria-labelledby=tuning] tbody th").all_text_contents() == ["Adam"]
    assert opened.page.locator("[aria-labelledby=tuning] tbody td").count() == 5


def test_the_curves_are_drawn_and_are_those_of_the_records(opened, folder):
    assert opened.traces() == 3
    for k in range(3):
        line = opened.page.locator(f"{TRACES}:nth-child({k + 1}) path.js-line")
        assert line.get_attribute("d").count("L") >= 10
        box = line.bounding_box()
        assert box["width"] > 300
        assert box["height"] > 30
    opened.page.locator("#y").select_option("grad_norm")
    for trace, key in zip(opened.data(), ("cgmr", "adam", "lbfgs"), strict=True):
        rows = records(folder, key)
        assert trace["x"] == [row["oracle_calls"] for row in rows]
        assert trace["y"] == pytest.approx([row["grad_norm"] for row in rows], rel=1e-6)


def test_the_figures_are_there_and_have_words_for_them(opened):
    pictures = opened.page.locator("figure img")
    assert pictures.count() >= 3
    for picture in pictures.all():
        assert picture.evaluate("e => e.naturalWidth") > 600
        assert len(picture.get_attribute("alt")) > 20


def test_the_mouse_hides_a_curve_and_changes_the_axes(opened):
    opened.page.get_by_text("Adam", exact=True).last.click()  # the words of the box, not the box
    assert [t["visible"] for t in opened.data()] == [True, False, True]
    assert opened.traces() == 2
    opened.page.get_by_text("Adam", exact=True).last.click()
    assert opened.traces() == 3
    opened.page.locator("#x").select_option("seconds")
    opened.page.locator("#y").select_option("value")
    assert (opened.title("x"), opened.title("y")) == ("seconds", "objective")
    linear = "document.getElementById('chart').layout.xaxis.type"
    assert opened.page.evaluate(linear) == "log"
    opened.page.locator("#logx").click()
    assert opened.page.evaluate(linear) == "linear"


def test_the_keyboard_does_the_same(opened):
    page = opened.page
    page.locator("#y").focus()
    page.keyboard.press("Home")
    assert opened.title("y") == "objective"
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    assert opened.title("x") == "seconds"
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert page.evaluate("document.getElementById('chart').layout.xaxis.type") == "linear"
    for shown in (3, 0, 3):  # all, none, all
        page.keyboard.press("Shift+Tab" if shown and not opened.traces() else "Tab")
        page.keyboard.press("Enter")
        assert opened.traces() == shown
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert [t["visible"] for t in opened.data()] == [False, True, True]
    page.keyboard.press("Space")
    assert opened.traces() == 3


def test_a_click_on_a_heading_sorts_the_table(opened):
    table = opened.page.locator("[aria-labelledby=table]")
    heads = table.locator("thead th").all_text_contents()
    column = heads.index("calls")
    seen = []
    for order in ("ascending", "descending"):
        table.get_by_role("button", name="calls", exact=True).click()
        assert table.locator("thead th").nth(column).get_attribute("aria-sort") == order
        seen.append(
            [
                float(n)
                for n in table.locator(f"tbody td:nth-child({column + 1})").all_text_contents()
            ]
        )
    assert seen == [sorted(seen[0]), sorted(seen[0], reverse=True)]
    table.get_by_role("button", name="tuning", exact=True).click()  # one method has a number there
    assert table.locator("tbody th").first.text_content() == "Adam"
    table.get_by_role("button", name="method", exact=True).click()
    assert table.locator("tbody th").all_text_contents() == sorted(LABELS)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_figures_follow_the_dark_page(browser, folder, scheme):
    opened = Opened(browser, folder / "report.html", scheme=scheme)
    corner = opened.page.locator("figure img").first.evaluate(
        """e => { const c = document.createElement('canvas'); c.width = c.height = 4;
        const d = c.getContext('2d'); d.drawImage(e, 0, 0);
        return 'rgb(' + d.getImageData(1, 1, 1, 1).data.slice(0, 3).join(', ') + ')'; }"""
    )
    assert (luminance(corner) < 0.1) == (scheme == "dark")
    opened.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_tab_reaches_every_control_in_order_and_shows_where_it_is(browser, folder, scheme):
    opened = Opened(browser, folder / "report.html", width=400, scheme=scheme)
    page = opened.page
    page.evaluate(
        "document.querySelectorAll('select, input, button, a[href], [tabindex]')"
        ".forEach((e, k) => e.dataset.order = k)"
    )
    controls = page.locator("[data-order]").count()
    seen = []
    for _ in range(controls + 5):
        page.keyboard.press("Tab")
        at = page.evaluate(
            """() => { const e = document.activeElement, s = getComputedStyle(e);
            return { order: e.dataset.order, outline: s.outlineStyle,
                     width: parseFloat(s.outlineWidth), seen: e.matches(':focus-visible'),
                     colour: s.outlineColor,
                     back: getComputedStyle(document.body).backgroundColor }; }"""
        )
        if at["order"] is None:
            break
        assert at["seen"]
        assert at["outline"] == "solid"
        assert at["width"] >= 2
        assert contrast(at["colour"], at["back"]) >= 3
        seen.append(int(at["order"]))
    assert seen == list(range(controls))
    assert controls >= 2 + 1 + 2 + 3 + 2  # axes, logarithm, all and none, methods, tables
    opened.context.close()


def test_nothing_is_told_by_colour_alone(opened):
    """Dash and marker tell the curves apart, and the boxes show the same pair."""
    curves = opened.page.evaluate(
        f"""[...document.querySelectorAll('{TRACES}')].map(t => [
            getComputedStyle(t.querySelector('path.js-line')).strokeDasharray,
            [...t.querySelectorAll('.points path')].map(p => p.getAttribute('d'))
              .reduce((a, b) => b.length > a.length ? b : a, '')])"""
    )
    assert len({marker for _, marker in curves}) == 3
    assert all(len(marker) > 8 for _, marker in curves)
    boxes = opened.page.evaluate(
        """[...document.querySelectorAll('#methods label')].map(l => [
            l.querySelector('line').getAttribute('stroke-dasharray'),
            l.querySelector('polygon').getAttribute('points')])"""
    )
    assert len({points for _, points in boxes}) == 3
    solid = [dash in ("none", "") for dash, _ in boxes]
    assert [dash in ("none", "", "0px") for dash, _ in curves] == solid == [True, True, False]
    labels = opened.page.locator("#methods label").all_text_contents()
    assert [label.strip() for label in labels] == LABELS


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_narrow_and_wide_in_light_and_dark(browser, folder, tmp_path, width, scheme):
    opened = Opened(browser, folder / "report.html", width, scheme)
    page = opened.page
    page.screenshot(path=tmp_path / f"{scheme}-{width}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    for part in page.locator("main > *, #chart .main-svg, fieldset, figure .scroll").all():
        box = part.bounding_box()
        assert box is None or (box["x"] >= 0 and box["x"] + box["width"] <= width + 0.5)
    colours = page.evaluate(
        "['body', 'p', 'td', 'figcaption', 'dd', 'label'].map(q => "
        "getComputedStyle(document.querySelector(q)).color)"
    )
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (luminance(back) < 0.1) == (scheme == "dark")
    assert all(contrast(colour, back) >= 4.5 for colour in colours)
    ticks = page.locator("#chart .xtick text").first.evaluate("e => getComputedStyle(e).fill")
    assert contrast(ticks, back) >= 4.5
    assert opened.complaints == []
    opened.context.close()


def test_the_chart_follows_a_change_to_dark_and_of_width(opened):
    def stroke():
        path = opened.page.locator(f"{TRACES} path.js-line").nth(1)
        return path.evaluate("e => getComputedStyle(e).stroke")

    day = stroke()

    def soon(true):  # the page allows no eval, so no wait_for_function
        for _ in range(100):
            if true():
                return
            opened.page.wait_for_timeout(50)

    opened.page.emulate_media(color_scheme="dark")
    soon(lambda: stroke() != day)
    assert luminance(stroke()) > 0.8 > 0.1 > luminance(day)  # Adam is black on white
    opened.page.set_viewport_size({"width": 400, "height": 900})
    soon(lambda: opened.page.locator("#chart .main-svg").first.bounding_box()["width"] < 400)
    assert opened.page.evaluate("document.documentElement.scrollWidth") == 400


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("Plotly.react(", "Plotly.reactt("),
        ("const curves = JSON.parse(", "const curves = JSON.parse('[' + "),
        ("unpack();\n</script>", "unpacked();\n</script>"),
        ("<h2>Figures</h2>", '<h2>Figures</h2><img src="https://example.org/x.png" alt="">'),
    ],
)
def test_a_fault_in_the_page_is_noticed(browser, folder, tmp_path, right, wrong):
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert text.count(right) == 1
    (tmp_path / "broken.html").write_text(text.replace(right, wrong))
    broken = Opened(browser, tmp_path / "broken.html", chart=False)
    for _ in range(100):
        if broken.complaints:
            break
        broken.page.wait_for_timeout(50)
    assert broken.complaints
    broken.context.close()


def numbers(colour):
    """`rgb(1, 2, 3)` or `rgba(...)` as parts of 1."""
    inside = colour[colour.index("(") + 1 : colour.index(")")]
    return [float(part) / 255 for part in inside.split(",")[:3]]


def luminance(colour):
    """As WCAG 2 defines it."""
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in numbers(colour))
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one, other):
    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


def test_the_contrast_is_that_of_wcag():
    assert contrast("rgb(0, 0, 0)", "rgb(255, 255, 255)") == pytest.approx(21)
    greys = [luminance(f"rgb({v}, {v}, {v})") for v in range(0, 256, 15)]
    assert all(a < b for a, b in pairwise(greys))
