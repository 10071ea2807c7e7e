"""Makes one HTML page of the results in a folder.

  python -m benchmarks.report --results=DIR --output=report.html

DIR is the --report_dir of one or more runs of benchmarks.train or benchmarks.input. The
page needs no other file. It shows a table of the training runs, a chart of loss and
accuracy over the epochs, and the first batch of each mode as the model sees it; for the
input it shows the cost of each stage, the bottleneck, and the result of tuning.

The packages of the extra `report` are needed: pip install 'tfpipe[report]'. On stdout:
the path of the page, and one JSON object as the last line. Exit code: 0 done, 1 an
error.
"""

import pathlib
import sys
from collections.abc import Sequence

from absl import app, flags

from benchmarks.options import command
from benchmarks.reporting import output, page

_RESULTS = flags.DEFINE_string(
    "results", None, "Folder with the JSON results of runs.", required=True
)
_OUTPUT = flags.DEFINE_string("output", None, "HTML file to write.", required=True)


def main(argv: Sequence[str]) -> int:
    """Writes the page that the flags ask for."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected argument: {argv[1]}. Flags start with --.")
    folder, path = pathlib.Path(_RESULTS.value), pathlib.Path(_OUTPUT.value)
    try:
        results = page.read_results(folder)
        path.write_text(page.make_page(results, folder), encoding="utf-8")
    except ImportError as error:
        print(
            f"Error: The page needs Jinja2 and matplotlib, which must be installed: "
            f"{error}. Install them with: pip install 'tfpipe[report]'",
            file=sys.stderr,
        )
        return 1
    except (ValueError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    print(path)
    output.print_line(
        {
            "command": "benchmarks.report",
            "schema_version": 1,
            "num_results": len(results),
            "output": str(path),
        }
    )
    return 0


if __name__ == "__main__":
    command.run(main, {})
