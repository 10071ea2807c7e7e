"""The answer about a run: as data for JSON, a page and other answers.

In: facts of flags and results. Out: a dict with the prediction for 1 to N accelerators,
the payoffs of remedies, sizes and times; and the same as lines for people.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import tfpipe
from benchmarks.models import catalog
from benchmarks.models.accelerators import Accelerator
from benchmarks.planning import ceilings, facts, hardware, payoffs, run_costs
from benchmarks.planning.ceilings import Prediction
from benchmarks.planning.facts import Fact, Facts
from benchmarks.planning.scenario import Scenario
from tfpipe.errors import count_of

_BINDING = {
    "accelerator": "the accelerators",
    "cores": "the cores of the hosts",
    "storage": "the storage",
    "network": "the network of the hosts",
    "requests": "the requests of the storage",
}
_DOING = {"train": "training", "infer": "running"}


def answer(
    start: Facts, accelerators: Mapping[str, Accelerator], mode: str
) -> dict[str, Any]:
    """Returns everything that facts say about a run.

    Args:
        start: Facts of flags and results; tables have the others.
        accelerators: Accelerators by name.
        mode: "train" or "infer".

    Returns:
        A dict that JSON can hold. A ceiling without a limit is None.

    Raises:
        ValueError: If a name is unknown, or the accelerators do not fill the hosts.
    """
    whole = hardware.complete(start, accelerators, mode)
    scenario = facts.scenario(whole)
    predicted = ceilings.predict(scenario)
    counts = _counts(scenario.num_accelerators, scenario.host.num_accelerators)
    times = run_costs.epochs(scenario)
    sizes = run_costs.sizing(
        scenario, facts.figure(whole, "ram"), facts.figure(whole, "storage_cache")
    )
    return {
        "num_ranks": scenario.num_accelerators,
        "num_hosts": scenario.num_hosts,
        "examples_per_second": predicted.images_per_second,
        "accelerator_utilization": predicted.busy_share,
        "stall_fraction": 1 - predicted.busy_share,
        "cpu_seconds_per_example": scenario.work.cpu_seconds,
        "cores_per_accelerator": predicted.needs.cores / scenario.num_accelerators,
        "binding": predicted.word,
        "sentences": _sentences(whole, scenario, mode),
        "service": _service(scenario, whole).as_json(),
        "facts": facts.as_json(whole),
        "rows": [_row(start, accelerators, mode, count) for count in counts],
        "payoffs": [dataclasses.asdict(payoff) for payoff in payoffs.find(whole)],
        "sizing": dataclasses.asdict(sizes),
        "epochs": dataclasses.asdict(times),
        "checkpoint": _checkpoint(whole, times.later_seconds, mode),
    }


def _counts(most: int, per_host: int) -> list[int]:
    """Returns powers of two in a host, then of hosts, and the most accelerators."""
    within = [1 << power for power in range(per_host.bit_length())]
    counts = [count for count in within if count < per_host]
    hosts = 1
    while hosts * per_host < most:
        counts.append(hosts * per_host)
        hosts *= 2
    return [*counts, most]


def _row(
    start: Facts,
    accelerators: Mapping[str, Accelerator],
    mode: str,
    num_accelerators: int,
) -> dict[str, Any]:
    """Returns the prediction for a number of accelerators."""
    changed = {**start, "num_accelerators": Fact(float(num_accelerators), "")}
    scenario = facts.scenario(hardware.complete(changed, accelerators, mode))
    predicted = ceilings.predict(scenario)
    cold = ceilings.predict(ceilings.first_epoch(scenario))
    return {
        "num_accelerators": num_accelerators,
        "num_hosts": scenario.num_hosts,
        "images_per_second": predicted.images_per_second,
        "binding": predicted.word,
        "busy_share": predicted.busy_share,
        "cores_used": predicted.demand.cores,
        "cores_share": predicted.demand.cores
        / (scenario.num_hosts * scenario.host.num_cores),
        "storage_bytes_per_second": predicted.demand.storage_bytes_per_second,
        "requests_per_second": predicted.demand.requests_per_second,
        "first_epoch_images_per_second": cold.images_per_second,
        "first_epoch_binding": cold.word,
        "first_epoch_storage_bytes_per_second": cold.demand.storage_bytes_per_second,
        "first_epoch_requests_per_second": cold.demand.requests_per_second,
        "ceilings": _finite(predicted.ceilings),
        "first_epoch_ceilings": _finite(cold.ceilings),
    }


def _finite(values: Mapping[str, float]) -> dict[str, float | None]:
    return {k: v if math.isfinite(v) else None for k, v in values.items()}


def _checkpoint(whole: Facts, epoch_seconds: float, mode: str) -> dict[str, Any] | None:
    """Returns size and time of a checkpoint; None without training or parameters."""
    parameters = catalog.MODELS[facts.text(whole, "model")].num_parameters
    if mode != "train" or parameters is None:
        return None
    rate = facts.figure(whole, "write")
    return dataclasses.asdict(run_costs.checkpoint(parameters, rate, epoch_seconds))


def _sentences(whole: Facts, scenario: Scenario, mode: str) -> list[str]:
    """Returns the answer in a few sentences, the most important first."""
    steady = ceilings.predict(scenario)
    cold = ceilings.predict(ceilings.first_epoch(scenario))
    count = scenario.num_accelerators
    verb = "are" if count > 1 else "is"
    storage = f"{_gb(cold.demand.storage_bytes_per_second)} GB/s"
    later = f"{_gb(steady.demand.storage_bytes_per_second)} GB/s"
    if later != storage:
        storage += f" in the first epoch and {later} with full caches"
    word = "gives" if steady.binding in ("storage", "requests") else "must give"
    hosts = count_of(scenario.num_hosts, "host")
    sentences = [
        f"{count:,} {facts.text(whole, 'accelerator').upper()} on {hosts} "
        f"with {scenario.host.num_accelerators}{' each' * (scenario.num_hosts > 1)}, "
        f"{_DOING.get(mode, mode)} {facts.text(whole, 'model')} at "
        f"{facts.figure(whole, 'image_size'):.0f} pixels with "
        f"{scenario.cached_fraction:.0%} of the bytes cached, {verb} bound by "
        f"{_BINDING[steady.binding]}: {steady.images_per_second:,.0f} images/s, "
        f"{steady.busy_share:.0%} busy; the storage {word} {storage}, and "
        f"{_cores(steady, scenario)} are busy."
    ]
    if cold.binding != steady.binding:
        sentences.append(
            f"The first epoch is bound by {_BINDING[cold.binding]}: "
            f"{cold.images_per_second:,.0f} images/s, {cold.busy_share:.0%} busy."
        )
    if steady.binding != "accelerator":
        sentences.append(
            "Accelerators that never wait need "
            f"{_gb(cold.needs.storage_bytes_per_second)} GB/s, "
            f"{cold.needs.requests_per_second:,.0f} requests/s and "
            f"{cold.needs.cores:,.1f} cores in the first epoch."
        )
    return [*sentences, *_next(scenario, steady), _service(scenario, whole).sentence]


def _service(scenario: Scenario, whole: Facts) -> tfpipe.ServicePayoff:
    """Returns whether a service on other hosts would pay, for all hosts together."""
    limits = ceilings.predict(scenario).ceilings
    return tfpipe.ServicePayoff(
        rate=limits["cores"],
        num_cores=scenario.num_hosts * scenario.host.num_cores,
        demand=limits["accelerator"],
        bytes_per_image=3 * facts.figure(whole, "image_size") ** 2,
    )


def _cores(predicted: Prediction, scenario: Scenario) -> str:
    total = scenario.num_hosts * scenario.host.num_cores
    share = predicted.demand.cores / total
    return f"{predicted.demand.cores:,.1f} of {total:,.10g} cores ({share:.0%})"


def _next(scenario: Scenario, steady: Prediction) -> list[str]:
    """Returns the sentence on the limit behind the binding one, if there is one."""
    name = steady.next_binding
    rate = steady.ceilings[name]
    if not math.isfinite(rate):
        return []
    text = f"The next limit is {_BINDING[name]}, at {rate:,.0f} images/s"
    is_total = name in ("storage", "requests") and scenario.storage.is_shared
    if steady.binding == "accelerator" and is_total:
        demand = steady.ceilings["accelerator"] / scenario.num_accelerators
        text += f", which {math.floor(rate / demand):,} accelerators take"
    return [f"{text}."]


def _gb(rate: float) -> str:
    """Returns bytes a second in GB, with two significant digits."""
    value = rate / 1e9
    return f"{value:,.1f}" if value >= 1 else f"{value:.2g}"


def text(document: Mapping[str, Any]) -> str:
    """Returns an answer as lines: sentences, tables, and figures with their sources.

    Args:
        document: The result of `answer`.
    """
    blocks = [
        document["sentences"],
        _table(document["rows"]),
        _payoff_lines(document["payoffs"]),
        _other_lines(document),
        _fact_lines(document["facts"]),
    ]
    return "\n\n".join("\n".join(block) for block in blocks)


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns a line for each number of accelerators, below a heading."""
    heads = ("images/s", "busy", "cores", "of all", "GB/s", "requests/s", "1st epoch")
    first = f"{'accelerators':>12}{'hosts':>7}"
    lines = [f"{first}{''.join(f'{h:>12}' for h in heads)}  bound by"]
    for row in rows:
        cells = (
            f"{row['images_per_second']:,.0f}",
            f"{row['busy_share']:.0%}",
            f"{row['cores_used']:,.1f}",
            f"{row['cores_share']:.0%}",
            _gb(row["first_epoch_storage_bytes_per_second"]),
            f"{row['first_epoch_requests_per_second']:,.0f}",
            f"{row['first_epoch_images_per_second']:,.0f}",
        )
        bound = row["binding"]
        if row["first_epoch_binding"] != bound:
            bound += f" (first epoch: {row['first_epoch_binding']})"
        numbers = f"{row['num_accelerators']:>12,}{row['num_hosts']:>7,}"
        lines.append(f"{numbers}{''.join(f'{cell:>12}' for cell in cells)}  {bound}")
    return [*lines, "GB/s and requests/s are those of the first epoch."]


def _payoff_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [f"{'What would pay':<42}{'gain':>7}{'images/s':>12}  then bound by, cost"]
    lines += [
        f"{('yes: ' if row['pays'] else 'no:  ') + row['name']:<42}"
        f"{row['gain']:>7.2f}{row['images_per_second']:>12,.0f}  {row['binding']}; "
        f"{row['cost']}."
        for row in rows
    ]
    return lines


def _other_lines(document: Mapping[str, Any]) -> list[str]:
    """Returns sizes, epochs and checkpoints in words."""
    sizing, epochs = document["sizing"], document["epochs"]
    lines = [
        f"To defeat the caches: {sizing['needed_bytes'] / 1e12:,.2f} TB, "
        f"{sizing['copies']:,} of this data set. {sizing['arithmetic']}.",
        f"An epoch takes {epochs['later_seconds']:,.1f} s, the first one "
        f"{epochs['first_seconds']:,.1f} s; the caches are full after "
        f"{count_of(epochs['filling_epochs'], 'epoch')}. A run of "
        f"{count_of(epochs['amortized_epochs'], 'epoch')} or more is at most 5 % "
        "longer than with full caches.",
    ]
    if checkpoint := document["checkpoint"]:
        lines.append(
            f"A checkpoint of {checkpoint['num_bytes'] / 1e6:,.0f} MB takes "
            f"{checkpoint['seconds']:.2f} s; one after each epoch takes "
            f"{checkpoint['share']:.2%} of the run."
        )
    return lines


def _fact_lines(by_name: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = ["Figures, and where each comes from:"]
    for name, fact in by_name.items():
        shown = _shown(facts.KEYS[name].kind, fact["value"])
        lines.append(f"  {name:<22}{shown:>16}  {fact['source']}")
    return lines


def _shown(kind: str, value: Any) -> str:
    """Returns a value with its unit, for people."""
    if value is None:
        return "unlimited"
    if isinstance(value, str):
        return value
    if kind == "yes":
        return "yes" if value else "no"
    if kind == "share":
        return f"{value:.1%}"
    unit = {"bytes": "B", "rate": "B/s", "milliseconds": "ms"}.get(kind, "")
    scales = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))
    if kind in ("bytes", "rate"):
        for prefix, scale in scales:
            if value >= scale:
                return f"{value / scale:,.4g} {prefix}{unit}"
    digits = f"{value:,.4g}" if value < 1e3 else f"{value:,.0f}"
    return f"{digits} {unit}".rstrip()


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Returns the figures before and after a change, as lines.

    Args:
        before: The answer before the change.
        after: The answer after the change.
    """
    rows = [answer["rows"][-1] for answer in (before, after)]
    shown = [
        ("accelerators", [f"{row['num_accelerators']:,}" for row in rows]),
        ("images/s", [f"{row['images_per_second']:,.0f}" for row in rows]),
        ("bound by", [row["binding"] for row in rows]),
        ("busy", [f"{row['busy_share']:.0%}" for row in rows]),
        ("cores busy", [f"{row['cores_used']:,.1f}" for row in rows]),
        (
            "GB/s, first epoch",
            [_gb(row["first_epoch_storage_bytes_per_second"]) for row in rows],
        ),
        (
            "images/s, first epoch",
            [f"{row['first_epoch_images_per_second']:,.0f}" for row in rows],
        ),
    ]
    gain = rows[1]["images_per_second"] / rows[0]["images_per_second"]
    lines = [f"{'':<24}{'before':>14}{'after':>14}"]
    lines += [f"{name:<24}{old:>14}{new:>14}" for name, (old, new) in shown]
    return "\n".join([*lines, f"{'gain':<24}{'':>14}{gain:>14.2f}"])
