"""The answers of the benchmarks on a terminal: a few lines from a result.

In: the JSON object of a command. Out: lines: the verdict and the rate, then the binding
resource and the next step. A figure is left out if the result lacks the figure.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.reporting import binding
from benchmarks.results.train_result import GateAnswer, TrainResult
from tfpipe.cli.output import rows
from tfpipe.errors import count_of

Result = Mapping[str, Any]

_VERBS = {"eval": " evaluates", "infer": " infers"}


def train(result: TrainResult, path: object) -> list[str]:
    """Returns the answer of benchmarks.train."""
    return [
        _run_line(result),
        *rows(
            bound_by=_bound(result),
            storage=_storage(result),
            steps=_steps(result),
            gate=_gates(result.gates),
            next=_next(result),
            details=str(path) if path else "--verbose, or --report_dir=DIR to keep it",
        ),
    ]


def _run_line(result: TrainResult) -> str:
    config, num_hosts = result.config, result.telemetry.num_hosts
    ranks = count_of(result.num_ranks or 1, "rank")
    if num_hosts > 1:
        ranks += f" on {count_of(num_hosts, 'host')}"
    parts = [
        f"{config.model}{_VERBS.get(config.mode, '')}",
        ranks,
        "synthetic data" if config.synthetic else "",
        f"emulated {result.emulation.accelerator}" if result.emulation else "",
    ]
    rate = f"{result.examples_per_second or 0:,.0f} images/s"
    text = f"{', '.join(filter(None, parts))}: {rate}"
    if (busy := result.accelerator_utilization) is not None:
        who = "accelerators'" if result.kind == "emulated" else "model's own"
        text += f" ({busy:.1%} of the {who} rate)"
    if result.num_evaluated is not None:
        text += f"; accuracy {result.accuracy:.4f}"
    return text


def _bound(result: TrainResult) -> str:
    stall = result.stall_fraction or 0.0
    text = f"{binding.of_run(result)}: waited for input {stall:.1%} of the time"
    if shares := result.critical_path.shares:
        if (result.num_ranks or 1) > 1:
            text += f", communicated {shares['communication']:.1%}"
        text += f", was late {shares['late']:.1%}"
    slowest = result.critical_path.slowest
    if slowest.cause:
        text += f"; rank {slowest.rank} {_CAUSES[slowest.cause]}"
    if result.network_text:
        text += f"; the network brought {result.network_text}"
    if result.slow_link:
        text += f"; rank {result.slow_link.rank} is behind a slow network"
    return text


# What the slowest rank does longer than the others, by cause.
_CAUSES = {"input": "waits longest", "compute": "computes longest", "late": "is late"}
# The giver of the bytes beyond the memory of the hosts, by tier.
_GIVERS = {
    "local": "disk",
    "mount": "the server or the program of the mount",
    "remote": "the server",
    "shard_cache": "the server or the shard cache",
    "ram": "disk",
    "decoded_ram": "disk",
}


def _storage(result: TrainResult) -> str | None:
    read = result.storage_megabytes_per_second
    if (consumed := result.consumed_megabytes_per_second) is None:
        return None
    giver = _GIVERS.get(result.storage.tier if result.storage else "", "storage")
    came = "an unknown part" if read is None else f"{read:,.1f}"
    text = f"{came} of {consumed:,.1f} MB/s came from {giver}"
    if read is not None and read > consumed:  # with records read ahead
        text = f"{read:,.1f} MB/s came from {giver}, and steps used {consumed:,.1f}"
    text += f" ({result.cache.label or 'unknown'})"
    if (busy := result.telemetry.host_cpu_fraction) is not None:
        text += f"; CPU {busy:.0%}"
    if (others := result.host_load.others_cpu_fraction) is not None:
        text += f", other processes {others:.0%}"
    return text


def _steps(result: TrainResult) -> str:
    steady = result.steady_state
    text = "steady" if steady.is_even else "at an uneven rate"
    text = "NOT steady" if steady.reached is False else text
    if steady.drift is not None:
        text += f", drift {abs(steady.drift - 1):.0%}"
    times = (result.step_seconds_p50, result.step_seconds_p99)
    median, slow = ((seconds or 0.0) * 1e3 for seconds in times)
    text += f"; p50 {median:,.3g} ms, p99 {slow:,.3g} ms"
    if result.epochs and (loss := result.epochs[-1].loss) is not None:
        text += f"; loss {loss:.3g}"
    return text


def _gates(gates: Sequence[GateAnswer]) -> str | None:
    if not gates:
        return None
    missed = [gate.text for gate in gates if not gate.passed]
    if not missed:
        return gates[0].text if len(gates) == 1 else f"all {len(gates)} are met"
    more = f" ({len(missed) - 1} more not met)" if len(missed) > 1 else ""
    return missed[0].replace(" is not met: ", ": NOT met, ") + more


def _next(result: TrainResult) -> str:
    if result.not_finite_loss:
        return result.not_finite_loss.text
    if result.reproducibility.reproducible is False:
        return "repeat on a quiet host: the runs did not agree"
    steady = result.steady_state
    if steady.reached is False:
        return steady.text.partition(": ")[2]
    remedy, folder = binding.REMEDIES[binding.of_run(result)], result.config.data_dir
    return result.bars.sentence or remedy.replace("DIR", folder or "DIR")


def inputs(result: Result) -> list[str]:
    """Returns the answer of benchmarks.input."""
    where = result["config"]["data_dir"] or result["config"]["pipeline"]
    rate, cost = map(result.get, ("examples_per_second", "cpu_seconds_per_example"))
    speed = "not measured" if rate is None else f"{rate:,.0f} images/s"
    speed += "" if cost is None else f", {cost * 1e3:.3g} CPU-ms an image"
    ranks = f", {result['num_ranks']} ranks" if result["num_ranks"] > 1 else ""
    profile, tune, headspace, steady = (
        result.get(name) or {}
        for name in ("profile", "tune", "headspace", "steady_state")
    )
    page_cache = (profile.get("storage") or {}).get("page_cache")
    cut_off = ", ".join(result["cut_off"])
    return [
        f"{where}{ranks}: {speed}",
        *rows(
            bound_by=(profile.get("bottleneck") or {}).get("sentence"),
            storage=page_cache and f"page cache {page_cache}",
            steps=None if steady.get("reached", True) else steady["text"],
            tuned=tune.get("sentence"),
            training=headspace.get("sentence"),
            no_time=f"{cut_off}: give more --time_limit" if cut_off else None,
            next=_next_of_input(result, where),
        ),
    ]


def _next_of_input(result: Result, where: str) -> str | None:
    file = result["config"].get("tuning")
    if "tune" in result and file:
        return f"python -m benchmarks.train --data_dir={where} --tuning={file}"
    missing = [part for part in ("profile", "tune") if part not in result]
    return f"--do={','.join(missing)}" if missing else None


def storage(result: Result) -> list[str]:
    """Returns the answer of benchmarks.storage: what it feeds, and the doubts."""
    first, *rest = result["sentences"] or [""]
    config, probed, read = result["config"], result["place"], result["measurements"]
    folder = config["place"]
    if not first:
        return [f"{folder}: nothing could be read in order; --verbose says why"]
    fed = [text for text in rest if text.startswith("It feeds")]
    writes = [text for text in rest if text.startswith("It writes")]
    notes = [text for text in rest if text not in (*fed, *writes)]
    doubts = [first.partition(": ")[2].rstrip(".")]
    if unfit := [row for row in read if row.get("is_proven") is False]:
        most = max(row["resident_fraction"] or 0.0 for row in unfit)
        doubts.append(
            f"{count_of(len(unfit), 'measurement')} NOT in the state: up to "
            f"{most:.0%} was in this page cache before"
        )
    if skipped := sum(bool(row["skipped"]) for row in read):
        doubts.append(f"{skipped} left out")
    memory = f" is memory ({probed['beneath']}), and" if probed["is_memory"] else ""
    reports = config.get("report_dir") or "DIR, after --report_dir=DIR"
    return [
        f"{folder}{memory}{fed[0].removeprefix('It') if fed else ''}",
        *fed[1:2],
        *rows(
            rate="; ".join(doubts),
            write=writes[0].partition(" ")[2].rstrip(".") if writes else None,
            note=notes[0] if notes else None,
            next=f"python -m benchmarks.advise --results={reports}",
        ),
    ]


def advise(result: Result) -> list[str]:
    """Returns the answer of benchmarks.advise: the sentence, the needs, the payoffs."""
    first, *rest = result["sentences"]
    needs = [text.partition(_NEEDS)[2] for text in rest if text.startswith(_NEEDS)]
    others = [text for text in rest if not text.startswith(_NEEDS)]
    paying = [row for row in result["payoffs"] if row["pays"]]
    pays = "; ".join(f"{row['name']} ({row['gain']:.2f} times)" for row in paying[:3])
    what_if = result.get("what_if")
    return [
        f"{first.partition('; ')[0]}.",
        *rows(
            load=_load(result["rows"][-1]),
            needs=f"{needs[0]} No accelerator waits then." if needs else None,
            then=others[0] if others and what_if is None else None,
            pays=pays or "none of the usual remedies; --verbose has the list",
            doubt=" ".join(result.get("doubts") or ()) or None,
            what_if=what_if and _change(result, what_if),
        ),
    ]


_NEEDS = "Accelerators that never wait need "


def _load(row: Result) -> str:
    first, later = (
        row[f"{epoch}storage_bytes_per_second"] / 1e9 for epoch in ("first_epoch_", "")
    )
    return (
        f"storage {first:,.3g} GB/s in the first epoch, then {later:,.3g}; "
        f"{row['cores_used']:,.0f} cores ({row['cores_share']:.0%})"
    )


def _change(result: Result, after: Result) -> str:
    rate = after["examples_per_second"]
    times = f"{rate / result['examples_per_second']:.2f} times"
    bound = f"bound by {after['binding']}"
    return f"{after['text']}: {rate:,.0f} images/s ({times}), {bound}"


def sweep(document: Result, folder: object, plan: Sequence[str]) -> list[str]:
    """Returns the answer of benchmarks.sweep; a plan of a dry run ends with a count."""
    failed, missed = document["failed"], len(document["gates_not_met"])
    text = f"{document['num_done']} of {count_of(document['num_runs'], 'run')} done"
    text += f", {len(failed)} failed" if failed else ""
    text += f", {missed} did not meet a gate" if missed else ""
    answers = (document.get("find_ranks") or {}).get("answers") or []
    stale = document.get("stale")
    report = f"python -m benchmarks.report --results={folder} --output=report.html"
    return [
        f"{folder}: {text}",
        *rows(
            fastest=_fastest(document["rows"]),
            scaling=_scaling(document["series"]),
            answer=answers[0]["text"] if answers else None,
            stale=stale and f"{count_of(len(stale), 'result')} of data that changed",
            failed=failed[0]["error"] if failed else None,
            next=f"{plan[-1]} Leave out --dry_run." if plan else report,
        ),
    ]


def _fastest(rows: Sequence[Result]) -> str | None:
    if not rows:
        return None
    row = max(rows, key=lambda row: row["examples_per_second"])
    names = ("model", "accelerator", "tier", "cache")
    settings = ", ".join(str(row[name]) for name in names if row.get(name))
    ranks = count_of(row["num_ranks"], "rank")
    return f"{row['examples_per_second']:,.0f} images/s, {ranks} ({settings})"


def _scaling(series: Sequence[Result]) -> str | None:
    last = [each["points"][-1] for each in series if each["points"]]
    measured = [point for point in last if point.get("efficiency") is not None]
    if max((point["num_ranks"] for point in measured), default=1) == 1:
        return None
    worst = min(measured, key=lambda point: point["efficiency"])
    return f"{worst['efficiency']:.1%} of {worst['num_ranks']} times one rank"
