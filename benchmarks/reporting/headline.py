"""The headline of a page: the answer, and its doubt, with a gate or without one.

In: groups of runs. Out: sentences such as "resnet50: 989 images/s on one emulated
accelerator, 92.7% of its rate." and "The data came from memory, so this says nothing
about storage; other processes took 65% of the cores."
"""

from benchmarks.reporting import binding, compare
from benchmarks.results.collection import Collection, Group
from benchmarks.results.train_result import TrainResult
from benchmarks.system.host_load import OTHERS_LIMIT
from tfpipe.errors import count_of
from tfpipe.pages import frame

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")
_FROM = {
    "warm": "the data came from memory, so this says nothing about storage",
    "mixed": "a part of the data came from memory",
    "unknown": "nothing proves where the data came from",
}


def of_page(collection: Collection) -> tuple[str, str]:
    """Returns the answer of a page and its doubt; "" where there is none.

    A page of trainings and evaluations answers for the trainings. The fastest run that
    read data answers for several runs.
    """
    rated = [group for group in collection.groups if group.rates]
    if not rated:
        return "", ""
    groups = [group for group in rated if group.values.config.mode == "train"] or rated
    best = max(groups, key=lambda g: (g.median.kind != "synthetic", max(g.rates)))
    text = answer(best)
    if len(groups) > 1:
        settings = count_of(len(groups), "setting")
        text = f"{text.removesuffix('.')}: the fastest of {settings}."
    return text, doubt(best)


def answer(group: Group) -> str:
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
    if (share := _share(result, estimate.mean)) is not None:
        text += f", {share:.1%} of {'its' if result.num_ranks == 1 else 'their'} rate"
    elif (busy := group.mean(lambda r: r.accelerator_utilization)) is not None:
        text += f", computing {busy:.1%} of the time"
    return f"{text}."


def in_short(group: Group) -> str:
    """Returns the answer without the model, the binding resource, and the losses."""
    text, result = answer(group).partition(": ")[2], group.values
    if not result.critical_path.shares:
        return text
    lost = f"Bound by {binding.of_run(result)}. {result.critical_path.text}"
    return f"{text} {lost}".strip()


def _accelerators(group: Group) -> str:
    hosts, ranks = len(group.values.environment.hosts), group.values.num_ranks or 1
    kind = "emulated accelerator" if group.median.kind == "emulated" else "rank"
    counted = [(ranks, kind), *([(hosts, "host")] if hosts > 1 else [])]
    return " on ".join(_in_words(count, noun) for count, noun in counted)


def _in_words(count: int, noun: str) -> str:
    word = _NUMBERS[count] if count < len(_NUMBERS) else str(count)
    return count_of(count, noun).replace(str(count), word, 1)


def _share(result: TrainResult, rate: float) -> float | None:
    """Returns a rate over that of emulated accelerators that never wait."""
    config, own = result.config, None
    if result.emulation is not None:
        own = result.emulation.examples_per_second
    elif config.step_time_ms and config.batch_size:
        own = config.batch_size / (config.step_time_ms / 1e3)
    return rate / (own * (result.num_ranks or 1)) if own else None


def doubt(group: Group) -> str:
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
