"""Makes one HTML page of the results in a folder.

  python -m benchmarks.report --results=DIR --output=report.html

DIR is the --report_dir of one or more runs of benchmarks.train or benchmarks.input. The
page needs nothing beside it: a table of the training runs, a chart of loss and accuracy
over the epochs, and a batch of each mode as the model sees it; of the input what each
stage costs, what binds, and what tuning found. On stdout: the path of the page, and one
JSON object as the last line.
"""

import base64
import html
import io
import json
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from absl import app, flags

_RESULTS = flags.DEFINE_string(
    "results", None, "Folder with the JSON results of runs.", required=True
)
_OUTPUT = flags.DEFINE_string("output", None, "HTML file to write.", required=True)

Result = dict[str, Any]

_INPUT = "benchmarks.input"

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1100px;
       margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #ddd; text-align: right;
         vertical-align: bottom; }
td { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
img, svg { max-width: 100%; height: auto; }
pre { background: #f6f6f6; padding: .8rem; font-size: 12px; white-space: pre-wrap; }
"""


def read_results(folder: pathlib.Path) -> dict[str, Result]:
    """The results of a folder by file name without suffix, oldest first.

    Raises:
        ValueError: If there is none, or a file is not a result.
    """
    results = {}
    for path in sorted(folder.glob("*.json")):
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
            result["config"], result["pipeline"], result["environment"]
            if result["command"] != _INPUT:
                result["config"]["mode"], result["examples_per_second"]
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


def make_page(results: dict[str, Result], folder: pathlib.Path) -> str:
    """The page as one string of HTML."""
    fed = {name: r for name, r in results.items() if r["command"] == _INPUT}
    runs = {name: r for name, r in results.items() if name not in fed}
    trained = [r for r in runs.values() if "epochs" in r]
    sections = ["<h1>tfpipe benchmark report</h1>", _headline(runs)]
    if runs:
        sections.append(_table(runs))
    for name, result in fed.items():
        sections += _input_section(name, result, folder)
    if trained:
        sections += ["<h2>Learning</h2>", *map(_chart, trained)]
    for name, result in runs.items():
        sections += _batch_section(name, result, folder)
    sections += ["<h2>Environment</h2>", _environment(next(iter(results.values())))]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>tfpipe benchmark report</title><style>{_STYLE}</style></head>\n"
        "<body>\n" + "\n".join(sections) + "\n</body></html>\n"
    )


def _headline(results: dict[str, Result]) -> str:
    """What the runs say, in a sentence each."""
    sentences = []
    for result in results.values():
        config, ranks = result["config"], result["num_ranks"]
        on = f"on {ranks} rank{'s' if ranks > 1 else ''}"
        if emulated := config.get("emulate") or config.get("step_time_ms"):
            on += f", an emulated accelerator ({emulated}),"
        if "bars" in result:
            sentences.append(result["bars"]["sentence"])
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
    return "".join(f"<p>{html.escape(sentence)}</p>" for sentence in sentences)


_WORK = {"train": "Training", "infer": "Inference with"}

_COLUMNS = {
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


def _table(results: dict[str, Result]) -> str:
    head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
    rows = "".join(
        "<tr>"
        + "".join(f"<td>{html.escape(cell(r))}</td>" for cell in _COLUMNS.values())
        + "</tr>"
        for r in results.values()
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{rows}</table></div>'


def _chart(result: Result) -> str:
    """Loss and accuracy of each epoch, as SVG."""
    import matplotlib.figure
    import matplotlib.ticker

    epochs = [item["epoch"] + 1 for item in result["epochs"]]
    figure = matplotlib.figure.Figure(figsize=(9, 3), layout="constrained")
    for axes, key, limits in zip(
        figure.subplots(1, 2), ("loss", "accuracy"), ((0, None), (0, 1)), strict=True
    ):
        values = [item[key] for item in result["epochs"]]
        axes.plot(epochs, values, marker="o", color="#1f5fa8")
        axes.set(xlabel="epoch", title=f"training {key}", ylim=limits)
        axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    text = io.StringIO()
    figure.savefig(text, format="svg")
    return text.getvalue()[text.getvalue().index("<svg") :]


def _input_section(name: str, result: Result, folder: pathlib.Path) -> list[str]:
    """What benchmarks.input said of a pipeline, as far as it was asked."""
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
    picture = _picture(folder / f"{name}.png", "what each stage costs")
    tried = [
        f"<tr><td>{html.escape(trial['name'])}</td>"
        f"<td>{trial['elements_per_second']:,.1f}</td>"
        f"<td>{trial['cpu_seconds_per_element'] * 1e3:.2f}</td>"
        f"<td>{trial['ratio']:.2f} of {html.escape(trial['against'])}</td></tr>"
        for trial in result.get("tune", {}).get("trials", ())
        if not trial["error"]
    ]
    head = "<th>Tried</th><th>Batches/s</th><th>CPU, ms a batch</th><th>Ratio</th>"
    return [
        "<h2>The input</h2>",
        *(f"<p>{html.escape(sentence)}</p>" for sentence in sentences),
        *picture,
        *([f"<table><tr>{head}</tr>{''.join(tried)}</table>"] if tried else []),
    ]


def _picture(path: pathlib.Path, what: str) -> list[str]:
    if not path.exists():
        return []
    data = base64.b64encode(path.read_bytes()).decode()
    return [f'<img alt="{what}" src="data:image/png;base64,{data}">']


def _batch_section(name: str, result: Result, folder: pathlib.Path) -> list[str]:
    mode = result["config"]["mode"]
    lines = "\n".join(result["pipeline"])
    section = [f"<h2>The pipeline of {mode}</h2>", f"<pre>{html.escape(lines)}</pre>"]
    if picture := _picture(folder / f"{name}.png", f"first batch of {mode}"):
        section += ["<p>Its first batch on rank 0, as the model sees it:</p>", *picture]
    return section


def _environment(result: Result) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(key)}</td><td>{html.escape(str(value))}</td></tr>"
        for key, value in result["environment"].items()
    )
    return f'<div class="scroll"><table>{rows}</table></div>'


def main(argv: Sequence[str]) -> int:
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected argument: {argv[1]}. Flags start with --.")
    folder, output = pathlib.Path(_RESULTS.value), pathlib.Path(_OUTPUT.value)
    try:
        results = read_results(folder)
        output.write_text(make_page(results, folder), encoding="utf-8")
    except (ValueError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    print(output)
    summary = {"num_results": len(results), "output": str(output)}
    print(json.dumps({"command": "benchmarks.report", "schema_version": 1} | summary))
    return 0


if __name__ == "__main__":
    app.run(main)
