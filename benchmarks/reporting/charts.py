"""Charts: a profile as a picture, and the learning of a model over its epochs.

In: a `tfpipe` profile, or the epochs of a result. Out: PNG bytes, or SVG text.
"""

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

_CPU, _WAIT, _RATE, _BOUND = "#1f5fa8", "#b9c8d8", "#5b8c3a", "#b03a2e"


def draw(profile: Any) -> bytes:
    """Draws two bars a stage: its CPU time and waiting, and the rate it could reach.

    Lines across the rates show the measured rate of the pipeline and its upper bound.

    Args:
        profile: What `tfpipe.profile` returned.

    Returns:
        A PNG file.

    Raises:
        ImportError: If matplotlib is not installed: pip install tfpipe[report].
    """
    import matplotlib.figure

    stages = list(profile.stages)
    count = profile.examples_per_output or 1
    names = [f"{stage.number} {_short(stage.name)}" for stage in stages]
    figure = matplotlib.figure.Figure(
        figsize=(11, 1.6 + 0.42 * len(stages)), layout="constrained"
    )
    cost, rate = figure.subplots(1, 2, sharey=True)
    places = range(len(stages))
    cpu = [stage.cpu_seconds_per_output / count * 1e3 for stage in stages]
    wait = [stage.wait_seconds_per_output / count * 1e3 for stage in stages]
    cost.barh(places, cpu, color=_CPU, label="CPU")
    cost.barh(places, wait, left=cpu, color=_WAIT, label="waiting")
    cost.set(yticks=places, yticklabels=names, xlabel="ms an example, one thread")
    cost.invert_yaxis()
    cost.legend(frameon=False)
    rates = [stage.max_rate * count for stage in stages]
    rate.barh(places, [r if math.isfinite(r) else 0 for r in rates], color=_RATE)
    rate.axvline(profile.bound * count, color=_BOUND, label="bound of all")
    rate.axvline(
        profile.rate.median * count, color=_BOUND, linestyle=":", label="measured"
    )
    rate.set(xscale="log", xlabel="examples/s that the stage alone could reach")
    rate.legend(frameon=False)
    figure.suptitle(_wrapped(profile.bottleneck.sentence), fontsize=10)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=120)
    return out.getvalue()


def draw_epochs(epochs: Sequence[Mapping[str, Any]]) -> str:
    """Draws loss and accuracy over the epochs.

    Args:
        epochs: One mapping an epoch, with `epoch` (from 0), `loss` and `accuracy`
            (0 to 1).

    Returns:
        An `<svg>` element.

    Raises:
        ImportError: If matplotlib is not installed: pip install tfpipe[report].
    """
    import matplotlib.figure
    import matplotlib.ticker

    numbers = [item["epoch"] + 1 for item in epochs]
    figure = matplotlib.figure.Figure(figsize=(9, 3), layout="constrained")
    for axes, key, limits in zip(
        figure.subplots(1, 2), ("loss", "accuracy"), ((0, None), (0, 1)), strict=True
    ):
        axes.plot(numbers, [item[key] for item in epochs], marker="o", color=_CPU)
        axes.set(xlabel="epoch", title=f"training {key}", ylim=limits)
        axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    text = io.StringIO()
    figure.savefig(text, format="svg")
    return text.getvalue()[text.getvalue().index("<svg") :]


def _short(name: str, max_length: int = 44) -> str:
    return name if len(name) <= max_length else name[: max_length - 1] + "…"


def _wrapped(text: str, width: int = 120) -> str:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) > width:
            lines.append("")
        lines[-1] += f"{word} "
    return "\n".join(line.rstrip() for line in lines)
