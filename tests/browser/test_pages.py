"""The pages in a real Chromium: from the file system and from a server, with and without JavaScript."""

import re
import shutil
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from leaderboard import site
from tests.site_stores import ODD, odd
from tests.synthetic import synthetic_store

pytestmark = [pytest.mark.browser, pytest.mark.slow]
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
RESULTS = Path(__file__).parents[2] / "results" / "tiny" / "tiny-qwen3"
PAPER = {"aime25": (6, 4), "math500": (10, 4)}
TABLE = "heldout-qwen3-1.7b-base-v1"
RUN = "runs/qwen3-1.7b/qwen3-1.7b-base/n8/respo/seed0.html"
KINDS = [
    "index.html",
    "boards/qwen3-1.7b-base-v1.html",
    "boards/tiny-qwen3-v1.html",
    "methods.html",
    "methods/respo.html",
    "benchmarks.html",
    "benchmarks/aime25.html",
    "compare.html",
    "compare/vespo--respo.html",
    "claims.html",
    "runs.html",
    RUN,
    "how.html",
    "glossary.html",
    "downloads.html",
]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    synthetic_store(
        folder / "store", protocol="qwen3-1.7b", models=("Qwen3-1.7B-Base",), reuses=(8, 32), seeds=(0, 1), tasks=PAPER,
        statuses={("gspo", 32, 0): "failed", ("gspo", 32, 1): "failed"}, base=True,
    )  # fmt: skip
    synthetic_store(folder / "store", reuses=(8, 32), seeds=(0,), tasks={"tiny_sum3": (12, 4)}, updates=32)
    site.build(folder / "store", folder / "pages" / "sub" / "path", workers=1)
    return folder / "pages"


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    with playwright.sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def server(root):
    seen = []

    class Handler(SimpleHTTPRequestHandler):
        def log_request(self, code="-", size="-"):
            seen.append((self.path, int(code)))

    running = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(root)))
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{running.server_address[1]}/sub/path", seen
    running.shutdown()


class Visit:
    """A page with everything that went wrong on it."""

    def __init__(self, browser, **options):
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda m: self.problems.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("requestfailed", lambda request: self.problems.append(f"failed: {request.url}"))


@pytest.fixture
def visit(browser):
    opened = []

    def make(**options):
        opened.append(Visit(browser, **options))
        return opened[-1]

    yield make
    for one in opened:
        one.context.close()


def file(root: Path, name: str) -> str:
    return (root / "sub" / "path" / name.split("?")[0]).as_uri() + ("?" + name.split("?")[1] if "?" in name else "")


def column(page, table, key, view=".published-1"):
    """Texts of a column as they are seen, in the order of the rows."""
    return page.evaluate(
        """([table, key]) => {
            const box = document.querySelector(`[data-table="${table}"]`);
            const index = [...box.querySelectorAll("thead th")].findIndex((th) => th.dataset.key === key);
            return [...box.querySelectorAll("tbody tr:not(.group)")].filter((row) => row.offsetParent)
                .map((row) => row.cells[index].innerText.split("\\n")[0].replace(/[★≈]/, "").trim());
        }""",
        [table, key],
    )


def test_pages_obey_their_own_policy_and_ask_for_nothing_else(root, visit):
    one = visit()
    for name in KINDS:
        one.page.goto(file(root, name))
        # Styles and script did load under the policy: the font is ours, and the script has left its mark.
        assert one.page.evaluate("document.documentElement.classList.contains('js')"), name
        assert one.page.evaluate("getComputedStyle(document.body).margin") == "0px", name
    assert one.problems == []
    assert all(url.startswith(("file:", "data:")) for url in one.requests)


def test_pages_work_under_any_path_of_a_server(server, visit):
    base, seen = server
    one = visit()
    for name in KINDS:
        one.page.goto(f"{base}/{name}", wait_until="networkidle")
    assert one.problems == []
    assert {code for _, code in seen} <= {200, 304}
    assert all(path.startswith("/sub/path/") for path, _ in seen)


def test_the_policy_would_stop_foreign_code(root, visit):
    one = visit()
    one.page.goto(file(root, "index.html"))
    stopped = one.page.evaluate(
        """() => new Promise((done) => {
            document.addEventListener("securitypolicyviolation", (event) => done(event.violatedDirective));
            const script = document.createElement("script");
            script.textContent = "window.owned = true";
            document.head.append(script);
            setTimeout(() => done("nothing"), 2000);
        })"""
    )
    assert stopped.startswith("script-src")
    assert not one.page.evaluate("window.owned")


@pytest.mark.parametrize(("scheme", "names"), [("light", KINDS), ("dark", KINDS)])
def test_axe_finds_nothing_serious(root, visit, scheme, names):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    one = visit(color_scheme=scheme)
    for name in names:
        one.page.goto(file(root, name))
        # One opened table of each sort is enough, and all of them would be slow to check.
        one.page.evaluate("[...document.querySelectorAll('details')].slice(0, 3).forEach((d) => { d.open = true; })")
        found = axe.run(one.page).response["violations"]
        serious = [
            (v["id"], v["nodes"][0]["html"][:200], v["nodes"][0].get("failureSummary", "")[:300])
            for v in found
            if v["impact"] in ("serious", "critical")
        ]
        assert serious == [], name


def test_sorting_keeps_groups_and_is_in_the_address(root, visit):
    one = visit()
    one.page.goto(file(root, "index.html"))
    before = column(one.page, TABLE, "macro")
    one.page.click(f'[data-table="{TABLE}"] th[data-key="macro"] button')
    assert f"sort.{TABLE}=macro:desc" in one.page.url
    after = column(one.page, TABLE, "macro")
    groups = [after[1:5], after[5:9]]
    for found, start in zip(groups, (1, 5), strict=True):
        known = [float(text) for text in found if text != "–"]
        assert known == sorted(known, reverse=True)
        assert sorted(found) == sorted(before[start : start + 4])
    assert groups[1][-1] == "–"
    assert one.page.get_attribute(f'[data-table="{TABLE}"] th[data-key="macro"]', "aria-sort") == "descending"
    other = visit()
    other.page.goto(one.page.url)
    assert column(other.page, TABLE, "macro") == after
    one.page.click(f'[data-table="{TABLE}"] th[data-key="macro"] button')
    one.page.click(f'[data-table="{TABLE}"] th[data-key="macro"] button')
    assert column(one.page, TABLE, "macro") == before
    assert "sort" not in one.page.url


def test_filtering_and_its_address(root, visit):
    one = visit()
    one.page.goto(file(root, "index.html"))
    one.page.fill(f'[data-table="{TABLE}"] input[type=search]', "respo")
    assert column(one.page, TABLE, "method") == ["ReSPO", "ReSPO"]
    assert one.page.inner_text(f'[data-table="{TABLE}"] output') == "2 of 9 rows"
    other = visit()
    other.page.goto(one.page.url)
    assert column(other.page, TABLE, "method") == ["ReSPO", "ReSPO"]
    one.page.fill(f'[data-table="{TABLE}"] input[type=search]', "<b>nothing")
    assert column(one.page, TABLE, "method") == []


def test_columns_can_be_left_out(root, visit):
    one = visit()
    one.page.goto(file(root, "index.html"))
    box = f'[data-table="{TABLE}"]'
    one.page.click(f"{box} .tools summary")
    one.page.click(f'{box} .choices label:has-text("AIME 2025")')
    assert not one.page.is_visible(f'{box} th[data-key="aime25"]')
    other = visit()
    other.page.goto(one.page.url)
    assert not other.page.is_visible(f'{box} th[data-key="aime25"]')
    assert other.page.is_visible(f'{box} th[data-key="math500"]')


def test_grader_and_measure_switch_every_score(root, visit):
    one = visit()
    one.page.goto(file(root, "index.html"))
    published = column(one.page, TABLE, "macro")
    one.page.click("label[for=measure-k]")
    at_k = column(one.page, TABLE, "macro")
    assert all(float(b) >= float(a) for a, b in zip(published, at_k, strict=True) if a != "–")
    assert at_k != published
    one.page.click("label[for=grader-audited]")
    assert "grader=audited" in one.page.url
    assert "measure=k" in one.page.url
    both = column(one.page, TABLE, "macro")
    one.page.click("label[for=measure-1]")
    assert column(one.page, TABLE, "macro") not in (published, at_k, both)
    one.page.click("label[for=measure-k]")
    other = visit()
    other.page.goto(one.page.url)
    assert column(other.page, TABLE, "macro") == both


def test_an_address_with_nonsense_does_no_harm(root, visit):
    one = visit()
    one.page.goto(
        file(root, f"index.html?grader=%3Cimg%3E&measure=7&sort.{TABLE}=x%22%5D:desc&hide.{TABLE}=%3Cscript%3E,,&q=1")
    )
    assert one.problems == []
    assert len(column(one.page, TABLE, "macro")) == 9


def test_without_javascript_everything_is_there(root, visit):
    with_script, without = visit(), visit(java_script_enabled=False)
    with_script.page.goto(file(root, "index.html"))
    without.page.goto(file(root, "index.html"))
    cells = f'[data-table="{TABLE}"] tbody tr:not(.group)'
    assert without.page.locator(cells).count() == with_script.page.locator(cells).count() == 9
    assert without.page.locator("svg.chart").count() == with_script.page.locator("svg.chart").count() >= 5
    assert not without.page.locator(".tools").first.is_visible()
    first = without.page.locator(f"{cells} .v.published-1").first
    assert first.is_visible()
    without.page.click("label[for=grader-audited]")
    assert not first.is_visible()
    assert without.page.locator(f"{cells} .v.audited-1").first.is_visible()
    assert without.problems == []


def test_the_keyboard_reaches_and_works_everything(root, visit):
    one = visit()
    one.page.goto(file(root, "index.html"))
    one.page.keyboard.press("Tab")
    assert one.page.evaluate("document.activeElement.className") == "skip"
    assert one.page.evaluate("document.activeElement.getBoundingClientRect().top") >= 0
    wanted = {"theme", "sort", "radio", "search", "summary", "region"}
    for _ in range(120):
        one.page.keyboard.press("Tab")
        found = one.page.evaluate(
            """() => { const e = document.activeElement;
                const style = getComputedStyle(e.type === "radio" ? e.nextElementSibling : e);
                return [e.getAttribute("class"), e.type, e.tagName.toLowerCase(), e.getAttribute("role"),
                    style.outlineStyle]; }"""
        )
        wanted -= set(found)
        assert found[4] != "none", found
        if not wanted:
            break
    assert wanted == set()
    one.page.focus("#grader-published")
    one.page.keyboard.press("ArrowRight")
    assert "grader=audited" in one.page.url
    one.page.focus(f'[data-table="{TABLE}"] th[data-key="macro"] button')
    one.page.keyboard.press("Enter")
    assert "macro:desc" in one.page.url
    one.page.focus(f'[data-table="{TABLE}"] .tools summary')
    one.page.keyboard.press("Enter")
    assert one.page.is_visible(f'[data-table="{TABLE}"] .choices')
    one.page.keyboard.press("Escape")
    assert not one.page.is_visible(f'[data-table="{TABLE}"] .choices')


def test_dark_mode_by_system_and_by_choice(root, visit):
    shade = "getComputedStyle(document.body).backgroundColor"
    light, dark = visit(color_scheme="light"), visit(color_scheme="dark")
    for one in (light, dark):
        one.page.goto(file(root, "index.html"))
    assert light.page.evaluate(shade) == "rgb(255, 255, 255)"
    assert dark.page.evaluate(shade) == "rgb(20, 23, 28)"
    light.page.click("button.theme")
    light.page.click("button.theme")
    assert light.page.inner_text("button.theme") == "Theme: dark"
    assert light.page.evaluate(shade) == "rgb(20, 23, 28)"
    light.page.goto(file(root, "methods.html"))
    assert light.page.evaluate(shade) == "rgb(20, 23, 28)"


@pytest.mark.parametrize("width", [360, 820, 1440])
def test_no_page_is_wider_than_the_window(root, visit, width):
    one = visit(viewport={"width": width, "height": 800})
    for name in KINDS:
        one.page.goto(file(root, name))
        assert one.page.evaluate("document.documentElement.scrollWidth") <= width, name


@pytest.mark.parametrize("kind", ODD)
def test_odd_stores_break_no_page(tmp_path, visit, kind):
    """No page is wider than a phone or a desk, none prints what it does not know as a number, none complains."""
    site.build(odd(kind, tmp_path), tmp_path / "site", workers=1)
    names = [path for path in sorted((tmp_path / "site").rglob("*.html")) if path.parts[-2:] != ("gspo", "seed1.html")]
    for width in (360, 1440):
        one = visit(viewport={"width": width, "height": 800})
        for path in names:
            one.page.goto(path.as_uri())
            assert one.page.evaluate("document.documentElement.scrollWidth") <= width, path
            shown = one.page.inner_text("main")
            if kind != "hostile":
                assert not re.search(r"\b(nan|NaN|undefined|Infinity|inf)\b", shown), path
                assert "\u202e" not in shown, path
        assert one.problems == []


def test_numbers_of_a_column_stand_under_one_another(visit, tmp_path):
    """A mark beside a number does not move it: the last digits of a column end at one place."""
    shutil.copytree(RESULTS / "n8", tmp_path / "store" / "tiny" / "tiny-qwen3" / "n8")  # has cells with and without
    site.build(tmp_path / "store", tmp_path / "pages", workers=1)
    one = visit()
    one.page.goto((tmp_path / "pages" / "index.html").as_uri())
    ends = one.page.evaluate(
        """() => [...document.querySelectorAll('[data-table^="heldout"] tbody td')].map((cell) => {
            const part = cell.querySelector(".v.published-1") || cell;
            const text = [...part.childNodes].find((node) => node.nodeType === 3);
            const range = document.createRange();
            if (text) range.selectNodeContents(text);
            const marked = part.querySelector("b") !== null;
            const right = Math.round(range.getBoundingClientRect().right);
            return part === cell || !text ? null : [cell.cellIndex, right, marked];
        }).filter(Boolean)"""
    )
    for column in {index for index, *_ in ends}:
        assert len({right for index, right, _ in ends if index == column}) == 1
    assert {marked for *_, marked in ends} == {True, False}


def test_what_the_data_say_follows_the_switches(root, visit):
    one = visit()
    one.page.goto(file(root, "index.html"))
    words = one.page.locator(".verdicts dd").first
    before = words.inner_text()
    one.page.click("label[for=measure-k]")
    assert words.inner_text() != before
    one.page.click("label[for=grader-audited]")
    assert words.locator(".v:visible").count() == 1
    assert words.locator(".v.audited-k").is_visible()


def test_nothing_shifts_while_a_page_loads(server, visit):
    base, _ = server
    one = visit()
    one.page.add_init_script(
        """window.shifts = 0;
        new PerformanceObserver((list) => { for (const e of list.getEntries()) window.shifts += e.value; })
            .observe({ type: "layout-shift", buffered: true });"""
    )
    for name in ("index.html", RUN, "runs.html"):
        one.page.goto(f"{base}/{name}")
        one.page.wait_for_timeout(300)
        assert one.page.evaluate("window.shifts") < 0.01, name


def test_tooltips_say_what_is_drawn(root, visit):
    one = visit()
    one.page.goto(file(root, RUN))
    chart = one.page.locator("svg.chart[data-axes]").first
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    one.page.mouse.move(box["x"] + box["width"] * 0.98, box["y"] + box["height"] * 0.5)
    tip = one.page.locator(".tip:visible")
    assert tip.count() == 1
    value = float(tip.locator("span").inner_text())
    panel = one.page.locator(".panel", has=chart).first
    panel.locator("summary").click()
    last = panel.locator("tbody tr").last.locator("td").inner_text()
    assert value == pytest.approx(float(last), abs=0.3)


def test_a_tooltip_where_x_is_a_place_is_a_row_of_the_table(root, visit):
    one = visit()
    one.page.goto(file(root, "index.html"))
    panel = one.page.locator(".panel", has_text="Held-out macro average against N").first
    chart = panel.locator("svg.chart")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    one.page.mouse.move(box["x"] + box["width"] * 0.85, box["y"] + box["height"] * 0.5)
    tip = panel.locator(".tip")
    assert tip.is_visible()
    panel.locator("summary").click()
    cells = panel.locator("table.plain tbody tr").last.locator("th, td").all_inner_texts()
    one.page.mouse.move(box["x"] + box["width"] * 0.84, box["y"] + box["height"] * 0.5)
    assert tip.locator("b").inner_text().endswith(f" {cells[0]}")
    assert tip.locator("span").all_inner_texts() == [text for text in cells[1:] if text != "–"]
    assert one.problems == []


@pytest.mark.parametrize("name", ["index.html", RUN, "methods/respo.html"])
def test_tooltips_of_every_chart_come_with_the_keyboard(root, visit, name):
    one = visit()
    one.page.goto(file(root, name))
    charts = one.page.locator("svg.chart")
    for index in range(charts.count()):
        chart = charts.nth(index)
        before = chart.evaluate("(e) => { const all = [...document.querySelectorAll('a, button, input, summary, "
                                "[tabindex]')].filter((o) => o.checkVisibility()); "
                                "all[all.indexOf(e) - 1].focus(); return all.length; }")  # fmt: skip
        assert before
        one.page.keyboard.press("Tab")
        assert chart.evaluate("(e) => e === document.activeElement")
        tip = one.page.locator(".tip:visible")
        assert tip.count() == 1
        last = tip.inner_text()
        one.page.keyboard.press("Home")
        first = tip.inner_text()
        assert first != last
        one.page.keyboard.press("ArrowRight")
        assert tip.inner_text() != first
        one.page.keyboard.press("End")
        assert tip.inner_text() == last
        one.page.keyboard.press("Escape")
        assert one.page.locator(".tip:visible").count() == 0
    assert one.problems == []


def test_the_chart_of_a_board_follows_the_switches(root, visit):
    """With and without JavaScript, and with the numbers of the table beside it."""
    for one in (visit(), visit(java_script_enabled=False)):
        one.page.goto(file(root, "boards/qwen3-1.7b-base-v1.html"))
        for grader, measure in (("published", "1"), ("published", "k"), ("audited", "k"), ("audited", "1")):
            one.page.click(f"label[for=grader-{grader}]")
            one.page.click(f"label[for=measure-{measure}]")
            panel = one.page.locator(".panel:visible", has_text="Held-out macro average against N")
            assert panel.count() == 1
            assert panel.locator("figcaption small").inner_text() == f"pass@{measure}, {grader} grader"
            panel.locator("summary").click()
            drawn = panel.locator("table.plain tbody tr").first.locator("td").all_inner_texts()
            panel.locator("summary").click()
            rows = one.page.locator(f'[data-table="{TABLE}"] tbody:has-text("N = 8") tr:not(.group)').all()
            cells = [row.locator(f".v.{grader}-{measure}").last.inner_text() for row in rows]
            shown = [text.split("\n")[0].strip("★≈ ") for text in cells]
            assert [text.split(" ")[0] for text in drawn] == shown


def test_a_view_that_was_sent_says_that_columns_are_hidden(root, visit):
    one = visit()
    one.page.goto(file(root, f"index.html?hide.{TABLE}=aime25,nonsense&filter.{TABLE}=respo"))
    assert one.page.inner_text(f'[data-table="{TABLE}"] output') == "2 of 9 rows, 1 column hidden"
    one.page.click(f'[data-table="{TABLE}"] .files a >> nth=0')
    assert one.page.url.endswith(f"#{TABLE}")
    assert f"filter.{TABLE}=respo" in one.page.url


def test_a_long_table_keeps_its_head_in_sight(visit, tmp_path):
    store = synthetic_store(
        tmp_path / "store", methods=("grpo",), reuses=(8,), seeds=(0,), tasks={"tiny_sum3": (60, 2)}, updates=32
    )
    site.build(store, tmp_path / "pages", workers=1)
    one = visit(viewport={"width": 1280, "height": 800})
    one.page.goto((tmp_path / "pages/benchmarks/tiny_sum3.html").as_uri())
    scroll = one.page.locator(".tall .scroll")
    heads = scroll.locator("thead th")
    scroll.evaluate("(e) => e.scrollTo(0, e.scrollHeight)")
    for index in range(heads.count()):
        assert heads.nth(index).bounding_box()["y"] == pytest.approx(scroll.bounding_box()["y"], abs=2)
    # On paper all rows are there.
    one.page.emulate_media(media="print")
    assert scroll.evaluate("(e) => e.scrollHeight <= e.clientHeight + 1")


def test_no_name_of_a_method_is_broken_on_a_phone(visit, tmp_path):
    shutil.copytree(RESULTS / "n8", tmp_path / "store" / "tiny" / "tiny-qwen3" / "n8")  # has REINFORCE, and lost runs
    site.build(tmp_path / "store", tmp_path / "pages", workers=1)
    one = visit(viewport={"width": 360, "height": 800})
    one.page.goto((tmp_path / "pages" / "index.html").as_uri())
    lines = one.page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll('.glance tbody th[scope="row"]')].map((cell) => {
            const range = document.createRange();
            range.selectNodeContents(cell);
            return [cell.innerText, new Set([...range.getClientRects()].map((box) => Math.round(box.top / 8))).size];
        }))"""
    )
    assert lines["REINFORCE"] == lines["GRPO"] == 1


def test_print_leaves_the_tools_out(root, visit):
    one = visit(color_scheme="dark")
    one.page.goto(file(root, "index.html"))
    one.page.emulate_media(media="print")
    assert not one.page.locator(".tools").first.is_visible()
    assert not one.page.locator("nav[aria-label=Pages]").is_visible()
    assert one.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert len(one.page.pdf(format="A4")) > 10_000
    # A sheet of A4 with the margins that Chromium prints: no table loses a column at its edge.
    paper = visit(viewport={"width": 718, "height": 1000})
    paper.page.emulate_media(media="print")
    for name in KINDS:
        paper.page.goto(file(root, name))
        wide = paper.page.evaluate(
            """() => [...document.querySelectorAll(".scroll table")]
                .filter((table) => table.getBoundingClientRect().right > innerWidth)
                .map((table) => table.innerText.slice(0, 80))"""
        )
        assert wide == [], name


def test_six_benchmarks_with_lost_runs_fit_on_a_sheet(visit, tmp_path):
    names = ("aime25", "aime24", "amc23", "olympiadbench", "minerva_math", "math500")
    lost = {("gspo", 32, 0): "failed", ("gspo", 32, 1): "collapsed", ("grpo", 32, 1): "collapsed"}
    store = synthetic_store(
        tmp_path / "store", protocol="qwen3-1.7b", models=("Qwen3-1.7B-Base",), reuses=(32,), seeds=(0, 1),
        tasks=dict.fromkeys(names, (4, 2)), updates=64, statuses=lost,
    )  # fmt: skip
    site.build(store, tmp_path / "pages", workers=1)
    paper = visit(viewport={"width": 718, "height": 1000})
    paper.page.emulate_media(media="print")
    paper.page.goto((tmp_path / "pages/index.html").as_uri())
    ends = paper.page.evaluate(
        "[...document.querySelectorAll('.scroll table')].map((table) => table.getBoundingClientRect().right)"
    )
    assert max(ends) <= 718
