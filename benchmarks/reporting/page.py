"""One HTML page about the results in a folder.

In: the JSON results of benchmarks.train and benchmarks.input, and the pictures beside
them. Out: one string of HTML that needs no other file. The templates are in
`templates/`; they escape every text, so a name in a result cannot become markup.
"""

import base64
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.reporting import charts

Result = dict[str, Any]

_INPUT = "benchmarks.input"
_WORK = {"train": "Training", "infer": "Inference with"}
_MODES = (*_WORK, "eval")

# Title of a column -> the text of its cell for a result of benchmarks.train.
_COLUMNS: Mapping[str, Callable[[Result], str]] = {
    "Run": lambda r: f"{r['config']['mode']} {r['config']['model']}",
    "Ranks": lambda r: str(r["num_ranks"]),
    "Batch a rank": lambda r: str(r["config"]["batch_size"]),
    "Images/s": lambda r: f"{r['examples_per_second']:,.1f}",
    "Images/s a rank": lambda r: ", ".join(
        f"{value:,.1f}" for value in r["examples_per_second_per_rank"]
    ),
    "Wait, ms a step": lambda r: f"{r['wait_seconds_per_step'] * 1e3:.2f}",
    "Compute, ms a step": lambda r: f"{r['compute_seconds_per_step'] * 1e3:.2f}",
    "Stall": lambda r: f"{r['stall_fraction']:.1%}",
    "CPU, ms an image": lambda r: f"{r['cpu_seconds_per_example'] * 1e3:.2f}",
    "Accuracy": lambda r: f"{r['accuracy']:.1%}" if "accuracy" in r else "-",
    "Timed steps": lambda r: str(r["num_timed_steps"]),
}


def read_results(folder: pathlib.Path) -> dict[str, Result]:
    """Reads the results of a folder: file name without suffix -> result, oldest first.

    Raises:
        ValueError: If the folder holds no result, or a JSON file is not a result.
    """
    results = {}
    for path in sorted(folder.glob("*.json")):
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
            if result["command"] == "benchmarks.sweep":
                continue  # it sums up the results beside it
            result["config"], result["pipeline"], result["environment"]
            if result["command"] != _INPUT:
                result["examples_per_second"]
                if (mode := result["config"]["mode"]) not in _MODES:
                    raise ValueError(
                        f"mode must be of {', '.join(_MODES)}, got {mode!r}"
                    )
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path} must be a result of benchmarks.train or benchmarks.input: "
                f"{error!r}. Remove it."
            ) from error
        results[path.stem] = result
    if not results:
        raise ValueError(
            f"--results {folder} must hold JSON results, got none. Make some with "
            f"python -m benchmarks.train --report_dir={folder}."
        )
    return results


def make_page(results: Mapping[str, Result], folder: pathlib.Path) -> str:
    """Returns the page as HTML.

    Args:
        results: What `read_results` returned; at least one.
        folder: Folder of the pictures: `<name of the result>.png`, where there is one.

    Raises:
        ImportError: If Jinja2 or matplotlib is not installed.
    """
    import jinja2

    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("benchmarks.reporting"),
        autoescape=True,  # Jinja2 escapes nothing unless it is told to
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    inputs = {name: r for name, r in results.items() if r["command"] == _INPUT}
    runs = {name: r for name, r in results.items() if name not in inputs}
    return templates.get_template("page.html.j2").render(
        headline=[line for result in runs.values() for line in _sentences(result)],
        columns=list(_COLUMNS),
        runs=[_run(result, folder / f"{name}.png") for name, result in runs.items()],
        inputs=[_input(r, folder / f"{name}.png") for name, r in inputs.items()],
        charts=[
            charts.draw_epochs(r["epochs"]) for r in runs.values() if "epochs" in r
        ],
        environment=next(iter(results.values()))["environment"],
    )


def _sentences(result: Result) -> list[str]:
    """Returns what a run of benchmarks.train found, in a sentence or two."""
    config, ranks = result["config"], result["num_ranks"]
    on = f"on {ranks} rank{'s' if ranks > 1 else ''}"
    if emulated := config.get("emulate") or config.get("step_time_ms"):
        on += f", an emulated accelerator ({emulated}),"
    sentences = [result["bars"]["sentence"]] if "bars" in result else []
    if config["mode"] == "eval":
        sentences.append(
            f"{config['model']} is right on {result['accuracy']:.1%} of "
            f"{result['num_evaluated']:,} validation images ({on})."
        )
    else:
        sentences.append(
            f"{_WORK[config['mode']]} {config['model']} {on} reached "
            f"{result['examples_per_second']:,.0f} images/s and waited for input "
            f"{result['stall_fraction']:.1%} of the time."
        )
    return sentences


def _run(result: Result, picture: pathlib.Path) -> dict[str, Any]:
    """Returns what the template shows of a run of benchmarks.train."""
    return {
        "mode": result["config"]["mode"],
        "cells": [cell(result) for cell in _COLUMNS.values()],
        "pipeline": "\n".join(result["pipeline"]),
        "picture": _base64(picture),
    }


def _input(result: Result, picture: pathlib.Path) -> dict[str, Any]:
    """Returns what the template shows of benchmarks.input: the parts that were run."""
    sentences = []
    if "throughput" in result:
        sentences.append(
            f"Alone it feeds {result['examples_per_second']:,.0f} images/s at "
            f"{result['cpu_seconds_per_example'] * 1e3:.2f} ms of CPU time each."
        )
    if "profile" in result:
        sentences.append(result["profile"]["bottleneck"]["sentence"])
    sentences += [
        result[part]["sentence"] for part in ("tune", "headspace") if part in result
    ]
    trials = [
        (
            trial["name"],
            f"{trial['elements_per_second']:,.1f}",
            f"{trial['cpu_seconds_per_element'] * 1e3:.2f}",
            f"{trial['ratio']:.2f} of {trial['against']}",
        )
        for trial in result.get("tune", {}).get("trials", ())
        if not trial["error"]
    ]
    return {"sentences": sentences, "trials": trials, "picture": _base64(picture)}


def _base64(path: pathlib.Path) -> str | None:
    if not path.exists():
        return None
    return base64.b64encode(path.read_bytes()).decode()
