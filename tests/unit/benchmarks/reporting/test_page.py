"""benchmarks.reporting.page: one HTML page about results, looked at by a parser."""

import collections
import html.parser
import json
import pathlib
import sys
from typing import Any

import pytest

from benchmarks import report
from benchmarks.reporting import answers, output, page
from benchmarks.results import collection as results, tree
from benchmarks.results.collection import Collection, Result
from benchmarks.results.train_result import TrainResult
from tests.support.data import sample_results
from tests.support.processes import commands
from tfpipe.pages import frame

HOSTILE = "</script><script>alert('\"1\"')</script>&amp;{{ 7 * 7 }}"
SCRIPTS = ("مجموعة بيانات", "画像データ", "🦊 данные", "x" * 300)

# A result of schema version 1.
OLD: dict[str, Any] = {
    "command": "benchmarks.train",
    "schema_version": 1,
    "config": {"mode": "train", "model": "tiny", "batch_size": 4, "bars": False},
    "pipeline": ["TFRecordSource(...)", "Map(RandomCrop(image_size=32))"],
    "num_ranks": 2,
    "examples_per_second": 1234.5,
    "examples_per_second_per_rank": [600.0, 634.5],
    "stall_fraction": 0.048,
    "cache": {"state": "as_is", "text": "as_is: 0 bytes came from storage."},
    "gates": [{"gate": "stall<=3%", "passed": False, "text": "stall<=3% is not met."}],
    "environment": {"tensorflow": "2.17.1", "cpu": "A CPU", "gpus": []},
}


class Parsed(html.parser.HTMLParser):
    """The elements of a page in their order: tag, attributes, and the text inside."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str], list[str]]] = []
        self._open: list[int] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}, []))
        if tag not in ("meta", "link", "img"):
            self._open.append(len(self.elements) - 1)

    def handle_endtag(self, tag: str) -> None:
        assert self.elements[self._open.pop()][0] == tag

    def handle_data(self, data: str) -> None:
        for place in self._open:
            self.elements[place][2].append(data)

    def all(self, *tags: str, **wanted: str) -> list[tuple[str, dict[str, str], str]]:
        """Returns the elements of the tags, whose attributes have the wanted values."""
        return [
            (tag, attributes, "".join(texts).strip())
            for tag, attributes, texts in self.elements
            if tag in tags and wanted.items() <= attributes.items()
        ]

    def texts(self, *tags: str, **wanted: str) -> list[str]:
        """Returns the texts of these elements."""
        return [text for _, _, text in self.all(*tags, **wanted)]


def collect(**documents: Any) -> Collection:
    """Returns documents as if they had been read from a folder."""
    return results.collect([Result(name, found) for name, found in documents.items()])


def parse(**documents: Any) -> Parsed:
    """Returns the parsed page of the documents."""
    return Parsed(page.make_page(collect(**documents), library="/* library */"))


@pytest.fixture(scope="module")
def everything() -> Parsed:
    """The page of one result of every kind, compared with an older run."""
    old = collect(before=sample_results.train(rate=700, number=900))
    new = collect(**sample_results.every_kind())
    return Parsed(page.make_page(new, old=old, library="/* library */"))


def test_verdict_and_gates_come_before_everything_else(everything: Parsed) -> None:
    runs = sample_results.every_kind().values()
    passed = [gate["passed"] for run in runs for gate in run.get("gates", ())]
    missed = passed.count(False)
    gate = f"{missed} of {len(passed)} gates are not met."
    assert everything.texts("p", **{"class": "gate"}) == [gate]
    (headline,) = everything.texts("h1")
    assert headline.startswith("resnet50: 14,423 images/s on eight emulated")
    assert headline.endswith(": the fastest of 11 settings.")
    headings = everything.texts("h2")
    assert headings == [
        *("Findings", "Runs", "Comparison with the older results", "Charts"),
        *("The input alone", "To repeat each run", "Environment"),
    ]
    captions = everything.texts("caption")
    assert captions[:2] == ["Gates, runs that miss one first", "Runs"]


def test_page_of_trainings_and_evaluations_answers_for_the_trainings() -> None:
    training, evaluation = (sample_results.train(rate=rate) for rate in (700, 900))
    evaluation["config"]["mode"] = "eval"
    (headline,) = parse(training=training, evaluation=evaluation).texts("h1")

    assert headline.startswith("resnet50: 70")
    assert "fastest" not in headline
    (alone,) = parse(evaluation=evaluation).texts("h1")
    assert alone.startswith("resnet50 eval: 90")


def test_page_is_a_document_for_keyboards_and_screen_readers(
    everything: Parsed,
) -> None:
    ids = [a["id"] for _, a, _ in everything.elements if "id" in a]
    links = [a["href"] for _, a, _ in everything.all("a")]
    tables = everything.all("table")

    assert everything.all("html", lang="en")
    assert [len(everything.all(t)) for t in ("main", "header", "nav", "h1")] == [1] * 4
    assert everything.all("a")[0][1]["class"] == "skip"
    assert len(ids) == len(set(ids))
    assert {link.removeprefix("#") for link in links} <= set(ids)
    assert len(everything.all("caption")) == len(tables)
    assert all(a.get("scope") in ("row", "col") for _, a, _ in everything.all("th"))
    titles = tuple(f"{title}: " for title in everything.texts("h3"))
    labels = [a["aria-label"] for _, a, _ in everything.all("div", role="img")]
    assert all(label.startswith(titles) for label in labels)
    assert all("The numbers are in the table below." in label for label in labels)
    scrolling = [a for _, a, _ in everything.elements if a.get("class") == "scroll"]
    assert len(scrolling) == len(tables)
    assert all(a["tabindex"] == "0" and a["role"] == "region" for a in scrolling)


def test_page_asks_for_nothing_from_outside(everything: Parsed) -> None:
    policy = everything.all("meta", **{"http-equiv": "Content-Security-Policy"})
    addresses = [
        attributes[key]
        for _, attributes, _ in everything.elements
        for key in ("src", "href")
        if key in attributes
    ]

    assert "default-src 'none'" in policy[0][1]["content"]
    assert all(address.startswith(("data:", "#")) for address in addresses)


def test_each_chart_has_its_specification_and_its_numbers(everything: Parsed) -> None:
    (text,) = everything.texts("script", id="plots")
    drawn = {attributes["id"] for _, attributes, _ in everything.all("div", role="img")}

    assert set(json.loads(text)) == drawn
    assert [a["id"] for _, a, _ in everything.all("figure")] == [
        *("time-1", "time-2", "scaling", "bars", "storages", "ranks"),
        *("steps-1", "steps-2", "pipeline-costs", "storage-1-rates"),
        *("prediction-1", "learning-1"),
    ]
    assert everything.texts("summary").count("The numbers of Over time") == 1


def test_charts_without_data_are_left_out() -> None:
    found = parse(a=OLD)

    assert not found.all("figure")
    assert "Charts" not in found.texts("h2")
    assert not found.all("script", id="plots")


def test_results_of_the_first_schema_are_read() -> None:
    found = parse(a=OLD)

    assert found.texts("p", **{"class": "gate"}) == ["The gate is not met."]
    assert "stall<=3% is not met." in found.texts("small")
    assert found.texts("li") == ["1. tiny, 2 ranks: 1,234 images/s on two ranks."]
    cells = found.texts("td", **{"class": "num"})
    assert cells[:5] == ["2", "4", "1,234", "—", "4.8%"]


def test_every_key_may_be_missing() -> None:
    found = parse(
        a={"command": "benchmarks.train"},
        b={"command": "benchmarks.input"},
        c={"command": "benchmarks.storage"},
    )

    assert found.texts("h1") == ["No gate was set for these runs."]
    assert found.texts("li") == ["1. unknown model: the result has no images/s."]


@pytest.mark.parametrize("odd", [None, "text", 3, -1.5, True, [], [None], {"a": [1]}])
def test_a_key_may_hold_anything(odd: Any) -> None:
    full = sample_results.every_kind()["bars"]
    command = {"command": full["command"]}
    shallow = dict.fromkeys(full, odd) | command
    deep = {
        key: dict.fromkeys(value, odd) if isinstance(value, dict) else [odd]
        for key, value in full.items()
    } | command
    profile = sample_results.profile()
    profile = dict.fromkeys(profile, odd) | {"command": profile["command"]}

    storage = sample_results.storage()
    probe = dict.fromkeys(storage, odd) | {"command": storage["command"]}
    rows = [dict.fromkeys(row, odd) for row in storage["measurements"]]

    found = parse(
        a=shallow, b=deep, c=profile, d=probe, e={**storage, "measurements": rows}
    )

    assert found.texts("h2")[-1]


@pytest.mark.parametrize("text", [HOSTILE, *SCRIPTS])
def test_any_text_stays_a_text(text: str) -> None:
    document = sample_results.train(model=text, data=f"/data/{text}", num_ranks=2)
    document["pipeline"] = [text]
    document["critical_path"]["slowest"]["text"] = document["cache"]["text"] = text
    document["critical_path"]["slowest"]["cause"] = "input"
    document["gates"].append({"gate": text, "passed": False, "text": text})
    document["environment"] |= {text: text, "hosts": [{"name": text}]}
    document["environment"]["data"] = {"name": text}
    profile = sample_results.profile()
    profile["profile"]["stages"][0]["name"] = text

    found = parse(**{text: document, "input": profile})

    # The scripts of data, the library, and the page's own script.
    scripts = [attributes.get("id") for _, attributes, _ in found.all("script")]
    assert scripts == ["plots", "chart-config", None, None]
    assert text in found.texts("pre")
    assert found.texts("li")[1].endswith(text)
    assert "49" not in "".join(found.texts("pre"))
    (plots,) = found.texts("script", id="plots")
    names = collections.Counter(
        row["line"] for row in json.loads(plots)["time-1-0"]["data"]["values"]
    )
    assert next(iter(names)).startswith(f"1. {results.short_name(text)}, 2 ranks")


def test_command_line_repeats_a_run() -> None:
    document = sample_results.train(
        num_ranks=2,
        kind="emulated",
        config={"data_dir": "/a b", "require": ["au>=0.9", "stall<=3%"], "xla": True},
    )
    document["sweep"] = {"run": {"horovodrun_arguments": ["-H", "a:1,b:1"]}}

    assert page.command_line(Result("a", document)) == (
        "horovodrun -np 2 -H a:1,b:1 python -m benchmarks.train '--data_dir=/a b' "
        "--model=resnet50 --mode=train --batch_size=128 --image_size=224 "
        "--num_steps=500 --seed=0 --precision=float16 --emulate=h100 --cache=warm "
        "'--require=au>=0.9,stall<=3%' --xla"
    )


def test_place_of_the_probe_has_no_name_on_the_command_line() -> None:
    assert page.command_line(Result("a", sample_results.storage())) == (
        "python -m benchmarks.storage /mnt/nvme/imagenet --seconds=3.0 "
        "--max_parallel=16"
    )


def test_pictures_are_small_jpegs_within_the_page(tmp_path: pathlib.Path) -> None:
    sample_results.write(tmp_path, {"bars": OLD, "other": OLD | {"num_ranks": 1}})
    (tmp_path / "other.png").write_bytes(b"no picture")

    text = page.make_page(results.read([tmp_path]), library="")

    (picture,) = Parsed(text).all("img")
    assert picture[1]["src"].startswith("data:image/jpeg;base64,/9j/")
    assert len(picture[1]["src"]) < 10_000


def test_differences_between_environments_are_marked() -> None:
    other = OLD | {"environment": OLD["environment"] | {"cpu": "Another CPU"}}

    found = parse(a=OLD, b=other)

    assert found.texts("span", **{"class": "differs"}) == ["A CPU", "Another CPU"]
    assert found.texts("th", scope="col")[-2:] == ["Run 1", "Run 2"]


def test_doubtful_figures_are_said() -> None:
    document = sample_results.train(cache="cold", more={"gates": []})
    document["cache"] |= {
        "label": "warm",
        "size_rule": {"met": False, "text": "Small."},
    }
    document["steady_state"] = {"reached": False, "text": "Too short."}
    document["host_load"] = {"others_cpu_fraction": 0.3, "text": "Others took 30 %."}

    notes = parse(a=document).texts("li", **{"class": "warn"})

    assert [note.partition("warm: ")[2] for note in notes if "warm: " in note] or notes
    assert [note.rpartition("rank: ")[2] for note in notes] == [
        "Too short.",
        "--cache=cold was asked for, but the cache was warm.",
        "Small.",
        "Others took 30 %.",
    ]


def test_repeats_with_the_same_doubt_say_it_once() -> None:
    documents = {}
    for name in ("a", "b"):
        documents[name] = sample_results.train()
        documents[name]["steady_state"] = {"reached": False, "text": f"Short {name}."}
        documents[name]["gates"] = [
            {
                "gate": "au>=0.5",
                "passed": False,
                "text": "au>=50% is not met: got 90%, not in a steady state: short.",
                "measured": 0.9,
                "limit": 0.5,
                "margin": 0.4,
            }
        ]

    found = parse(**documents)

    (doubt,) = [text for text in found.texts("li") if "Short" in text]
    assert doubt.endswith("Short a. (2 of 2 repeats)")
    notes = found.texts("small")
    assert "0.9: limit met, but not in a steady state, in 2 of 2 repeats" in notes


def test_many_runs_with_the_same_doubt_share_a_sentence() -> None:
    documents = {f"run{n}": sample_results.train(num_ranks=n) for n in range(1, 7)}
    for name, document in list(documents.items())[:5]:
        text = f"Others, {name}."
        document["host_load"] = {"others_cpu_fraction": 0.3, "text": text}
    few = dict(list(documents.items())[:2])

    (doubt,) = parse(**documents).texts("li", **{"class": "warn"})
    assert doubt.endswith(
        "Others, run1. The runs 2, 3, 4 and 5 are doubtful for the same reason."
    )
    assert len(parse(**few).texts("li", **{"class": "warn"})) == 2


def test_command_writes_the_page(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame, "library", lambda: "/* library */")
    (tmp_path / "a.json").write_text(json.dumps(OLD))
    (tmp_path / "index.json").write_text("{}")
    (tmp_path / "broken.json").write_text("{")
    path = tmp_path / "report.html"

    done = commands.answer(report.COMMANDS, f"--results={tmp_path}", f"--output={path}")

    assert done.returncode == 0
    left_out = Parsed(path.read_text()).texts("li")[-2:]
    assert "broken.json is left out: it cannot be read as JSON" in left_out[0]
    assert "index.json is left out: it is no result" in left_out[1]
    assert done.stderr.count("Note: ") == 2
    assert done.lines[:-1] == [str(path), "The page shows 1 result."]
    assert done.result == {
        "command": "benchmarks.report",
        "schema_version": 1,
        "num_results": 1,
        "num_left_out": 2,
        "output": str(path),
    }


@pytest.mark.parametrize("package", ["jinja2", "vl_convert"])
def test_a_package_that_is_missing_is_named_with_the_remedy(
    package: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "a.json").write_text(json.dumps(OLD))
    if package == "jinja2":
        monkeypatch.setattr(frame, "library", lambda: "")
    for name in list(sys.modules):
        if name.partition(".")[0] == package:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)  # importing it fails

    words = f"--results={tmp_path}", f"--output={tmp_path / 'report.html'}"
    done = commands.answer(report.COMMANDS, *words)

    (line,) = done.stderr.splitlines()
    assert done.returncode == 1
    assert package in line
    assert "pip install 'tfpipe[report]'" in line


def test_a_folder_without_results_is_one_line(tmp_path: pathlib.Path) -> None:
    done = commands.answer(report.COMMANDS, f"--results={tmp_path}", "--output=none")

    assert done.returncode == 1
    assert done.stderr.startswith("Error: --results=")


def test_what_was_altered_is_shown_as_altered(tmp_path: pathlib.Path) -> None:
    result = output.sealed(sample_results.train(stall=0.2))
    assert not result["gates"][0]["passed"]
    result["gates"][0]["passed"] = True  # a 90 % gate at 78 % of the rate
    (tmp_path / "run.json").write_text(json.dumps(result))

    text = page.make_page(results.read([tmp_path]), library="")

    assert (
        "Altered, not to be trusted. The file was altered after it was written" in text
    )
    assert "2 of 2 gates are not met" in text
    assert "The file says otherwise of a gate. au&gt;=90% is not met" in text


def test_a_page_says_what_binds_and_where_the_time_went() -> None:
    shares = {"compute": 0.04, "input": 0.01, "communication": 0.94, "late": 0.01}
    hosts = [{"name": "a"}, {"name": "b"}]
    run = sample_results.train(num_ranks=2, rate=83.0)
    run["environment"] = {**run["environment"], "hosts": hosts}
    run["critical_path"] = {"shares": shares, "text": "Communication took 94.0%."}
    received = {"network_received_megabytes_per_second_per_host": [23.2, None]}
    run |= {"network_utilization": 0.019, "telemetry": received}

    found = parse(run=run)
    bound = answers.train(tree.read(TrainResult, run), None)[1]

    assert "on two ranks on two hosts" in found.texts("h1")[0]
    brought = "he network brought 23.2 + ? MB/s, 1.9% of the busiest link"
    assert (
        f"Bound by communication. Communication took 94.0%. T{brought}."
        in found.texts("li")[0]
    )
    assert bound.endswith(f"; t{brought}")


def test_the_headline_is_the_answer_and_its_doubt() -> None:
    run = sample_results.train(kind="emulated", rate=989.0, cache="warm")
    run["emulated_seconds_per_step"] = run["config"]["batch_size"] / 1067.0
    run["host_load"] = {"others_cpu_fraction": 0.65}

    for gates in ([], run["gates"]):
        found = parse(run=run | {"gates": gates, "examples_per_second": 989.0})

        assert found.texts("h1") == [
            "resnet50: 989 images/s on one emulated accelerator, 92.7% of its rate."
        ]
        assert found.texts("p", **{"class": "doubt"}) == [
            "The data came from memory, so this says nothing about storage; other "
            "processes took 65% of the cores."
        ]
