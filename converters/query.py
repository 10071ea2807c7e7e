"""Finds records of a data set by SQL: counts, shows and saves them.

  python -m converters.query DIR
  python -m converters.query DIR "width >= 500 AND class = 'n01440764'"
  python -m converters.query DIR "height < 64" --sample=16 --sheet=out.png
  python -m converters.query DIR --report=data.html
  python -m converters.query DIR "score > 0.5" --add_column=s.csv --save=FILE

DIR is a data set of a converter, in a folder or at a URL. The second argument is the
condition of an SQL query (DuckDB) over the catalog, which has a row for each record.
Without it all records are chosen. The condition can neither read nor write files. The
columns of the catalog are:

COLUMNS

Columns of the tables that converters.table carried along, and those of --add_column,
can be named too. For columns of another file:

  --add_column=scores.csv         all its columns; filename or digest says the record
  --add_column=score,tag=f.csv    some of them

The command prints the number of chosen records, their classes and their sizes. More can
be done with them:

  --save=subset.parquet    a view: tfpipe.TFRecordSource(DIR, "train",
                           subset="subset.parquet")
                           reads these records alone, and no image is copied
  --weight="score"         with --save: how often each one is drawn, relative to others
  --limit=1000             random ones, or the first by --order_by="score DESC"
  --sample=16              lists records drawn at random
  --sheet=out.png          a contact sheet of the sample
  --report=data.html       a page about classes, sizes, boxes, changes and rejects
  --materialize=OUT        a data set with shards of its own
  --compact=OUT            the same for all records of a growing data set
  --remove                 takes them out of a growing data set, in a new generation

The same catalog, expressions and seed choose the same records, if the expressions have
no random(). The last line on stdout is one JSON object. Exit code: 0 done, also if no
record is chosen; 1 an error.
"""

import contextlib
import dataclasses
import os
import pathlib
import re
import tempfile
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from converters.catalog import counts, facts, question, samples, shards
from converters.catalog.samples import Sample
from converters.conversion import answers
from converters.exports import copies, tables
from converters.exports.source import Source
from converters.images.policy import policy_of
from converters.jobs import run
from converters.jobs.job import Job
from converters.options import shared
from converters.options.query import GROUPS, QueryOptions
from converters.streams.growing import GrowingDataSet, folder_of
from tfpipe import cli, errors, host
from tfpipe.cli import output
from tfpipe.location.files import Files
from tfpipe.location.location import Location
from tfpipe.shards import generations, index, subset
from tfpipe.shards.generations import ShardFolder

if TYPE_CHECKING:
    import duckdb

_COMMAND = "converters.query"
_SCHEMA_VERSION = 1
_NAMED = re.compile(
    r"\b(split|class|synset|text)\s*(?:=|IN\s*\()\s*'([^']*)'", re.IGNORECASE
)
_MOST_NAMES = 4  # of splits or classes in a remark

__doc__ = (__doc__ or "").replace("COLUMNS", question.column_help())


def ask(config: QueryOptions) -> dict[str, Any]:
    """Answers a query, writes what is wanted, and returns the summary.

    Raises:
        ValueError: If an expression, a file or the data set is not as it must be.
        OSError: If a file cannot be read or written.
        TfpipeError: If the data set is damaged or cannot be read.
    """
    begin, used = time.perf_counter(), time.process_time()
    if config.report is not None:
        facts.require_library()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        wanted = config.materialize
        target = None if wanted is None else ("--materialize", wanted)
        source = shared.open_data_set(
            *(config.data_dir, folder, ()),
            output=target,
            generation=config.generation,
        )
        more = folder / shards.ADDED_NAME if config.materialize else None
        asked = time.perf_counter()
        num_threads = config.num_workers or host.num_cores()
        with question.ask(
            source, config.question, num_threads=num_threads, may_write=more
        ) as rows:
            found = counts.count(rows)
            query_seconds = time.perf_counter() - asked
            cpu_seconds = time.process_time() - used
            done = found | _write(config, source, rows, found)
            done["remarks"] = [] if found["num_chosen"] else _misnamed(config, source)
            job = _job(config, source, rows, more) if more is not None else None
            hit = _hit(source, rows) if config.remove else {}
        if job is not None:  # a process with the threads of DuckDB cannot fork
            run.run(job)
        if config.remove:
            done["generation"] = _remove(config, source, hit)
    return {
        "command": _COMMAND,
        "schema_version": _SCHEMA_VERSION,
        "config": config.to_json(),
        **done,
        "query_seconds": round(query_seconds, 3),
        "query_cpu_seconds": round(cpu_seconds, 3),
        "seconds": round(time.perf_counter() - begin, 3),
    }


def _hit(source: Source, rows: "duckdb.DuckDBPyConnection") -> dict[str, int]:
    """Returns the number of chosen records in each folder of a growing data set."""
    if "generation" not in source.known.made_by:
        raise ValueError(
            f"--remove needs a growing data set, and {source.name} is none. Write the "
            "other records with --materialize."
        )
    hit: dict[str, int] = {}
    chosen = "SELECT split, shard, count(*) FROM chosen GROUP BY ALL ORDER BY ALL"
    for split, shard, count in rows.execute(chosen).fetchall():
        folder = source.known.splits[split][shard].name.partition("/")[0]
        hit[folder] = hit.get(folder, 0) + count
    return hit


def _remove(config: QueryOptions, source: Source, hit: Mapping[str, int]) -> int:
    """Publishes a generation without the chosen records; returns its number.

    The other records of their folders come into a new folder.
    """
    location = shared.location_of("DIR", config.data_dir)
    # Each removal has a claim of its own: no stream goes on with it.
    data = GrowingDataSet(Files(location), f"query-{os.urandom(8).hex()}")
    with contextlib.closing(data), tempfile.TemporaryDirectory() as near:
        before = generations.folders(data.log, len(data.log))
        entry = [ShardFolder(name, "", 0) for name in hit]
        total = sum(each.num_records for each in before if each.name in hit)
        if total > sum(hit.values()):
            rest, new = pathlib.Path(near, "rest"), data.claim([])
            ask(_rest(config, source, hit, rest))
            for name in Files(str(rest)).names():
                Files(location / new).upload(name, rest / name)
            entry.append(folder_of(new, data.index_of(new)))
        while hit and hit.keys() <= {each.name for each in before}:
            if data.publish(*entry):
                return len(data.log)
            before = generations.folders(data.log, len(data.log))
        if hit:
            raise ValueError(f"Another command replaced {min(hit)}. Start this again.")
        return len(data.log)


def _rest(
    config: QueryOptions, source: Source, hit: Collection[str], folder: pathlib.Path
) -> QueryOptions:
    """Returns the query that writes the records of folders that are not chosen."""
    inside = [
        f"(split = '{split}' AND shard = {n})"
        for split, shards_of in source.known.splits.items()
        for n, shard in enumerate(shards_of)
        if shard.name.partition("/")[0] in hit
    ]
    clause = f"NOT coalesce(({config.clause}), false) AND ({' OR '.join(inside)})"
    return dataclasses.replace(
        config,
        clause=clause,
        generation=source.known.made_by["generation"],
        materialize=str(folder),
        remove=False,
        save=None,
        weight=None,
        sheet=None,
        report=None,
    )


def _misnamed(config: QueryOptions, source: Source) -> list[str]:
    """Returns a remark for each split and class of the clause that does not exist."""
    synsets, texts = zip(*source.known.classes, strict=True)
    names = {"split": sorted(source.known.splits), "synset": synsets, "text": texts}
    names |= {"class": synsets}
    remarks = []
    for column, name in _NAMED.findall(config.clause):
        if name not in (there := names[column.lower()]):
            some = output.fewer(list(there), _MOST_NAMES, "and {} more")
            near = errors.did_you_mean(name, there)
            remarks.append(f"{column} is one of {', '.join(some)}, not {name}.{near}")
    return remarks


def _write(
    config: QueryOptions,
    source: Source,
    rows: "duckdb.DuckDBPyConnection",
    found: dict[str, Any],
) -> dict[str, Any]:
    """Writes what the options want, and returns what the summary says about it."""
    if config.save is not None:
        _save(config, source, rows)
    drawn: list[Sample] = []
    chosen = samples.draw(rows, config.num_samples, seed=config.seed)
    if chosen and (config.sheet is not None or config.report is not None):
        drawn = samples.read(source, chosen, side=samples.TILE)
    if config.sheet is not None:
        if not drawn:
            raise ValueError("No record is chosen, so there is nothing for --sheet.")
        samples.save(samples.draw_sheet(drawn), shared.path_of("--sheet", config.sheet))
    if config.report is not None:
        known = facts.gather(
            source, rows, found, clause=config.clause, drawn=drawn, seed=config.seed
        )
        facts.write(facts.render(known), shared.path_of("--report", config.report))
    faults = [f"{item.row.filename}: {item.fault}" for item in drawn if item.fault]
    return {"sample": [row._asdict() for row in chosen], "sample_faults": faults}


def _save(
    config: QueryOptions, source: Source, rows: "duckdb.DuckDBPyConnection"
) -> None:
    """Writes the subset of the chosen records."""
    weight = "" if config.weight is None else ", weight"
    found = rows.execute(
        f"SELECT split, shard, record{weight} FROM chosen ORDER BY place"
    ).fetchnumpy()
    chosen = subset.choose(found, source.known, query=config.clause)
    subset.write(chosen, shared.path_of("--save", config.save or ""))


def _job(
    config: QueryOptions,
    source: Source,
    rows: "duckdb.DuckDBPyConnection",
    more: pathlib.Path,
) -> Job:
    """Returns the job that writes the chosen records as shards of their own.

    Args:
        config: The options.
        source: The data set.
        rows: The connection of the question.
        more: File to write, if columns are added.
    """
    made_by = source.known.made_by
    layout = made_by.get("options", {}).get("layout", "inception")
    fields = made_by.get("options", {}).get("policy", {})
    plans = shards.make_plans(rows, source, layout=layout)
    points = tables.find_tables(source)
    options: dict[str, Any] = {"clause": config.clause, "layout": layout}
    if config.add_column:
        digests = [index.describe_file(item.path).digest for item in config.files]
        options["added"] = [*zip(config.add_column, digests, strict=True)]
    return Job(
        command=_COMMAND,
        output_flag="--materialize",
        name=source.known.name,
        input_dir=Location(str(source.folder)),
        output_dir=shared.path_of("--materialize", config.materialize or "").absolute(),
        plans=plans,
        classes=source.classes,
        policy=policy_of(fields),
        options={**options, "chosen": shards.digest(plans), **points.options()},
        made_by=source.origin(),
        writer=copies.CopyWriter(
            source=source,
            leave_out=", or leave the record out with AND NOT ({}) in the clause",
            tables=points,
        ),
        entered=tuple(points.paths),
        more_columns=copies.more_columns(source, path=shards.write_added(rows, more)),
        num_workers=config.num_workers or host.num_cores(),
        overwrite=config.overwrite,
        fsync=config.fsync,
    )


def print_summary(config: QueryOptions, done: dict[str, Any]) -> None:
    """Prints the counts and the sample for people, and the JSON line for scripts."""
    is_drawn = config.sheet is not None or config.report is not None
    sample = [
        f"  {row['width']} x {row['height']:<6} {counts.fit(row['name'])}  "
        f"{ascii(row['filename'])[1:-1]}"
        for row in ([] if is_drawn else done["sample"])
    ]
    names = ("save", "sheet", "report", "materialize")
    files = {name: getattr(config, name) for name in names}
    answers.query(done, files=files, sample=sample)


def work(options: QueryOptions) -> None:
    """Answers the query, and prints the summary."""
    print_summary(options, ask(options))


def _hint(options: QueryOptions, error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "The same command goes on with --materialize."
    return ""


COMMANDS = (
    cli.Command(
        QueryOptions,
        work,
        arguments=("data_dir", "clause"),
        groups=GROUPS,
        hint=_hint,
    ),
)

if __name__ == "__main__":
    cli.run(*COMMANDS)
