"""Options of converters.query.

In: the command line. Out: a frozen `QueryOptions`, whose values fit together.
"""

import dataclasses
import pathlib
import re
from typing import Any

from converters.catalog import added, samples
from converters.catalog.added import Added
from converters.catalog.question import Question
from converters.options import shared
from tfpipe import cli, errors
from tfpipe.location.location import Location

_DEFAULT_SAMPLE = 16
ALL = "true"

# The condition may be written as a clause of SQL.
_WHERE = re.compile(r"\A\s*WHERE\s+", re.IGNORECASE)

GROUPS = ("Which records", "What to do with them")
_choice, _output = map(cli.group, GROUPS)


@cli.options
class QueryOptions(cli.StoreOptions):
    """Options of a query.

    Raises:
        ValueError: If values do not fit together, or a file cannot be written at its
            path.
    """

    data_dir: str = shared.data_dir()
    clause: str = cli.argument(
        "Condition in SQL, in quotes. Default: all records.",
        default=ALL,
        shown="CLAUSE",
        url=True,
    )
    generation: int | None = shared.generation(group=GROUPS[0])
    limit: int | None = _choice(
        None,
        "Largest number of records to choose: random ones by --seed, or the first ones "
        "by --order_by.",
        least=1,
    )
    order_by: str | None = _choice(
        None, "SQL terms for --limit, such as 'score DESC'.", shown="SQL"
    )
    add_column: tuple[str, ...] = _choice(
        (),
        "File with more columns for the expressions: CSV, TSV, Parquet, JSON or JSONL, "
        "with a column filename (and split, if splits share names) or digest as in the "
        "catalog. NAME,NAME=FILE takes some of its columns. May be repeated.",
        shown="FILE",
        repeated=True,
    )
    seed: int = shared.seed(group=GROUPS[0])
    save: str | None = _output(
        None,
        "File to write the choice to, such as subset.parquet, for "
        'tfpipe.TFRecordSource(DIR, subset="subset.parquet"), which reads these '
        "records and no others.",
        shown="FILE",
    )
    weight: str | None = _output(
        None,
        "SQL expression, stored with --save as the weight of each record for sampling. "
        "1.0 / count(*) OVER (PARTITION BY label) balances the classes.",
        shown="SQL",
        needs="--save",
    )
    sample: int | None = _output(
        None,
        "Number of chosen records to draw at random, for --sheet and --report; without "
        "these they are listed. Default: 16.",
        least=1,
        most=1000,
    )
    sheet: str | None = _output(
        None,
        "Picture file for a contact sheet of the sample, such as out.png.",
        shown="FILE",
    )
    report: str | None = _output(
        None,
        "HTML file for a page about the chosen records, such as data.html.",
        shown="FILE",
    )
    materialize: str | None = _output(
        None,
        "Folder to write the chosen records to, as a data set with shards of its own. "
        "The same command goes on after an interruption.",
        shown="DIR",
    )
    compact: str | None = _output(
        None,
        "Folder to write all records of a growing data set to, unchanged, as a usual "
        "data set: --materialize without a clause.",
        shown="DIR",
    )
    remove: bool = _output(
        False,
        "Take the chosen records out of a growing data set, from the next generation "
        "on. The rest of their folders is written anew; earlier generations stay.",
    )
    overwrite: bool = _output(
        False,
        "Replace what an earlier run left in the folder of --materialize. Other files "
        "are replaced anyway.",
        needs="--materialize",
    )
    num_workers: int | None = shared.num_workers()
    fsync: bool = shared.fsync()

    def __post_init__(self) -> None:
        errors.settle(self, "clause", _WHERE.sub("", self.clause))
        if not self.clause.strip():
            raise ValueError(
                "The WHERE clause must be an expression, got an empty text. Leave it "
                "out to choose all records."
            )
        if self.compact is not None:
            if self.clause != ALL or self.materialize is not None or self.limit:
                raise ValueError(
                    "--compact writes all records, and needs neither a clause nor "
                    "--limit nor --materialize."
                )
            errors.settle(self, "materialize", self.compact)
        for name in ("save", "sheet", "report"):
            if (value := getattr(self, name)) is not None:
                self._check_file(f"--{name}", value)
        if self.remove and (self.materialize or self.generation or self.limit):
            raise ValueError(
                "--remove takes records out of the newest generation, and needs neither"
                " --materialize nor --generation nor --limit."
            )
        if self.sheet is not None:
            samples.require_name(pathlib.Path(self.sheet))
        if self.materialize is not None:
            shared.path_of("--materialize", self.materialize)

    def _check_file(self, name: str, value: str) -> None:
        """Refuses a file without a folder, or with harm to the data set."""
        path = shared.path_of(name, value)
        if path.is_dir() or not path.parent.is_dir():
            raise ValueError(f"{name} must be a file in a folder that exists: {path}.")
        if Location(str(path)).is_in(shared.location_of("DIR", self.data_dir)):
            raise ValueError(
                f"{name} must not be in the folder of the data set, whose files it "
                f"could replace, got {path}. Write it beside the folder."
            )

    @property
    def num_samples(self) -> int:
        """Number of records to draw; 0 if no sample is wanted."""
        is_wanted = self.sheet is not None or self.report is not None
        return self.sample or (_DEFAULT_SAMPLE if is_wanted else 0)

    @property
    def files(self) -> list[Added]:
        """The files of --add_column."""
        return [added.parse(value) for value in self.add_column]

    @property
    def question(self) -> Question:
        """The question to the catalog."""
        return Question(
            clause=self.clause,
            weight=self.weight,
            order_by=self.order_by,
            limit=self.limit,
            seed=self.seed,
            added=self.files,
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the options as JSON values."""
        return dataclasses.asdict(self) | {
            "data_dir": shared.location_of("DIR", self.data_dir).shown,
            "add_column": list(self.add_column),
        }
