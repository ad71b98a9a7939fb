from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from methods.errors import UserError
from tasks import chain, datasets, fetch
from tasks.datasets import Hub, Problem, SetEntry

ROWS = [
    {"problem": "What is  $1+1$?", "answer": "2"},
    {"problem": "Name a prime\nbelow 3.", "answer": "02"},
    {"problem": "Which integer is 27.0?", "answer": "27.0"},
]
PROBLEMS = [Problem(str(index), row["problem"], row["answer"]) for index, row in enumerate(ROWS)]
DIGEST = datasets.digest(PROBLEMS, integers=True)


def entry(**changes) -> SetEntry:
    values = {
        "name": "toy",
        "title": "Toy",
        "role": "evaluation",
        "hub": Hub("owner/toy", "default", "test", {"problem": "question", "answer": "final"}),
        "rows": 3,
        "digest": DIGEST,
        "pinned": "by digest",
        "checked": "by hand",
        "licence": "none",
        "integers": True,
        **changes,
    }
    return SetEntry(**values)


@pytest.fixture
def toy(monkeypatch):
    def use(**changes) -> SetEntry:
        described = entry(**changes)
        monkeypatch.setattr(datasets, "manifest", lambda: {"toy": described})
        return described

    use()
    return use


def write(path: Path, rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# The manifest


def test_manifest_describes_the_six_another_and_three_training_sets():
    entries = datasets.manifest()
    held_out = tuple(name for name, one in entries.items() if one.role == "evaluation")
    assert held_out == (*datasets.BENCHMARKS, "gsm8k_test")
    assert [name for name, one in entries.items() if one.role == "train"] == ["dapo_math_17k", "gsm8k", "math_train"]
    assert [entries[name].rows for name in datasets.BENCHMARKS] == [30, 30, 40, 674, 272, 500]
    for one in entries.values():
        assert one.pinned
        assert one.checked
        assert one.licence
        assert one.digest is None or len(one.digest) == 64


@pytest.mark.skipif(not os.environ.get("REUSE_BENCH_DATA"), reason="REUSE_BENCH_DATA names no data folder")
@pytest.mark.parametrize("name", datasets.BENCHMARKS)
def test_the_copy_at_hand_is_the_manifests(name):
    found = datasets.load(name)
    assert found.digest == datasets.entry(name).digest
    assert len(found.problems) == datasets.entry(name).rows
    assert not found.deviates
    ids = [one.id for one in found.problems]
    assert ids == sorted(ids)
    assert datasets.entry(name).unanswerable <= set(ids)
    assert not datasets.entry(name).omit & set(ids)


@pytest.mark.skipif(not os.environ.get("REUSE_BENCH_DATA"), reason="REUSE_BENCH_DATA names no data folder")
def test_unanswerable_problems_are_those_that_the_copy_marks():
    found = datasets.load("olympiadbench").problems
    marked = {one.id for one in found if one.extra["broken_relay"]}
    assert marked == datasets.entry("olympiadbench").unanswerable
    named = {one.extra["source_id"] for one in found if one.id in marked}
    assert {2655, 2725, 2967, 3095} < {int(number) for number in named}  # docs/data.md names them
    (whole,) = [one for one in found if int(one.extra["source_id"]) == 2720]  # its answer is the same for every number
    assert whole.id not in marked


# Digests and ids


@given(st.permutations(ROWS), st.sampled_from([" ", "\n", "\t", "  "]))
def test_digest_does_not_depend_on_order_or_white_space(rows, space):
    changed = [Problem("x", row["problem"].replace(" ", space), f" {row['answer']}{space}") for row in rows]
    assert datasets.digest(changed, integers=True) == DIGEST


@pytest.mark.parametrize(
    ("written", "same"),
    [("025", "25"), ("27.0", "27"), ("336^\\circ", "336"), ("$336^{\\circ}$", "336"), ("-07", "-7"), ("0", "000")],
)
def test_an_integer_is_the_same_however_it_is_written(written, same):
    assert datasets.normalise_answer(written, integers=True) == datasets.normalise_answer(same, integers=True)
    if written.strip("$") != same:
        assert datasets.normalise_answer(written) != datasets.normalise_answer(same)


@given(st.integers(0, 2), st.sampled_from(["problem", "answer"]), st.text("abc123", min_size=1, max_size=5))
def test_digest_changes_with_the_content(index, field, text):
    changed = [dict(row) for row in ROWS]
    changed[index][field] = changed[index][field] + "x" + text
    assert datasets.digest([Problem("x", **row) for row in changed], integers=True) != DIGEST


def test_a_split_problem_is_not_the_same_as_two(tmp_path):
    joined = [Problem("x", "a", "b c"), Problem("y", "d", "e")]
    other = [Problem("x", "a", "b"), Problem("y", "c d", "e")]
    assert datasets.digest(joined) != datasets.digest(other)


@given(rows=st.permutations(ROWS))
def test_ids_and_order_do_not_depend_on_the_copy(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("copy") / "toy.jsonl"
    found = datasets.read_problems(write(path, [{**row, "id": str(i)} for i, row in enumerate(rows)]), "toy")
    expected = datasets.read_problems(write(path, ROWS), "toy")
    assert [(one.id, one.problem, one.answer) for one in found] == [
        (one.id, one.problem, one.answer) for one in expected
    ]


def test_a_problem_that_occurs_twice_keeps_two_ids(tmp_path):
    rows = [{"problem": "same", "answer": "1"}, {"problem": " same ", "answer": "2"}]
    first, second = datasets.read_problems(write(tmp_path / "x.jsonl", rows), "x")
    assert second.id == f"{first.id}-2"


# Loading


def test_missing_set_is_one_sentence_with_two_ways(toy, tmp_path):
    with pytest.raises(UserError) as caught:
        datasets.load("toy", tmp_path)
    said = str(caught.value)
    assert "data set toy is not in" in said
    assert "data fetch toy" in said
    assert "data import FILE --as toy" in said
    assert "\n" not in said


def test_changed_content_is_refused_by_name(toy, tmp_path):
    rows = [*ROWS[:2], {**ROWS[2], "answer": "28"}]
    write(tmp_path / "toy.jsonl", rows)
    with pytest.raises(UserError, match=rf"digest \w{{12}} is not {DIGEST[:12]}, that of toy"):
        datasets.load("toy", tmp_path)
    write(tmp_path / "toy.jsonl", ROWS[:2])
    with pytest.raises(UserError, match="2 problems instead of 3"):
        datasets.load("toy", tmp_path)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2 is no JSON"),
        ("[1]", "line 2 is no JSON object"),
        ('{"problem": "x"}', "line 2: field answer is missing"),
        ('{"problem": 3, "answer": "x"}', "line 2: field problem"),
        ('{"problem": "x", "answer": [1]}', "line 2: field answer"),
        ('{"problem": "\\ud800", "answer": "1"}', "line 2: field problem holds half a character"),
    ],
)
def test_a_damaged_line_is_named(toy, tmp_path, line, said):
    (tmp_path / "toy.jsonl").write_text(json.dumps(ROWS[0]) + "\n" + line + "\n")
    with pytest.raises(UserError, match=said) as caught:
        datasets.load("toy", tmp_path)
    assert "toy.jsonl" in str(caught.value)


def test_unknown_names_say_what_is_known(toy):
    with pytest.raises(UserError, match="unknown data set 'nothing': known are toy"):
        datasets.load("nothing")
    with pytest.raises(UserError, match="unknown task 'nothing': known are toy"):
        datasets.evaluation_problems("nothing")


def test_the_data_folder_is_the_given_one_then_the_variable_then_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv(datasets.DATA_VARIABLE, str(tmp_path / "named"))
    monkeypatch.setenv(datasets.CACHE_VARIABLE, str(tmp_path / "cache"))
    assert datasets.data_dir(tmp_path / "given") == tmp_path / "given"
    assert datasets.data_dir() == tmp_path / "named"
    monkeypatch.delenv(datasets.DATA_VARIABLE)
    assert datasets.data_dir() == tmp_path / "cache" / "data"


def test_a_user_without_a_home_is_told_to_name_a_cache(monkeypatch):
    for name in ("REUSE_BENCH_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    with pytest.raises(UserError, match="name a folder in REUSE_BENCH_CACHE"):
        datasets.cache_dir()


def test_generated_tasks_need_no_data():
    for task in chain.TINY_TASKS:
        assert len(datasets.evaluation_problems(task).problems) == chain.HELD_OUT_PROBLEMS


def test_a_part_of_a_set_is_its_first_problems_by_id_and_says_so(toy, monkeypatch, tmp_path):
    monkeypatch.setattr(datasets, "subsets", lambda: {"toy_first2": datasets.Subset("toy", 2)})
    whole = datasets.load("toy", write(tmp_path / "toy.jsonl", ROWS).parent)
    part = datasets.evaluation_problems("toy_first2", tmp_path)
    assert part.problems == whole.problems[:2]
    assert part.name == "toy_first2"
    assert part.source.endswith(": the first 2 of 3 problems by id")
    assert part.digest == datasets.digest(whole.problems[:2], integers=True) != whole.digest
    write(tmp_path / "toy.jsonl", ROWS[::-1])
    assert datasets.evaluation_problems("toy_first2", tmp_path) == part
    with pytest.raises(UserError, match="that of toy, 2 problems instead of 3"):
        datasets.evaluation_problems("toy_first2", write(tmp_path / "toy.jsonl", ROWS[:2]).parent)


def test_parts_name_sets_and_their_sizes():
    for name, part in datasets.subsets().items():
        assert name == f"{part.of}_first{part.problems}"
        assert datasets.entry(part.of).role == "evaluation"
        assert part.problems < (datasets.entry(part.of).rows or 0)


def test_without_a_digest_the_count_decides(toy, tmp_path):
    toy(digest=None)
    source = write(tmp_path / "copy.jsonl", ROWS[:2])
    with pytest.raises(UserError, match="2 problems instead of 3"):
        fetch.import_file(source, "toy", tmp_path)
    with pytest.raises(UserError, match="2 problems instead of 3"):
        datasets.load("toy", write(tmp_path / "toy.jsonl", ROWS[:2]).parent)
    accept = datasets.digest(PROBLEMS[:2], integers=True)
    fetch.import_file(source, "toy", tmp_path, accept=accept)
    assert datasets.load("toy", tmp_path).deviates
    assert fetch.verify("toy", tmp_path).state == "accepted"


def test_training_problems(toy, tmp_path):
    with pytest.raises(UserError, match="toy is held out"):
        datasets.training_problems("toy", tmp_path)
    toy(role="train")
    write(tmp_path / "toy.jsonl", ROWS)
    found = datasets.training_problems("toy", tmp_path)
    assert {one["answer"] for one in found} == {row["answer"] for row in ROWS}
    assert all(set(one) == {"id", "problem", "answer"} for one in found)


# Import


def test_import_takes_the_hubs_fields_and_ours(toy, tmp_path):
    foreign = [{"question": row["problem"], "final": row["answer"], "level": 1} for row in ROWS]
    for name, rows in (("ours.jsonl", ROWS), ("theirs.jsonl", foreign)):
        folder = tmp_path / name.partition(".")[0]
        fetch.import_file(write(tmp_path / name, rows), "toy", folder)
        assert datasets.load("toy", folder).digest == DIGEST
    parquet = tmp_path / "theirs.parquet"
    pq.write_table(pa.Table.from_pylist(foreign), parquet)
    fetch.import_file(parquet, "toy", tmp_path / "parquet")
    assert datasets.load("toy", tmp_path / "parquet").problems[0].extra == {"level": 1}


@pytest.mark.parametrize(
    ("rule", "written", "read"),
    [
        ("after_hashes", "48/2 = 24\n#### 1,072", "1072"),
        ("last_box", r"Either \boxed{1} or \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        ("list", ["1", "2"], "1, 2"),
        ("plain", 27.0, "27.0"),
    ],
)
def test_answers_are_read_by_the_sets_rule(toy, tmp_path, rule, written, read):
    toy(digest=None, rows=None, integers=False, hub=Hub("o/t", "c", "s", {"problem": "q", "answer": "a"}, rule))
    source = tmp_path / "copy.parquet"
    pq.write_table(pa.Table.from_pylist([{"q": "why", "a": written}]), source)
    fetch.import_file(source, "toy", tmp_path / "data")
    assert datasets.load("toy", tmp_path / "data").problems[0].answer == read


def test_import_refuses_another_content_unless_it_is_accepted(toy, tmp_path):
    changed = [*ROWS[:2], {**ROWS[2], "answer": "28"}]
    source, folder = write(tmp_path / "copy.jsonl", changed), tmp_path / "data"
    with pytest.raises(UserError, match="--accept") as caught:
        fetch.import_file(source, "toy", folder)
    assert not list(folder.iterdir())
    digest = str(caught.value).rpartition("--accept ")[2].strip("`")
    with pytest.raises(UserError, match="--accept"):
        fetch.import_file(source, "toy", folder, accept=digest[:6])
    fetch.import_file(source, "toy", folder, accept=digest)
    assert datasets.load("toy", folder).deviates
    assert fetch.verify("toy", folder).state == "accepted"
    fetch.import_file(write(source, ROWS), "toy", folder)
    assert not datasets.load("toy", folder).deviates


def test_a_set_without_a_digest_is_pinned_by_its_first_copy(toy, tmp_path):
    toy(digest=None, rows=None)
    path = fetch.import_file(write(tmp_path / "copy.jsonl", ROWS), "toy", tmp_path / "data")
    assert fetch.verify("toy", tmp_path / "data").state == "pinned"
    write(path, ROWS[:2])
    status = fetch.verify("toy", tmp_path / "data")
    assert status.state == "refused"
    assert "that of toy" in status.message


def test_import_of_a_missing_field_names_it(toy, tmp_path):
    with pytest.raises(UserError, match=r"row 0: field question is missing; fields there are text"):
        fetch.import_file(write(tmp_path / "copy.jsonl", [{"text": "x"}]), "toy", tmp_path / "data")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"problem": 5, "answer": "1"}, r"copy\.\w+: row 0: field problem is no text"),
        ({"problem": b"5", "answer": "1"}, r"copy\.\w+: row 0: field problem is no text"),
        ({"problem": "5", "answer": {"x": 1}}, r"copy\.\w+: row 0: field answer is no text"),
        ({"problem": "half of a pair: \ud800", "answer": "1"}, r"copy\.\w+: row 0: field problem is no text"),
        ({"problem": "5", "answer": None}, r"copy\.\w+: holds no problem with an answer"),
        (None, r"copy\.\w+: holds no problem with an answer"),
    ],
)
def test_import_of_a_row_that_is_no_problem_names_the_file_given(toy, tmp_path, row, said):
    source = tmp_path / "copy.jsonl"
    if row and isinstance(row["problem"], bytes):
        source = source.with_suffix(".parquet")
        pq.write_table(pa.Table.from_pylist([row]), source)
    else:
        write(source, [row] if row else [])
    with pytest.raises(UserError, match=said):
        fetch.import_file(source, "toy", tmp_path / "data")
    assert not list((tmp_path / "data").iterdir())


def test_an_answer_of_more_digits_than_python_reads_is_another_answer(toy, tmp_path):
    with pytest.raises(UserError, match="that of toy"):
        fetch.import_file(write(tmp_path / "copy.jsonl", [{"problem": "x", "answer": "1" * 5000}]), "toy", tmp_path)


# Downloads, from a server of our own


class Hubby(BaseHTTPRequestHandler):
    """Serves files with ranges; breaks the connection where it is told to, or stops there until it may go on."""

    def do_GET(self):
        server = self.server
        server.asked.append((self.path, self.headers.get("Range")))
        body = server.files.get(self.path)
        if body is None:
            self.send_error(404)
            return
        if self.path.startswith("/moved"):
            self.send_response(302)
            self.send_header("Location", body.decode())
            self.end_headers()
            return
        start = 0
        asked = self.headers.get("Range")
        if asked and self.headers.get("If-Range") == server.etag:
            start = int(asked.removeprefix("bytes=").rstrip("-"))
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body) - start))
        self.send_header("ETag", server.etag)
        self.end_headers()
        if server.hold_at:
            self.wfile.write(body[start : server.hold_at.pop()])
            self.wfile.flush()
            server.held.set()
            server.go_on.wait(60)
            return
        stop = server.break_at.pop(0) if server.break_at else None
        self.wfile.write(body[start:stop])
        if stop is not None:
            self.wfile.flush()
            self.connection.close()

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(monkeypatch, toy, tmp_path):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hubby)
    server.daemon_threads = True
    server.asked, server.break_at, server.hold_at, server.etag = [], [], [], '"one"'
    server.held, server.go_on = threading.Event(), threading.Event()
    base = "/datasets/owner/toy/resolve/refs%2Fconvert%2Fparquet/default/test"
    server.files = {}
    for number, rows in enumerate((ROWS[:2], ROWS[2:])):
        path = tmp_path / f"{number}.parquet"
        table = pa.Table.from_pylist([{"question": row["problem"], "final": row["answer"]} for row in rows])
        pq.write_table(table.replace_schema_metadata({"pad": "x" * 50_000}), path)
        server.files[f"{base}/{number:04d}.parquet"] = path.read_bytes()
    server.files["/api/datasets/owner/toy"] = b'{"sha": "c0ffee"}'
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}/")
    yield server
    server.shutdown()
    server.server_close()


def test_fetch_downloads_every_file_and_verifies(hub, tmp_path):
    seen: list[tuple[str, int, int | None]] = []
    path = fetch.fetch("toy", tmp_path / "data", progress=lambda *report: seen.append(report))
    found = datasets.load("toy", tmp_path / "data")
    assert found.digest == DIGEST
    assert found.source == "owner/toy"
    assert json.loads(datasets.describe_file(path).read_text())["revision"] == "c0ffee"
    sizes = [len(body) for path, body in hub.files.items() if path.endswith(".parquet")]
    assert [report for report in seen if report[1] == report[2]] == [("toy", size, size) for size in sizes]
    assert not list((tmp_path / "data" / ".partial").iterdir())
    asked = len(hub.asked)
    fetch.fetch("toy", tmp_path / "data")
    assert len(hub.asked) == asked, "a set that is there was downloaded again"


def test_a_broken_download_goes_on_where_it_stopped(hub, tmp_path):
    hub.break_at = [20_000]
    with pytest.raises(UserError, match=r"data set toy could not be fetched .*run the command again"):
        fetch.fetch("toy", tmp_path / "data")
    assert not list((tmp_path / "data").glob("toy*"))
    fetch.fetch("toy", tmp_path / "data")
    assert [asked for _, asked in hub.asked][:2] == [None, "bytes=20000-"]
    assert datasets.load("toy", tmp_path / "data").digest == DIGEST


@pytest.mark.skipif(not os.environ.get("REUSE_BENCH_DATA"), reason="REUSE_BENCH_DATA names no data folder")
def test_an_interrupted_command_goes_on_where_it_stopped(hub, tmp_path):
    rows = [json.loads(line) for line in (Path(os.environ["REUSE_BENCH_DATA"]) / "aime25.jsonl").open()]
    table = pa.Table.from_pylist([{"problem": row["problem"], "answer": row["answer"]} for row in rows])
    path = tmp_path / "aime25.parquet"
    pq.write_table(table.replace_schema_metadata({"pad": "x" * 300_000}), path)
    hub.files["/datasets/math-ai/aime25/resolve/refs%2Fconvert%2Fparquet/default/test/0000.parquet"] = path.read_bytes()
    hub.hold_at = [150_000]
    command = [
        sys.executable,
        "-m",
        "reuse_bench.main",
        "data",
        "fetch",
        "aime25",
        "--data-dir",
        str(tmp_path / "data"),
    ]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    assert hub.held.wait(300)
    part = tmp_path / "data" / ".partial" / "aime25-0000.parquet"
    while not part.exists() or not (have := part.stat().st_size):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(300) == 3
    hub.go_on.set()
    assert not list((tmp_path / "data").glob("aime25*"))
    again = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert again.stdout.startswith("aime25: verified, 30 problems"), again.stderr
    (resumed,) = [asked for _, asked in hub.asked if asked]
    assert int(resumed.removeprefix("bytes=").rstrip("-")) >= have


def test_a_redirect_is_followed_with_the_range(hub, monkeypatch, tmp_path):
    # The hub sends downloads on to other hosts.
    for path in [path for path in hub.files if path.endswith(".parquet")]:
        hub.files["/moved" + path] = f"http://127.0.0.1:{hub.server_address[1]}{path}".encode()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{hub.server_address[1]}/moved")
    hub.break_at = [20_000]
    with pytest.raises(UserError):
        fetch.fetch("toy", tmp_path / "data")
    path = fetch.fetch("toy", tmp_path / "data")
    assert [asked for path, asked in hub.asked if not path.startswith("/moved")][:2] == [None, "bytes=20000-"]
    assert datasets.load("toy", tmp_path / "data").digest == DIGEST
    assert json.loads(datasets.describe_file(path).read_text())["revision"] is None


def test_a_file_that_changed_meanwhile_is_begun_anew(hub, tmp_path):
    hub.break_at = [20_000]
    with pytest.raises(UserError):
        fetch.fetch("toy", tmp_path / "data")
    hub.etag = '"two"'
    first = next(iter(hub.files))
    part = tmp_path / "data" / ".partial" / "toy-0000.parquet"
    part.write_bytes(b"#" * 20_000)  # what was there belongs to another file
    fetch.fetch("toy", tmp_path / "data")
    assert hub.asked[1] == (first, "bytes=20000-")
    assert datasets.load("toy", tmp_path / "data").digest == DIGEST


def test_changed_content_on_the_hub_is_refused_and_leaves_nothing(hub, toy, tmp_path):
    toy(digest="0" * 64)
    with pytest.raises(UserError, match="that of toy"):
        fetch.fetch("toy", tmp_path / "data")
    assert [path.name for path in (tmp_path / "data").rglob("*")] == [".partial"]


def test_no_network_is_one_sentence(toy, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UserError, match=r"data set toy could not be fetched.*data import FILE --as toy") as caught:
        fetch.fetch("toy", tmp_path)
    assert "\n" not in str(caught.value)


def test_an_unknown_repository_is_said(hub, toy, tmp_path):
    toy(hub=Hub("owner/other", "default", "test", {"problem": "q", "answer": "a"}))
    with pytest.raises(UserError, match="HTTP 404"):
        fetch.fetch("toy", tmp_path)


@pytest.mark.parametrize("content", [bytes(range(256)), b"[" * 100_000 + b"\n"])
def test_a_copy_that_is_no_text_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "copy.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"copy\.jsonl: line 1"):
        fetch.import_file(path, "aime24", tmp_path / "data")
    with pytest.raises(UserError, match=r"copy\.jsonl: line 1"):
        datasets.read_problems(path, "copy")
    assert not list(tmp_path.glob("data/*.jsonl"))
