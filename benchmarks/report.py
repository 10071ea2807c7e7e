"""Makes one HTML page of results.

  python -m benchmarks.report --results=DIR --output=report.html
  python -m benchmarks.report --results=DIR1,DIR2,sweep.json --output=report.html
  python -m benchmarks.report --results=NEW --compare=OLD --output=report.html

DIR is the --report_dir of benchmarks.train, benchmarks.input and its sisters, or the
--sweep_dir of a sweep; a single JSON file is read too. The page begins with the gates
and by how much each is met. A table of the runs, charts with their numbers, and all
that is needed to repeat a run follow. Runs of equal settings are repeats and share a
row. --compare adds the change of each figure and whether it is beyond the noise. The
page needs no other file and no network. A JSON file that is no result is left out, and
the page names it.

The packages of the extra `report` are needed: pip install 'tfpipe[report]'. On stdout:
the path of the page, and one JSON object as the last line. Exit code: 0 done, 1 an
error.
"""

import pathlib
import sys
from collections.abc import Sequence

from absl import flags

from benchmarks.options import command
from benchmarks.reporting import output, page, results
from benchmarks.reporting.charts import frame

_RESULTS = command.define_results("Folders with the JSON results of runs, or files.")
flags.mark_flag_as_required("results")
_COMPARE = flags.DEFINE_list(
    "compare", None, "Folders or files with older results to compare with."
)
_OUTPUT = flags.DEFINE_string("output", None, "HTML file to write.", required=True)


def main(argv: Sequence[str]) -> int:
    """Writes the page that the flags ask for."""
    command.refuse_arguments(argv)
    path = pathlib.Path(_OUTPUT.value)
    try:
        collection = results.read([pathlib.Path(name) for name in _RESULTS.value])
        old = None
        if _COMPARE.value:
            paths = [pathlib.Path(name) for name in _COMPARE.value]
            old = results.read(paths, flag="--compare")
        text = page.make_page(collection, old=old, library=frame.library())
        path.write_text(text, encoding="utf-8")
    except ImportError as error:
        print(
            f"Error: The page needs Jinja2 and vl-convert-python, which must be "
            f"installed: {error}. Install them with: pip install 'tfpipe[report]'",
            file=sys.stderr,
        )
        return 1
    except (ValueError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    for reason in collection.left_out:
        print(f"Note: {reason}", file=sys.stderr)
    print(path)
    output.print_line(
        {
            "command": "benchmarks.report",
            "schema_version": 1,
            "num_results": len(collection.results)
            + len(collection.sweeps)
            + len(collection.advice),
            "num_left_out": len(collection.left_out),
            "output": str(path),
        }
    )
    return 0


if __name__ == "__main__":
    command.run(main, {"The page": ("results", "compare", "output")})
