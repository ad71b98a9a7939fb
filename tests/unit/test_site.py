"""The pages: links, security, downloads against numbers computed here, hostile records, and what is refused."""

import csv
import hashlib
import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
import zipfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from itertools import combinations, product
from math import comb
from pathlib import Path
from statistics import mean
from urllib.parse import unquote, urldefrag, urlsplit

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from harness.records import iter_records, record_folder
from leaderboard import preview, site
from leaderboard.pages import panels
from leaderboard.pages.boards import slug
from leaderboard.pages.formula import mathml
from leaderboard.pages.scores import _who_wins
from leaderboard.pages.tables import Cell, Column, Group, Row, Table, files, latex, to_csv
from leaderboard.tables import comparisons, heldout, load, shown
from methods.errors import UserError
from methods.grpo import GRPO
from methods.registry import Registered
from reuse_bench.main import app
from tasks.chain import held_out_problems
from tests.site_stores import MARKUP, hostile
from tests.synthetic import synthetic_store

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAPER = {"aime25": (6, 4), "math500": (10, 2)}
TINY = {"tiny_sum3": (12, 4), "tiny_sum4": (12, 4)}


class Page(HTMLParser):
    """What the tests need of a page: tags with attributes, ids, text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    handle_startendtag = handle_starttag

    def handle_data(self, data):
        self.text.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Both scales; one failed cell, one collapsed run, a base model, one and several seeds."""
    path = tmp_path_factory.mktemp("store")
    statuses = {("gspo", 32, 0): "failed", ("gspo", 32, 1): "failed", ("grpo", 32, 1): "collapsed"}
    synthetic_store(
        path, protocol="qwen3-1.7b", models=("Qwen3-1.7B-Base",), reuses=(8, 32), seeds=(0, 1), tasks=PAPER,
        statuses=statuses, base=True,
    )  # fmt: skip
    synthetic_store(path, methods=("grpo", "respo"), reuses=(8, 32), seeds=(0,), tasks=TINY, updates=32)
    return path


@pytest.fixture(scope="module")
def little(store, tmp_path_factory):
    """The four tiny cells on their own."""
    path = tmp_path_factory.mktemp("little")
    shutil.copytree(store / "tiny", path / "tiny")
    return path


@pytest.fixture(scope="module")
def built(store, tmp_path_factory):
    output = tmp_path_factory.mktemp("site") / "site"
    site.build(store, output, workers=1)
    return output


@pytest.fixture(scope="module")
def pages(built):
    return {
        path.relative_to(built).as_posix(): Page(path.read_text(encoding="utf-8")) for path in built.rglob("*.html")
    }


@pytest.fixture(scope="module")
def hostile_site(little, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    site.build(hostile(little, folder / "store"), folder / "site", workers=1)
    return folder / "site"


def links(page):
    for tag, attributes in page.tags:
        for name in ("href", "src"):
            if attributes.get(name) is not None and tag != "semantics":
                yield tag, attributes[name]


def broken(root, pages):
    """Links that lead nowhere, with the page that has them."""
    ids = {name: {a["id"] for _, a in page.tags if a.get("id")} for name, page in pages.items()}
    for name, page in pages.items():
        for _, address in links(page):
            if urlsplit(address).scheme:
                continue
            path, fragment = urldefrag(address)
            target = os.path.normpath(Path(name).parent / unquote(path)) if path else name
            missing = target.startswith("..") or not (root / target).is_file()
            if missing or (fragment and fragment not in ids.get(target, ())):
                yield name, address


def test_every_link_leads_to_a_file_and_an_anchor(built, pages):
    assert len(pages) > 30
    assert list(broken(built, pages)) == []


def test_the_link_checker_finds_what_is_broken(built):
    bad = {"a.html": Page('<a href="nowhere.html"></a><a href="index.html#nowhere"></a><a href="../x"></a>')}
    assert len(list(broken(built, bad))) == 3


def test_every_page_is_reached_from_the_front_page(pages):
    seen, waiting = set(), ["index.html"]
    while waiting:
        name = waiting.pop()
        if name in seen or name not in pages:
            continue
        seen.add(name)
        for _, address in links(pages[name]):
            if not urlsplit(address).scheme:
                waiting.append(os.path.normpath(Path(name).parent / (urldefrag(address)[0] or Path(name).name)))
    assert set(pages) - seen == set()


def test_nothing_is_loaded_from_elsewhere_and_no_code_is_inline(built, pages):
    for name, page in pages.items():
        policies = [m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy"]
        assert len(policies) == 1, name
        assert "default-src 'none'" in policies[0]
        assert "unsafe" not in policies[0]
        for tag, attributes in page.tags:
            assert "style" not in attributes, (name, tag)
            assert not [key for key in attributes if key.startswith("on")], (name, tag)
        assert [s["src"].rsplit("/", 1)[-1] for s in page.all("script")] == ["site.js"], name
        for tag, address in links(page):
            if tag != "a":
                assert not urlsplit(address).scheme, (name, address)
    for path in [*built.rglob("*.css"), *built.rglob("*.js")]:
        assert not re.search(r"https?://|@import|url\(", path.read_text().replace("http://www.w3.org/2000/svg", ""))


def test_ids_are_unique_and_figures_have_text_alternatives(pages):
    for name, page in pages.items():
        ids = [attributes["id"] for _, attributes in page.tags if attributes.get("id")]
        assert len(ids) == len(set(ids)), name
        for chart in (a for a in page.all("svg") if "chart" in (a.get("class") or "")):
            assert chart["role"] == "img"
            for identity in chart["aria-labelledby"].split():
                assert identity in ids


@pytest.mark.slow
def test_the_same_records_give_the_same_bytes(store, built, tmp_path):
    """Another place, other modification times, other order of creation, several processes."""
    copy = tmp_path / "elsewhere"
    for path in sorted(store.rglob("*"), reverse=True):
        if path.is_file():
            target = copy / path.relative_to(store)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
            os.utime(target, (1, 1))
    site.build(copy, tmp_path / "again", workers=2)
    assert (tmp_path / "again" / "SHA256SUMS").read_bytes() == (built / "SHA256SUMS").read_bytes()


@pytest.mark.slow
def test_the_same_bytes_in_another_process_and_time_zone(store, built, tmp_path):
    code = f"from pathlib import Path; from leaderboard import site; site.build(Path({str(store)!r}), Path('out'))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TZ": "Asia/Kathmandu", "PYTHONHASHSEED": "7", "LC_ALL": "C"}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, timeout=600)
    assert (tmp_path / "out" / "SHA256SUMS").read_bytes() == (built / "SHA256SUMS").read_bytes()


def test_the_sums_cover_every_file(built):
    sums = dict(line.split("  ")[::-1] for line in (built / "SHA256SUMS").read_text().splitlines())
    present = {p.relative_to(built).as_posix() for p in built.rglob("*") if p.is_file()} - {"SHA256SUMS"}
    assert set(sums) == present
    for name, digest in sums.items():
        assert hashlib.sha256((built / name).read_bytes()).hexdigest() == digest


def from_samples(store, protocol, method, reuse, task, grader, k):
    """Unbiased pass@k from the sample files, mean over problems, then seeds; nothing of ours computes it."""
    seeds = []
    for path, record in iter_records(store):
        if (record.protocol.id, record.reuse) != (protocol, reuse) or (record.method and record.method.name) != method:
            continue
        if not record.evaluation:
            continue
        counts: dict[str, list[int]] = {}
        for row in pq.read_table(record_folder(path) / "samples" / f"{task}.parquet").to_pylist():
            counts.setdefault(row["problem_id"], []).append(row[grader] == "right")
        seeds.append(mean(1 - comb(len(v) - sum(v), k) / comb(len(v), k) for v in counts.values()))
    return 100 * mean(seeds)


@pytest.mark.parametrize(
    ("board", "protocol", "tasks", "k"),
    [("qwen3-1.7b-base-v1", "qwen3-1.7b", PAPER, 2), ("tiny-qwen3-v1", "tiny", TINY, 4)],
)
def test_downloaded_scores_are_those_of_the_samples(store, built, board, protocol, tasks, k):
    rows = list(csv.DictReader((built / "data" / f"heldout-{board}.csv").open()))
    checked = 0
    for row in rows:
        method = {"Base model": None}.get(row["method"], row["method"].lower())
        for view, grader, size in (
            ("published-1", "published", 1), ("published-k", "published", k),
            ("audited-1", "audited", 1), ("audited-k", "audited", k),
        ):  # fmt: skip
            if not row[f"macro.{view}"]:
                continue
            reuse = int(row["N"]) or None
            expected = [from_samples(store, protocol, method, reuse, task, grader, size) for task in tasks]
            for task, value in zip(tasks, expected, strict=True):
                assert float(row[f"{task}.{view}"]) == pytest.approx(value, abs=1e-4)
            assert float(row[f"macro.{view}"]) == pytest.approx(mean(expected), abs=1e-4)
            assert float(row[f"macro.{view}.low"]) <= float(row[f"macro.{view}"]) <= float(row[f"macro.{view}.high"])
            checked += 1
    assert checked >= 16


def test_csv_json_and_page_say_the_same(built):
    name = "heldout-qwen3-1.7b-base-v1"
    rows = list(csv.DictReader((built / "data" / f"{name}.csv").open()))
    document = json.loads((built / "data" / f"{name}.json").read_text())
    assert len(document["rows"]) == len(rows) == 9
    for ours, other in zip(rows, document["rows"], strict=True):
        for key, value in other.items():
            assert ours[key] == ("" if value is None else str(value))
    page = (built / "boards" / "qwen3-1.7b-base-v1.html").read_text()
    for row in rows:
        if row["macro.published-1"]:
            assert f">{float(row['macro.published-1']):.1f}" in page


def test_a_number_leads_to_the_records_it_came_from(store, built, pages):
    by_cell = {}
    for _, record in iter_records(store):
        if record.protocol.id == "tiny":
            by_cell.setdefault((record.method.name, record.reuse), []).append(record.id)
    found = 0
    for attributes in pages["boards/tiny-qwen3-v1.html"].all("a"):
        match = re.fullmatch(r"\.\./(runs/tiny/tiny-qwen3/n(\d+)/(\w+)/seed0)\.html", attributes["href"])
        if match:
            identity = json.loads((built / f"{match[1]}.json").read_text())["id"]
            assert [identity] == by_cell[match[3], int(match[2])]
            found += 1
    assert found >= 4 * len(TINY)


def test_failed_and_collapsed_runs_are_rows(built):
    rows = {(r["N"], r["method"]): r for r in csv.DictReader((built / "data/heldout-qwen3-1.7b-base-v1.csv").open())}
    assert rows["32", "GSPO"]["status"] == "2 failed of 2"
    assert rows["32", "GSPO"]["macro.published-1"] == ""
    assert rows["32", "GRPO"]["status"] == "1 collapsed of 2"
    assert "2 failed of 2" in (built / "index.html").read_text()


def section(text, start, end="</section>"):
    return text[text.index(start) : text.index(end, text.index(start))]


def test_the_front_page_says_what_is_compared_in_three_sentences_and_one_picture(built):
    text = (built / "index.html").read_text()
    hero = section(text, '<div class="hero">', "<dl")
    (paragraph,) = re.findall(r"<p>(.*?)</p>", hero, re.DOTALL)
    assert len(re.findall(r"\.(?: |$)", paragraph)) == 3
    assert hero.count("<svg") == 1
    assert "Rollout reuse" in hero


def test_the_key_facts_are_those_of_the_records(store, built):
    found = [record for _, record in iter_records(store)]
    text = "".join(Page(section((built / "index.html").read_text(), '<dl class="kpis">', "</dl>")).text)
    facts = " ".join(text.split())
    samples = sum(t.problems * t.sampling.samples_per_problem for r in found for t in r.evaluation.values())
    assert f"{len(found)} " in facts
    assert "1 collapsed, 2 failed; 1 to 2 seeds for each method and N" in facts
    assert "methods: GRPO, GSPO, VESPO, ReSPO4 " in facts
    assert "8, 32" in facts
    assert f"{samples:,}" in facts
    assert f"{sum(r.cost.gpu_hours for r in found):,.0f}" in facts


def test_what_is_not_covered_comes_from_the_store(built, tmp_path):
    limits = section((built / "index.html").read_text(), 'id="limits"')
    assert "Installed, and not run: CISPO, DAPO clip-higher, REINFORCE." in limits
    # GSPO at 32 failed twice; of GRPO at 32 one seed is left; the four tiny cells have one each.
    assert "1 of 12 pairs of method and N have no held-out score" in limits
    assert "5 of 12 pairs of method and N have one seed with a held-out score" in limits
    assert "Qwen3-1.7B-Base, and nothing else" in limits
    (tmp_path / "store").mkdir()
    site.build(tmp_path / "store", tmp_path / "site")
    assert "no result at the scale of the paper" in section((tmp_path / "site/index.html").read_text(), 'id="limits"')


def test_lost_runs_stand_beside_every_mean(store, built):
    lost = {}
    for _, record in iter_records(store):
        if record.protocol.id == "qwen3-1.7b" and record.method and record.status != "done":
            lost.setdefault((record.reuse, record.method.name), []).append(record.status)
    text = (built / "boards/qwen3-1.7b-base-v1.html").read_text()
    for table, columns in (("heldout", len(PAPER) + 1), ("training", 3)):
        body = section(text, f'data-table="{table}-qwen3-1.7b-base-v1"', "</table>")
        seen = {}
        for group in re.split(r'<tr class="group">', body)[1:]:
            reuse = int(found[1]) if (found := re.search(r"N = (\d+)", group)) else 0
            for row in re.findall(r"<tr[ >].*?</tr>", group, re.DOTALL):
                method = re.search(r'data-text="\S+ (\w+)"', row)
                notes = re.findall(r'<td[^>]*>(?:(?!</td>).)*?class="lost">(\d+) (\w+)<', row, re.DOTALL)
                if notes:
                    seen[reuse, method[1]] = notes
        assert seen.keys() == lost.keys()
        for cell, statuses in lost.items():
            assert seen[cell] == [(str(len(statuses)), statuses[0])] * columns, (table, cell)


def row(title, score, **more):
    usual = {"leader": False, "tied": False, "ranked": True, "detectable": None, "seeds": 3}
    return {"title": title, "score": score, **usual, **more}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "No method has a score."),
        ([row("A", 0.5, leader=True, tied=True)], "Only A (50.0) has a score: there is nothing to compare it with."),
        (
            [row("A", 0.5, leader=True, tied=True), row("B", 0.4)],
            "A (50.0) is best, and distinguishable from every other method.",
        ),
        (
            [row("B", 0.4), row("A", 0.5, leader=True, tied=True), row("C", 0.45, tied=True, detectable=0.07)],
            "No single winner: A (50.0) is highest and better than B, but cannot be told apart from C. A difference "
            "under 7.0 points could have been missed.",
        ),
        (
            [row("A", 0.5, leader=True, tied=True), row("<b>", 0.4, tied=True, seeds=1)],
            "No winner: A (50.0) is highest, and no other method can be told apart from it. <b> has one seed with a "
            "score, which separates nothing.",
        ),
        (
            [row("A", 0.5, leader=True, tied=True), *(row(f"M{i}", 0.1) for i in range(9)), row("C", None)],
            "A (50.0) is best, and distinguishable from every other method.",
        ),
        (
            [row("A", 0.5, leader=True, tied=True), row("B", 0.4), row("C", 0.2, ranked=False)],
            "A (50.0) is best, and distinguishable from every other method. C lost runs and is not ranked.",
        ),
        (
            [row("A", 0.5, leader=True, tied=True), row("B", 0.4), row("C", 0.5, ranked=False, tied=True)],
            "No single winner: A (50.0) is highest and better than B, but cannot be told apart from C. C lost runs and "
            "is not ranked.",
        ),
        (
            [row("A", 0.5, leader=True, tied=True), row("B", 0.4), row("C", 0.9, ranked=False)],
            "No winner: A (50.0) is highest of those whose runs all came through. C lost runs and is not ranked.",
        ),
        (
            [row("A", 0.5, ranked=False), row("B", 0.4, ranked=False)],
            "No winner: A and B lost runs and are not ranked.",
        ),
    ],
)
def test_who_wins_in_words(rows, said):
    text = _who_wins(rows)
    assert "".join(Page(text).text) == said
    assert "<b>" not in text


def test_no_difference_over_a_hundred_points_is_spoken_of():
    rows = [row("A", 0.5, leader=True, tied=True), row("B", 0.1, tied=True, detectable=1.04)]
    assert "too few to find a difference of any size" in _who_wins(rows)


def test_long_lists_of_methods_are_counted():
    rows = [row("A", 0.5, leader=True, tied=True), *(row(f"M{i}", 0.1, tied=True) for i in range(9))]
    rows += [row("Z", 0.01)]
    assert "M0, M1, M2, M3, M4, M5 and 3 more." in "".join(Page(_who_wins(rows)).text)


def test_names_are_printed_on_one_line_and_apart():
    assert shown("\u202eevil\u202c") == "evil"
    assert shown("a\nb\x00") == "a b"
    assert shown("", "grpo") == "grpo"
    assert shown(" ") == "(no name)"
    long = [shown("x" * 200 + end) for end in "ab"]
    assert len(set(long)) == 2
    assert max(map(len, long)) <= 72


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.6, "1 min 0 s"), (250, "4 min 10 s"), (86_399, "23 h 59 min"), (1e308, "2.78e+304 h")],
)
def test_times_are_said_in_two_units(seconds, text):
    assert site.duration(seconds) == text


def test_signs_of_plain_text():
    assert site.typeset("-0.5 +- 1 - a >= b, pass-2, (1, inf)") == "−0.5 ± 1 – a ≥ b, pass-2, (1, ∞)"


def test_every_chart_of_the_issue_is_there_with_its_data(pages, built):
    titles = {name: {text for text in page.text if text.strip()} for name, page in pages.items()}
    board = titles["boards/qwen3-1.7b-base-v1.html"]
    for wanted in (
        "Training score, N = 8",
        "Training score, N = 32",
        "Held-out macro average against N",
        "Late training score against N",
        "Cost against score, points named by N",
        "Share of responses, A > 0",
        "Share of coefficient mass, A > 0",
        "Share of responses, A < 0",
        "Share of coefficient mass, A < 0",
        "Accuracy by response length, N = 32",
        "Truncated held-out responses",
        "Disagreement of the two graders",
    ):
        assert wanted in board, wanted
    for name in ("index.html", "methods/respo.html"):
        assert {"Kernel φ(W), A ≥ 0", "Kernel φ(W), A < 0"} <= titles[name]
    assert {"N = 32, A > 0", "N = 32, A < 0"} <= titles["methods/respo.html"]
    for name in pages:
        text = (built / name).read_text()
        assert text.count('<svg class="chart"') == text.count('<table class="plain">'), name


def test_the_tables_behind_charts_name_n_and_bins_and_not_where_they_are_drawn(built):
    for path in built.rglob("*.html"):
        text = path.read_text()
        for table in re.findall(r'<table class="plain">.*?</table>', text, re.DOTALL):
            head = re.search(r'<th scope="col">(.*?)</th>', table)[1]
            names = re.findall(r'<th scope="row">(.*?)</th>', table)
            if head.startswith("N, "):
                assert set(names) <= {"8", "32"}, path
                assert len(names) == len(set(names)), path
            elif head == "log W (nats)" and "share of" in table:
                assert (names[0], names[1], names[-1]) == ("below −10", "−10 to −5", "from 10"), path
    assert "below −10" in (built / "methods/respo.html").read_text()


def test_charts_of_scores_say_which_grader_and_measure_they_show(built):
    text = (built / "boards/qwen3-1.7b-base-v1.html").read_text()
    for title in ("Held-out macro average against N", "Cost against score, points named by N", "AIME 2025"):
        assert f"<figcaption>{title} <small>pass@1, published grader</small>" in text


def test_every_pair_stands_in_the_matrix_of_differences(store, built):
    """Against the comparisons themselves: sign, interval, and which are sure; each leads to its page."""
    pairs = comparisons(load(store, protocol="qwen3-1.7b"))
    pairs = pairs[pairs["task"] == "macro_average"]
    rows = list(csv.DictReader((built / "data/differences-qwen3-1.7b-base-v1.csv").open()))
    text = section((built / "compare.html").read_text(), 'data-table="differences-qwen3-1.7b-base-v1"', "</table>")
    titles = {"grpo": "GRPO", "gspo": "GSPO", "vespo": "VESPO", "respo": "ReSPO"}
    found = {(line["N"], line["method"]): line for line in rows}
    assert len(found) == 8
    known = set()
    for _, pair in pairs.iterrows():
        for one, other, sign in ((pair["first"], pair["second"], 1), (pair["second"], pair["first"], -1)):
            line = found[str(pair["reuse"]), titles[one]]
            bounds = sorted(sign * 100 * pair[name] for name in ("low", "high"))
            assert float(line[other]) == pytest.approx(sign * 100 * pair["difference"])
            assert [float(line[f"{other}.low"]), float(line[f"{other}.high"])] == pytest.approx(bounds)
            known.add((str(pair["reuse"]), one, other))
    empty = {(n, own, other) for (n, title), line in found.items() for own, other in product(titles, titles)
             if titles[own] == title and line[other] == ""}  # fmt: skip
    assert empty == {(n, own, other) for n, own, other in product(("8", "32"), titles, titles)} - known
    filled = len(re.findall(r'<td class="num tone-(?:good|bad)"', text))
    assert filled == 2 * int(pairs["separated"].sum())
    assert f"{int(pairs['separated'].sum())} of {len(pairs)} differences" in (built / "compare.html").read_text()
    assert text.count('href="compare/') == 2 * 4 * 3


def test_a_comparison_shows_both_scores_and_leads_to_their_runs(built):
    text = section((built / "compare/vespo--respo.html").read_text(), 'data-table="compare-', "</table>")
    own = {line["method"]: line for line in csv.DictReader((built / "data/heldout-qwen3-1.7b-base-v1.csv").open())
           if line["N"] == "8"}  # fmt: skip
    rows = csv.DictReader((built / "data/compare-vespo--respo-qwen3-1.7b-base-v1.csv").open())
    first = next(line for line in rows if line["N"] == "8")
    for name, title in (("respo", "ReSPO"), ("vespo", "VESPO")):
        assert float(first[name]) == pytest.approx(float(own[title]["macro.published-1"]))
        assert f'href="../methods/{name}.html#qwen3-1.7b-base-v1-n8"' in text


def test_captions_tell_downloads_apart(built):
    text = (built / "downloads.html").read_text()
    captions = re.findall(r'<th scope="row">(.*?)</th>', section(text, "Every table of these pages", "</table>"))
    assert len(captions) > 20
    assert [text for text, count in Counter(captions).items() if count > 1] == []


def test_a_lost_run_is_not_asked_to_be_evaluated(built):
    text = (built / "runs/qwen3-1.7b/qwen3-1.7b-base/n32/grpo/seed1.html").read_text()
    assert "This run collapsed: there is no final checkpoint to ask." in text
    assert "reuse-bench evaluate" not in text


def test_a_run_leads_to_the_other_seeds_of_its_cell(built):
    text = (built / "runs/qwen3-1.7b/qwen3-1.7b-base/n8/grpo/seed1.html").read_text()
    assert 'href="../../../../../runs/qwen3-1.7b/qwen3-1.7b-base/n8/grpo/seed0.html" aria-label="Seed 0' in text
    assert "<strong>1</strong>" in text


def test_charts_of_samples_say_what_the_samples_say(store, built):
    """Truncation and disagreement by N, from the sample files."""
    share = {"truncated": [], "differ": []}
    for path, record in iter_records(store):
        if (record.protocol.id, record.reuse, record.method and record.method.name) == ("qwen3-1.7b", 8, "respo"):
            rows = [
                line
                for task in PAPER
                for line in pq.read_table(record_folder(path) / "samples" / f"{task}.parquet").to_pylist()
            ]
            share["truncated"].append(mean(line["finish_reason"] == "length" for line in rows))
            # One grader says right and the other does not: an error beside a wrong is no disagreement about it.
            verdicts = [(line["published"] == "right", line["audited"] == "right") for line in rows]
            share["differ"].append(mean(one != other for one, other in verdicts))
    text = (built / "boards/qwen3-1.7b-base-v1.html").read_text()
    for title, values in (("Truncated held-out", share["truncated"]), ("Disagreement of the two", share["differ"])):
        table = section(text, f"<figcaption>{title}", "</figure>")
        heads = re.findall(r'<th scope="col">(.*?)</th>', table)
        rows = [re.findall(r"<td>(.*?)</td>", line) for line in re.findall(r"<tr>.*?</tr>", table)[1:]]
        column = [line[heads.index("ReSPO") - 1] for line in rows if line[heads.index("ReSPO") - 1] != "–"]
        assert float(column[0]) == pytest.approx(100 * mean(values), abs=0.01)


def test_problems_are_listed_by_id_with_their_solve_rates_and_no_text(store, built):
    right, drawn = {}, {}
    for path, record in iter_records(store):
        if (record.protocol.id, record.method and record.method.name) == ("tiny", "respo"):
            for line in pq.read_table(record_folder(path) / "samples" / "tiny_sum3.parquet").to_pylist():
                right[line["problem_id"]] = right.get(line["problem_id"], 0) + (line["published"] == "right")
                drawn[line["problem_id"]] = drawn.get(line["problem_id"], 0) + 1
    rows = list(csv.DictReader((built / "data/problems-tiny_sum3-tiny-qwen3-v1.csv").open()))
    column = next(name for name in rows[0] if name in ("respo", "respo.published-1"))
    assert {line["problem"]: float(line[column]) for line in rows} == pytest.approx(
        {name: 100 * right[name] / drawn[name] for name in drawn}
    )
    texts = [problem["problem"] for problem in held_out_problems("tiny_sum3")[:12]]
    for path in built.rglob("*.html"):
        page = path.read_text()
        assert not any(text in page for text in texts), path


def test_a_run_page_has_all_that_the_run_left(store, built):
    wanted = store / "tiny/tiny-qwen3/n8/respo/seed0.json"
    path, record = next(item for item in iter_records(store) if item[0] == wanted)
    name = "runs/tiny/tiny-qwen3/n8/respo/seed0"
    text = "".join(Page((built / f"{name}.html").read_text()).text)
    for part in (record.id, record.provenance.commit, record.provenance.platform, record.protocol.digest[:12]):
        assert part in text, part
    for package, version in record.provenance.packages.items():
        assert f"{package} {version}" in text
    assert "reuse-bench run --protocol tiny --model tiny-qwen3 --method respo --reuse 8 --seed 0" in text
    for wanted in ("Training score", "log W, positive advantage", "Clip fraction", "Gradient norm", "Response length"):
        assert wanted in text
    assert (built / f"{name}.json").read_bytes() == path.read_bytes()
    assert (built / f"{name}.updates.jsonl").read_bytes() == (record_folder(path) / "updates.jsonl").read_bytes()


def test_claims_stand_on_the_front_page_with_their_verdicts(built):
    (claims,) = re.findall(r'<ul class="verdict-list">.*?</ul>', (built / "index.html").read_text(), re.DOTALL)
    shown_ = re.findall(r'<span class="badge [\w-]*">([\w ]+)</span>', claims)
    assert len(shown_) == claims.count("<li>") >= 6
    assert set(shown_) <= {"holds", "fails", "inconclusive", "no data"}
    assert claims.count("printed numbers:") == len(shown_)


def test_marks_are_those_of_the_comparisons(store, built):
    """★ only where every other method at that N is separated; ≈ where only some are."""
    text = (built / "boards/qwen3-1.7b-base-v1.html").read_text()
    body = section(text, 'data-table="heldout-qwen3-1.7b-base-v1"', "</table>")
    frame = heldout(load(store, protocol="qwen3-1.7b"))
    for reuse in (8, 32):
        group = body[body.index(f"N = {reuse}<") :].split("</tbody>")[0]
        for _, line in frame[(frame["reuse"] == reuse) & (frame["task"] == "macro_average")].iterrows():
            (shown_,) = re.findall(rf'data-text="{line["title"]} .*?</tr>', group, re.DOTALL)
            macro = re.findall(r'<span class="v published-1([ a-z]*)">', shown_)[-1:] or [""]
            others = frame[(frame["reuse"] == reuse) & (frame["task"] == "macro_average") & frame["score"].notna()]
            ties = int(others["tied"].sum())
            expected = "" if not line["tied"] or ties == len(others) else " best" if ties == 1 else " tied"
            assert macro[0] == expected, (reuse, line["title"])


def test_series_can_be_told_apart_without_full_colour_vision():
    """Seen with each kind of red or green blindness (Machado and others, 2009), on both grounds."""
    css = (site.STATIC / "site.css").read_text()
    kinds = {
        "full": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
        "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
        "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    }
    for scheme in (0, 1):
        named = [
            re.search(rf"--{n}: light-dark\((#\w+), (#\w+)\)", css)[scheme + 1] for n in ("paper", *site.COLOURS[1:])
        ]
        ground, *series = (linear(colour) for colour in named)
        for colour in series:
            light, dark = sorted((luminance(colour), luminance(ground)), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5
        for kind, matrix in kinds.items():
            turned = [[sum(m * v for m, v in zip(line, c, strict=True)) for line in matrix] for c in series]
            seen = [oklab([min(1, max(0, value)) for value in colour]) for colour in turned]
            assert min(math.dist(a, b) for a, b in combinations(seen, 2)) > 0.1, (scheme, kind)


def linear(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in channels]


def luminance(rgb):
    return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]


def oklab(rgb):
    """Linear RGB in the space in which distances are about as the eye sees them (Ottosson, 2020)."""
    r, g, b = rgb
    cone = [
        0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b,
        0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b,
        0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b,
    ]
    x, y, z = (value ** (1 / 3) for value in cone)
    return (
        0.2104542553 * x + 0.7936177850 * y - 0.0040720468 * z,
        1.9779984951 * x - 2.4285922050 * y + 0.4505937099 * z,
        0.0259040371 * x + 0.7827717662 * y - 0.8086757660 * z,
    )


def test_the_pages_workflow_verifies_before_it_builds_and_builds_before_it_publishes():
    text = (ROOT / ".github/workflows/pages.yml").read_text()
    order = [text.index(part) for part in ("reuse-bench verify results", "reuse-bench site --records", "deploy-pages")]
    assert order == sorted(order)
    assert re.search(r"\[testenv:site\].*?reuse-bench site", (ROOT / "tox.ini").read_text(), re.DOTALL)


def test_published_values_stand_apart_with_their_verdicts(built):
    rows = {(r["N"], r["method"]): r for r in csv.DictReader((built / "data/heldout-qwen3-1.7b-base-v1.csv").open())}
    assert float(rows["8", "GRPO"]["paper"]) == 28.4
    assert rows["8", "GRPO"]["verdict"] in ("reproduced", "contradicted", "inconclusive")
    assert "paper" not in next(csv.reader((built / "data/heldout-tiny-qwen3-v1.csv").open()))
    printed = list(csv.DictReader((built / "data/paper-heldout-qwen3-1.7b.csv").open()))
    assert {(r["N"], r["method"]): float(r["macro_average"]) for r in printed}["32", "ReSPO"] == 34.5


def test_tiny_results_are_marked_and_share_no_table(built, pages):
    for name in pages:
        text = (built / name).read_text()
        for table in re.findall(r"<table.*?</table>", text, re.DOTALL):
            kinds = {kind == "tiny" for kind in re.findall(r'href="(?:\.\./)*runs/([^/"]+)/', table)}
            assert len(kinds) <= 1, name
        if name.startswith(("runs/tiny", "boards/tiny")):
            assert 'class="badge small-scale"' in text, name
        elif name.startswith(("runs/", "boards/")):
            assert 'class="badge small-scale"' not in text, name


def test_the_archive_holds_the_records_as_they_are(store, built):
    with zipfile.ZipFile(built / "data" / "records.zip") as archive:
        names = archive.namelist()
        for path, _ in iter_records(store):
            assert archive.read(f"results/{path.relative_to(store).as_posix()}") == path.read_bytes()
    assert len(names) == len(list(iter_records(store)))


def test_the_feed_is_atom_with_one_entry_for_each_result(store, built):
    root = ET.parse(built / "feed.atom").getroot()
    atom = "{http://www.w3.org/2005/Atom}"
    entries = root.findall(f"{atom}entry")
    assert {e.find(f"{atom}id").text for e in entries} == {f"urn:sha256:{r.id}" for _, r in iter_records(store)}
    for entry in [root, *entries]:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", entry.find(f"{atom}updated").text)
    for entry in entries:
        assert (built / entry.find(f"{atom}link").get("href")).is_file()


def test_badges_are_well_formed(built):
    badges = list((built / "badges").glob("*.svg"))
    assert len(badges) == 7 + 4
    for path in badges:
        assert ET.parse(path).getroot().get("aria-label")


def test_the_front_page_is_small(built):
    assert (built / "index.html").stat().st_size < 300_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        {"methods": tuple(f"m{i}" for i in range(20)), "reuses": (8,)},
        {"models": tuple(f"Model-{i}" for i in range(12)), "methods": ("grpo", "respo"), "reuses": (8,)},
        {"methods": (), "base": True},
        {"tasks": {"alone": (9, 1)}, "reuses": (8,)},
        {"statuses": {(m, 8, 0): "failed" for m in ("grpo", "gspo", "vespo", "respo")}, "reuses": (8,)},
    ],
    ids=["many methods", "many models", "base model only", "one benchmark, one sample", "all failed"],
)
def test_unusual_stores(tmp_path, more):
    tasks = dict.fromkeys(("aime25", "aime24", "amc23", "olympiadbench", "minerva_math", "math500"), (8, 4))
    options = {"protocol": "qwen3-1.7b", "models": ("M",), "tasks": tasks, "seeds": (0,), "updates": 32, **more}
    synthetic_store(tmp_path / "store", **options)
    site.build(tmp_path / "store", tmp_path / "site")
    assert (tmp_path / "site" / "index.html").stat().st_size < 300_000
    pages = {p.relative_to(tmp_path / "site").as_posix(): Page(p.read_text()) for p in tmp_path.rglob("site/**/*.html")}
    assert list(broken(tmp_path / "site", pages)) == []


def test_hostile_records_do_no_harm(hostile_site):
    texts = {path: path.read_text(encoding="utf-8") for path in hostile_site.rglob("*.html")}
    assert any("&lt;script&gt;alert(1)" in text for text in texts.values())
    for path, text in texts.items():
        page = Page(text)
        assert [s.get("src", "").rsplit("/", 1)[-1] for s in page.all("script")] == ["site.js"], path
        assert not [a for _, a in page.tags if any(key.startswith("on") for key in a)], path
        assert "root:x:0" not in text
    pages = {path.relative_to(hostile_site).as_posix(): Page(text) for path, text in texts.items()}
    assert list(broken(hostile_site, pages)) == []
    for path in hostile_site.rglob("*"):
        assert re.fullmatch(r"[A-Za-z0-9._-]+", path.name), path
        if path.suffix in (".svg", ".atom"):
            ET.parse(path)
        assert not path.is_file() or b"root:x:0" not in path.read_bytes()


def test_hostile_text_is_shown_as_it_is(hostile_site):
    runs = list(hostile_site.glob("runs/*/*/*/respo/seed0.html"))
    assert runs
    for path in runs:
        text = "".join(Page(path.read_text()).text)
        assert MARKUP in text
        assert "{{ 7 * 7 }}{% raw %}" in text


def test_an_empty_store_says_what_to_run(tmp_path):
    (tmp_path / "store").mkdir()
    site.build(tmp_path / "store", tmp_path / "site")
    text = (tmp_path / "site" / "index.html").read_text()
    assert "reuse-bench run --protocol tiny" in text
    pages = {
        p.relative_to(tmp_path / "site").as_posix(): Page(p.read_text()) for p in (tmp_path / "site").rglob("*.html")
    }
    assert list(broken(tmp_path / "site", pages)) == []


def test_a_damaged_record_leaves_the_old_pages(little, tmp_path):
    copy = tmp_path / "store"
    shutil.copytree(little / "tiny", copy / "tiny")
    site.build(copy, tmp_path / "site", workers=1)
    before = (tmp_path / "site" / "SHA256SUMS").read_bytes()
    record = next(copy.glob("*/*/n8/grpo/seed0.json"))
    record.write_text(record.read_text().replace('"status": "done"', '"status": "failed"'))
    with pytest.raises(UserError, match=r"seed0\.json"):
        site.build(copy, tmp_path / "site")
    assert (tmp_path / "site" / "SHA256SUMS").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["site", "store"]


def test_a_damaged_log_is_named(little, tmp_path):
    shutil.copytree(little / "tiny", tmp_path / "store" / "tiny")
    log = next((tmp_path / "store").glob("*/*/n8/grpo/seed0/updates.jsonl"))
    log.write_text(log.read_text()[:-20])
    with pytest.raises(UserError, match=r"updates\.jsonl: line 32"):
        site.build(tmp_path / "store", tmp_path / "site")


@pytest.mark.parametrize("kept", [0, 16])
def test_a_log_with_fewer_updates_than_its_record_says_is_named(little, tmp_path, kept):
    """It was cut at the end of a line: what is left is whole."""
    shutil.copytree(little / "tiny", tmp_path / "store" / "tiny")
    log = next((tmp_path / "store").glob("*/*/n8/grpo/seed0/updates.jsonl"))
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:kept]))
    with pytest.raises(UserError, match=rf"updates\.jsonl: it has {kept} policy updates, and its record says 32"):
        site.build(tmp_path / "store", tmp_path / "site")


def test_missing_files_are_said_on_the_page(little, tmp_path):
    shutil.copytree(little / "tiny", tmp_path / "store" / "tiny")
    folder = next((tmp_path / "store").glob("*/*/n8/grpo/seed0"))
    (folder / "updates.jsonl").unlink()
    (folder / "samples" / "tiny_sum3.parquet").unlink()
    site.build(tmp_path / "store", tmp_path / "site", workers=1)
    text = (tmp_path / "site" / "runs" / "tiny" / "tiny-qwen3" / "n8" / "grpo" / "seed0.html").read_text()
    assert "samples/tiny_sum3.parquet" in text
    assert "updates.jsonl</bdi>" in text


def test_other_folders_are_never_replaced(little, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="something else than a site"):
        site.build(little, tmp_path)
    assert (tmp_path / "thesis.tex").exists()
    with pytest.raises(UserError, match="is a file"):
        site.build(little, tmp_path / "thesis.tex")
    (tmp_path / "outer").mkdir()
    (tmp_path / "outer" / "site.json").write_text("{}")
    shutil.copytree(little / "tiny", tmp_path / "outer" / "results" / "tiny")
    with pytest.raises(UserError, match="holds the records"):
        site.build(tmp_path / "outer" / "results", tmp_path / "outer")


def test_of_a_link_the_folder_behind_it_is_replaced(tmp_path):
    (tmp_path / "records").mkdir()
    (tmp_path / "public").mkdir()
    (tmp_path / "site").symlink_to("public")
    for _ in range(2):
        site.build(tmp_path / "records", tmp_path / "site", workers=1)
        assert (tmp_path / "site").is_symlink()
        assert (tmp_path / "public" / "index.html").is_file()
        assert {path.name for path in tmp_path.iterdir()} == {"records", "public", "site"}


def test_what_a_killed_build_left_is_put_right(tmp_path):
    store, output = tmp_path / "records", tmp_path / "site"
    (store / "tiny" / "m" / "n8" / "grpo").mkdir(parents=True)
    site.build(store, output, workers=1)
    output.rename(tmp_path / ".site.old")  # killed between the two renames
    (tmp_path / ".site.tmp").mkdir()
    damaged = store / "tiny" / "m" / "n8" / "grpo" / "seed0.json"
    damaged.write_text("{")
    with pytest.raises(UserError):
        site.build(store, output, workers=1)
    assert (output / "index.html").is_file()
    damaged.unlink()
    site.build(store, output, workers=1)
    assert {path.name for path in tmp_path.iterdir()} == {"records", "site"}


def test_two_builds_of_one_folder_take_turns(tmp_path, monkeypatch):
    (tmp_path / "records").mkdir()
    inside, write = [], site.write

    def slowly(*arguments, **options):
        inside.append(1)
        time.sleep(0.2)
        assert len(inside) == 1
        done = write(*arguments, **options)
        inside.pop()
        return done

    monkeypatch.setattr(site, "write", slowly)
    with ThreadPoolExecutor() as pool:
        builds = [pool.submit(site.build, tmp_path / "records", tmp_path / "site", workers=1) for _ in range(3)]
        assert len({build.result().output for build in builds}) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"records", "site"}


class Miscurved(GRPO):
    name = "miscurved"

    def coefficient(self, log_weight, advantage_sign):
        return log_weight[:7]


def test_a_method_without_a_curve_stops_with_a_sentence():
    shown = panels.Panels({"miscurved": Registered("miscurved", Miscurved, "pkg 1")}, None, None)
    with pytest.raises(UserError, match=r"method miscurved \(pkg 1\): its coefficient\(\) gives no number for each"):
        _ = shown.kernels


def test_half_a_character_in_the_configuration_is_a_question_mark(tmp_path):
    (tmp_path / "records").mkdir()
    (tmp_path / "site.yaml").write_text('citation: "\\uD800"\n')
    site.build(tmp_path / "records", tmp_path / "site", tmp_path / "site.yaml", workers=1)
    assert (tmp_path / "site" / "citation.bib").read_text() == "?"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colour: red", "field colour"),
        ("title: [", "site.yaml: line 1: "),
        ("title: one\ntitle: two", "site.yaml: line 2: field title is given twice"),
        ("- a", "must hold fields"),
        ("colours: {light: {s1: 'red; } body { display: none'}}", "field colours.light.s1"),
        ("colours: {dark: {s9: '#000000'}}", "unknown colour s9"),
        ("links: [{label: x, url: 'javascript:alert(1)'}]", "field links.0.url"),
        ("url: 'javascript:alert(1)'", "field url"),
        ("logo: ../../etc/passwd", "field logo"),
    ],
)
def test_a_wrong_configuration_is_one_sentence(tmp_path, text, message):
    path = tmp_path / "site.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=re.escape(message)) as error:
        site.read_config(path)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_a_board_of_ones_own(little, tmp_path):
    (tmp_path / "logo.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    (tmp_path / "site.yaml").write_text(
        "title: Our <b>board</b>\nlogo: logo.svg\nurl: https://example.org/board\ntraining_logs: false\n"
        "records_url: https://example.org/store\n"
        "links: [{label: Home, url: 'https://example.org/'}]\ncolours: {light: {accent: '#123456'}}\n"
    )
    site.build(little, tmp_path / "site", tmp_path / "site.yaml", workers=1)
    text = (tmp_path / "site" / "index.html").read_text()
    assert "Our &lt;b&gt;board&lt;/b&gt;" in text
    assert 'href="https://example.org/"' in text
    assert "--accent: light-dark(#123456, #123456)" in (tmp_path / "site" / "static" / "theme.css").read_text()
    assert (tmp_path / "site" / "static" / "logo.svg").is_file()
    assert not list((tmp_path / "site").rglob("*.updates.jsonl"))
    assert 'href="https://example.org/board/runs/' in (tmp_path / "site" / "feed.atom").read_text()
    run = (tmp_path / "site/runs/tiny/tiny-qwen3/n8/grpo/seed0.html").read_text()
    assert "https://example.org/store/tiny/tiny-qwen3/n8/grpo/seed0" in run


def test_the_command(little, tmp_path):
    result = CliRunner().invoke(app, ["site", "--records", str(little), "--output", str(tmp_path / "out")])
    assert result.exit_code == 0
    assert "index.html" in result.output
    assert (tmp_path / "out" / "index.html").is_file()
    missing = CliRunner().invoke(app, ["site", "--records", str(tmp_path / "none"), "--output", str(tmp_path / "x")])
    assert isinstance(missing.exception, UserError)
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_the_preview_rebuilds_when_a_record_comes(little, tmp_path, monkeypatch):
    monkeypatch.setattr(preview, "INTERVAL", 0.05)
    store, output = tmp_path / "store", tmp_path / "site"
    store.mkdir()
    before = preview.state(store, None)
    site.build(store, output)
    shutil.copytree(little / "tiny", tmp_path / "incoming")
    (tmp_path / "incoming").rename(store / "tiny")  # before anybody looks: it is seen all the same
    said, stop = [], threading.Event()
    thread = threading.Thread(target=preview.watch, args=(store, output, None, before, said.append, stop), daemon=True)
    thread.start()
    deadline = time.monotonic() + 300
    while not said and time.monotonic() < deadline:
        time.sleep(0.05)
    stop.set()
    thread.join(300)
    assert said == [f"rebuilt: {len(list((tmp_path / 'site').rglob('*.html')))} pages from 4 runs"]


@given(st.text(min_size=1, max_size=80))
def test_file_names_are_safe(name):
    made = slug(name)
    assert re.fullmatch(r"[a-z0-9._-]+", made)
    assert not made.startswith((".", "-"))
    assert len(made) < 80


@given(st.text(min_size=1, max_size=30), st.text(min_size=1, max_size=30))
def test_different_names_give_different_files(a, b):
    if a.lower() != b.lower():
        assert slug(a) != slug(b)


def test_formulas_become_mathml():
    text = mathml(r"\phi_0(W) = \bigl[(1-\beta) + \beta W^{\alpha-1}\bigr]^{1/(\alpha-1)}")
    tree = ET.fromstring(str(text))
    plain = "".join(tree.find("semantics/mrow").itertext())
    assert plain == "φ0(W)=[(1−β)+βWα−1]1/(α−1)"
    assert tree.find("semantics/annotation").text.startswith(r"\phi_0")


def test_every_registered_formula_is_understood():
    import methods

    for entry in methods.available().values():
        assert mathml(entry.card.formula).startswith("<math"), entry.card.formula


@given(st.text(max_size=60))
def test_any_formula_is_harmless(text):
    shown = str(mathml(text))
    assert "<script" not in shown.lower() or "<script" not in text.lower()
    if (
        "\x00" not in text
        and all(c in "\t\n\r" or c >= " " for c in text)
        and not re.search(r"[\ud800-\udfff\ufffe\uffff]", text)
    ):
        ET.fromstring(shown)


def test_latex_and_csv_are_harmless():
    cell = Cell(r"50% & \evil_{x}^~#$", "=1+1")
    table = Table("t", "a_b & c", [Column("=k", "50%")], [Group("", [Row([cell])])])
    made = dict(files(table))
    assert latex(r"\a{b}_c^d~e%f&g#h$i") == (
        r"\textbackslash{}a\{b\}\_c\textasciicircum{}d\textasciitilde{}e\%f\&g\#h\$i"
    )
    assert r"50\% \& \textbackslash{}evil\_\{x\}\textasciicircum{}\textasciitilde{}\#\$" in made["t.tex"].decode()
    (row,) = list(csv.reader(io.StringIO(made["t.csv"].decode())))[1:]
    assert row == ["'=1+1"]
    assert to_csv([{"a": 'x,\n"y'}]) == b'a\n"x,\n""y"\n'


def test_latex_tables_are_complete(built):
    for path in (built / "data").glob("*.tex"):
        text = path.read_text()
        assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}"), path
        for part in (r"\toprule", r"\midrule", r"\bottomrule", r"\caption{"):
            assert part in text or "runs-" in path.name
        columns = len(re.search(r"\\begin{tabular}{([lr]+)}", text)[1])
        for line in text.splitlines():
            if line.endswith(r" \\") and "multicolumn" not in line:
                assert len(re.findall(r"(?<!\\)&", line)) == columns - 1, (path, line)
