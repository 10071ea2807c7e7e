"""Makes one HTML page of results.

  python -m benchmarks.report --results=DIR --output=report.html
  python -m benchmarks.report DIR1 DIR2 sweep.json --output=report.html
  python -m benchmarks.report --results=NEW --compare=OLD --output=report.html

DIR is the --report_dir of benchmarks.train, benchmarks.input and its sisters, or the
--sweep_dir of a sweep; a JSON file is read too. The page begins with the gates and the
distance to their limits. A table of the runs, charts with their numbers, and the
commands to repeat the runs follow. Runs of equal settings are repeats and share a row.
--compare adds the change of each figure and whether it is beyond the noise. The page
needs no other file and no network, and names a JSON file without a result.

The packages of the extra `report` are needed: pip install 'tfpipe[report]'. On stdout:
the path of the page, and one JSON object as the last line. Exit code: 0 done, 1 an
error.
"""

import pathlib

from benchmarks.reporting import output, page
from benchmarks.results import collection as results
from tfpipe import cli
from tfpipe.errors import count_of
from tfpipe.pages import frame


@cli.options
class ReportOptions:
    """Options of the page."""

    results: tuple[str, ...] = cli.required(
        "Folders with the JSON results of runs, or files."
    )
    compare: tuple[str, ...] = cli.flag(
        (), "Folders or files with older results to compare with."
    )
    output: str = cli.required("HTML file to write.", shown="FILE")


def run(options: ReportOptions) -> None:
    """Writes the page that the options ask for."""
    path = pathlib.Path(options.output)
    collection = results.read([pathlib.Path(name) for name in options.results])
    old = None
    if options.compare:
        paths = [pathlib.Path(name) for name in options.compare]
        old = results.read(paths, flag="--compare")
    try:
        text = page.make_page(collection, old=old, library=frame.library())
    except ImportError as error:
        raise ValueError(
            "The page needs Jinja2 and vl-convert-python, which must be installed: "
            f"{error}. Install them with: pip install 'tfpipe[report]'"
        ) from error
    output.write_text(text, path)
    parts = (collection.results, collection.sweeps, collection.advice)
    num_results = sum(map(len, parts))
    result = {
        "command": "benchmarks.report",
        "schema_version": 1,
        "num_results": num_results,
        "num_left_out": len(collection.left_out),
        "output": str(path),
    }
    about = f"The page shows {count_of(num_results, 'result')}."
    notes = [f"Note: {reason}" for reason in collection.left_out]
    output.show(result, str(path), about, notes=notes)


COMMANDS = (cli.Command(ReportOptions, run, arguments=("results",)),)

if __name__ == "__main__":
    cli.run(*COMMANDS)
