"""An HTML page about results: a document that needs no other file.

In: a `Collection`, and an older collection to compare with. Out: a string of HTML.
The module decides the content of the page, and the templates in `templates/` the look.
"""

import base64
import collections
import contextlib
import io
import pathlib
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import PIL.Image

from benchmarks.reporting import binding, compare, tables
from benchmarks.reporting.charts import runs, sweeps
from benchmarks.results.collection import Collection, Group, Result
from benchmarks.results.other_results import InputResult
from benchmarks.results.train_result import TrainResult
from benchmarks.system.telemetry import OTHERS_LIMIT
from tfpipe.errors import count_of
from tfpipe.pages import frame, page
from tfpipe.pages.frame import Chart

_PICTURE_WIDTH = 720
_PICTURES_BYTES = 1_200_000  # of all pictures together, so that a page is under 3 MB
_MAX_SENTENCES = 4
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")
_FROM = {
    "warm": "the data came from memory, so this says nothing about storage",
    "mixed": "a part of the data came from memory",
    "unknown": "nothing proves where the data came from",
}


def make_page(
    collection: Collection, *, old: Collection | None = None, library: str
) -> str:
    """Returns the page as HTML."""
    charts = _charts(collection)
    return page.render(
        "benchmarks.reporting",
        "page.html.j2",
        headline=_headline(collection),
        verdict=_verdict(collection),
        gates=tables.gates(collection.groups),
        findings=_findings(collection, old),
        left_out=collection.left_out,
        runs=tables.runs(collection.groups),
        inputs=[_input(result) for result in collection.inputs],
        comparison=None if old is None else _comparison(old, collection),
        charts=charts,
        plots={
            f"{chart.name}-{index}": plot.spec
            for chart in charts
            for index, plot in enumerate(chart.plots)
        },
        chart_config=frame.CONFIG,
        details=list(_details(collection)),
        environment=tables.environment(collection),
        summary=_summary(collection),
        # The code of the library holds no text of a result.
        library=page.verbatim(library),
    )


def _charts(collection: Collection) -> list[Chart]:
    groups = collection.groups
    charts = [
        *runs.over_time(groups),
        sweeps.scaling_chart(groups, collection.sweeps),
        *sweeps.placements(collection.sweeps),
        runs.three_bars(groups),
        *sweeps.beside_publications(collection.sweeps),
        *sweeps.tiers(collection.sweeps),
        runs.storages(groups),
        runs.per_rank(groups),
        *runs.step_times(groups),
        runs.pipeline_costs(collection.inputs),
        *runs.storage_rates(collection.probes),
        *sweeps.predictions(collection.advice),
        *runs.learning(groups),
    ]
    return [chart for chart in charts if chart.rows]


def _summary(collection: Collection) -> str:
    measured = collection.results
    documents = (*measured, *collection.sweeps, *collection.advice)
    hosts = {host for result in measured for host in result.hosts}
    days = sorted({result.started[:10] for result in measured if result.started})
    parts = (
        count_of(len(documents), "result"),
        count_of(len(hosts), "host") if hosts else "",
        " to ".join(dict.fromkeys((*days[:1], *days[-1:]))),
    )
    return " · ".join(filter(None, parts))


def _headline(collection: Collection) -> tuple[str, str]:
    """Returns the answer of a page and its doubt; "" where there is none.

    A page of trainings and evaluations answers for the trainings. The fastest run that
    read data answers for several runs.
    """
    rated = [group for group in collection.groups if group.rates]
    if not rated:
        return "", ""
    groups = [group for group in rated if group.values.config.mode == "train"] or rated
    best = max(groups, key=lambda g: (g.median.kind != "synthetic", max(g.rates)))
    text = _answer(best)
    if len(groups) > 1:
        settings = count_of(len(groups), "setting")
        text = f"{text.removesuffix('.')}: the fastest of {settings}."
    return text, _doubt(best)


def _answer(group: Group) -> str:
    """Returns the rate of a group, and the share of the possible rate."""
    result, estimate = group.values, compare.rate(group)
    name = result.config.model or "unknown model"
    if result.config.mode != "train":
        name += f" {result.config.mode}"
    accuracy, count = group.mean(lambda r: r.accuracy), result.num_evaluated
    if result.config.mode == "eval" and accuracy is not None:
        images = "" if count is None else f" of {count:,.0f} validation images"
        return f"{name}: right on {frame.percent(accuracy)}{images}."
    if estimate is None:
        return f"{name}: the result has no images/s."
    rate = frame.amount(estimate.mean)
    text = f"{name}: {rate} images/s on {_accelerators(group)}"
    if ideal := result.ideal_examples_per_second:
        share = f"{estimate.mean / ideal:.1%}"
        text += f", {share} of {'its' if result.num_ranks == 1 else 'their'} rate"
    elif (busy := group.mean(lambda r: r.accelerator_utilization)) is not None:
        text += f", computing {busy:.1%} of the time"
    return f"{text}."


def _in_short(group: Group) -> str:
    """Returns the answer without the model, the binding resource, and the losses."""
    text, result = _answer(group).partition(": ")[2], group.values
    if not result.critical_path.shares:
        return text
    lost = f"Bound by {binding.of_run(result)}. {result.critical_path.text}"
    if network := result.network_text:
        lost += f" The network brought {network}."
    return f"{text} {lost}".strip()


def _accelerators(group: Group) -> str:
    hosts, ranks = len(group.values.environment.hosts), group.values.num_ranks or 1
    kind = "emulated accelerator" if group.median.kind == "emulated" else "rank"
    counted = [(ranks, kind), *([(hosts, "host")] if hosts > 1 else [])]
    words = dict(enumerate(_NUMBERS))
    return " on ".join(
        count_of(count, noun).replace(str(count), words.get(count, str(count)), 1)
        for count, noun in counted
    )


def _doubt(group: Group) -> str:
    """Returns the doubts about the figures of a group; "" without a doubt."""
    result, values, parts = group.median, group.values, []
    if any(repeat.faults for repeat in group.results):
        parts.append("the result was altered, so nothing of it is to be trusted")
    if result.kind == "synthetic":
        parts.append("no data was read")
    elif text := _FROM.get(result.cache):
        parts.append(text)
    if values.steady_state.reached is False:
        parts.append("the run was not steady")
    elif not values.steady_state.is_even:
        parts.append("the rate changed during the run")
    others = values.host_load.others_cpu_fraction or 0.0
    if others > OTHERS_LIMIT:
        parts.append(f"other processes took {others:.0%} of the cores")
    sentence = "; ".join(parts)
    return f"{sentence[0].upper()}{sentence[1:]}." if parts else ""


def _verdict(collection: Collection) -> tuple[str, str]:
    passed = [gate.passed for group in collection.groups for gate in group.gates]
    failed = passed.count(False)
    if not passed:
        return "none", "No gate was set for these runs."
    if len(passed) == 1:
        return "bad" if failed else "good", f"The gate is {'not ' * failed}met."
    if not failed:
        return "good", f"All {len(passed)} gates are met."
    verb = "is" if failed == 1 else "are"
    return "bad", f"{failed} of {len(passed)} gates {verb} not met."


def _findings(collection: Collection, old: Collection | None) -> list[tuple[str, str]]:
    groups, swept = collection.groups, [sweep.values for sweep in collection.sweeps]
    charts = sweeps.placements(collection.sweeps)
    said = [text for chart in charts for text in chart.sentences]
    if len(groups) <= _MAX_SENTENCES:  # a table says more about many groups
        said += [f"{group.label}: {_in_short(group)}" for group in groups]
    answers = [answer for sweep in swept for answer in sweep.find_ranks.answers]
    said += [f"{answer.model}: {answer.text}" for answer in answers if answer.text]
    doubts = [*_doubtful(groups), *_altered(collection)]
    doubts += _altered(old, "Compared with ") if old else []
    doubts += [text for advice in collection.advice for text in advice.values.doubts]
    failed = [failure for sweep in swept for failure in sweep.failed]
    doubts += [f"A run of the sweep failed. {f.run}: {f.error}" for f in failed]
    return list(dict.fromkeys([("", t) for t in said] + [("warn", t) for t in doubts]))


def _altered(collection: Collection, before: str = "") -> list[str]:
    return [
        f"{before}{entry.label}: Altered, not to be trusted. {' '.join(result.faults)}"
        for entry in collection.entries
        for result in entry.results
        if result.faults
    ]


def _doubtful(groups: Sequence[Group]) -> list[str]:
    """Returns the doubts about figures; many runs with a doubt share a sentence."""
    doubts: dict[str, dict[Group, list[str]]] = {}
    for group, result in ((g, result) for g in groups for result in g.results):
        for kind, text in _warnings(result.values):
            if text:
                doubts.setdefault(kind, {}).setdefault(group, []).append(text)
    texts = []
    for several in (list(own.items()) for own in doubts.values()):
        shown = several if len(several) <= _MAX_SENTENCES else several[:1]
        for group, (text, *more) in shown:
            total = len(group.results)
            repeats = f" ({1 + len(more)} of {total} repeats)" if total > 1 else ""
            texts.append(f"{group.label}: {text}{repeats}")
        if others := [f"{group.index}" for group, _ in several[len(shown) :]]:
            listed = f"{', '.join(others[:-1])} and {others[-1]}"
            texts[-1] += f" The runs {listed} are doubtful for the same reason."
    return texts


def _warnings(result: TrainResult) -> Iterator[tuple[str, str]]:
    if result.steady_state.reached is False:
        text = result.steady_state.text
        yield "steady", text or "The run did not reach its steady state."
    asked, measured = result.config.cache, result.cache.label
    if asked in ("cold", "warm") and measured and measured != asked:
        yield "cache", f"--cache={asked} was asked for, but the cache was {measured}."
    if result.cache.size_rule.met is False:
        yield "size", result.cache.size_rule.text
    if (result.host_load.others_cpu_fraction or 0) > OTHERS_LIMIT:
        yield "busy", result.host_load.text
    if (repeats := result.reproducibility).reproducible is False:
        yield "spread", f"Its repeats differ by {frame.percent(repeats.spread)}."
    if result.critical_path.slowest.cause:
        yield "slowest", result.critical_path.slowest.text
    if result.slow_link:
        yield "network", result.slow_link.text


def _comparison(old: Collection, new: Collection) -> dict[str, Any]:
    pairs, only_old, only_new = compare.pairs(old.groups, new.groups)
    changes = [change for pair in pairs for change in pair.changes.values()]
    counts = collections.Counter(change.verdict for change in changes)
    verdicts = ("worse", "better", "within the noise", "unknown")
    words = [f"{counts[verdict]} {verdict}" for verdict in verdicts if counts[verdict]]
    sentence = "No run is in both sets of results."
    if pairs:
        counted = count_of(len(changes), "figure"), count_of(len(pairs), "run")
        sentence = f"{' of '.join(counted)}: {', '.join(words)}."
    return {
        "sentence": sentence,
        "table": tables.changes(pairs),
        "only_old": [group.label for group in only_old],
        "only_new": [group.label for group in only_new],
        "left_out": old.left_out,
    }


def _input(result: Result[InputResult]) -> dict[str, Any]:
    sentences, values = [], result.values
    if values.examples_per_second is not None:
        cpu = frame.milliseconds(values.cpu_seconds_per_example)
        speed = f"{frame.amount(values.examples_per_second)} images/s"
        sentences.append(f"Alone it feeds {speed} at {cpu} ms of CPU time each.")
    parts = (values.profile.bottleneck, values.tune, values.headspace)
    sentences += [part.sentence for part in parts if part.sentence]
    return {"name": result.name, "sentences": sentences, "table": tables.trials(values)}


def _details(collection: Collection) -> Iterator[tuple[Group, str, str | None]]:
    """Yields results with command and picture; None stands for too large a picture."""
    budget = _PICTURES_BYTES
    for entry in collection.entries:
        if entry.kind == "sweep":
            continue
        picture = _jpeg(path) if (path := entry.median.picture) else ""
        is_too_large = len(picture) > budget
        budget -= 0 if is_too_large else len(picture)
        yield entry, command_line(entry.median), None if is_too_large else picture


def command_line(result: Result[Any]) -> str:
    """Returns the command that repeats a run, from the stored options."""
    values = result.values
    words = ["python", "-m", values.command]
    if (num_ranks := values.num_ranks or 1) > 1:
        swept = values.sweep.run if values.sweep else {}
        more = map(str, swept.get("horovodrun_arguments") or ())
        words = ["horovodrun", "-np", f"{num_ranks}", *more, *words]
    for key, value in result.options.items():
        # Zero is a value, although it equals False.
        if value is None or value is False or value in ("", []) or key == "report_dir":
            continue
        if isinstance(value, list | tuple):
            value = ",".join(map(str, value))
        if key == "place":  # benchmarks.storage takes the value without a name
            words.append(str(value))
            continue
        words.append(f"--{key}" if value is True else f"--{key}={value}")
    return shlex.join(words)


def _jpeg(path: pathlib.Path) -> str:
    """Returns a picture as JPEG in base64; "" for a file without a picture."""
    file = io.BytesIO()
    with contextlib.suppress(OSError, ValueError), PIL.Image.open(path) as opened:
        picture = opened.convert("RGB")
        picture.thumbnail((_PICTURE_WIDTH, _PICTURE_WIDTH))
        picture.save(file, "JPEG", quality=70, optimize=True)
    return base64.b64encode(file.getvalue()).decode()
