"""The page about a data set: figures, charts and examples as one HTML document.

In: the connection of a question, its data set, and samples. Out: the text of a page
that needs no other file. The template escapes every text, so that a name in a data set
cannot become markup.
"""

import base64
import collections
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from converters.catalog import charts, counts, samples
from converters.catalog.samples import Sample
from converters.exports.sizing import shown
from converters.exports.source import Source
from converters.jobs import duplicates, publish
from tfpipe import errors
from tfpipe.errors import count_of
from tfpipe.location import atomic
from tfpipe.location.files import Files
from tfpipe.pages import page

if TYPE_CHECKING:
    import duckdb


_NUM_EXAMPLES = 5
_NUM_GROUPS = 8
# Records that are read for figures that no catalog has.
_NUM_READ = 128
_READ_SIDE = 64
_QUALITY = 80


def gather(
    source: Source,
    connection: "duckdb.DuckDBPyConnection",
    found: Mapping[str, Any],
    *,
    clause: str,
    drawn: Sequence[Sample],
    seed: int,
) -> dict[str, Any]:
    """Returns what the template shows.

    Args:
        source: The data set.
        connection: The connection of a question.
        found: What `counts.count` returned.
        clause: The condition of the question.
        drawn: Samples for the contact sheet; empty if no record is chosen.
        seed: Decides which records are read for more figures.

    Raises:
        OSError: If a file of the data set cannot be read.
        RemoteError: If a store cannot be read.
    """
    made_by = source.known.made_by
    rows = samples.draw(connection, _NUM_READ, seed=seed)
    read = samples.read(source, rows, side=_READ_SIDE)
    return {
        "name": source.known.name,
        "clause": "" if clause == "true" else clause,
        "tiles": _tiles(source, found),
        "gallery": [_picture(item) for item in drawn],
        "splits": charts.named_bars(list(found["splits"].items())),
        "classes": _classes(source, connection),
        "charts": charts.sizes(connection, found["sizes"]) if found["sizes"] else [],
        "encoding": _encoding(read),
        "boxes": _boxes(made_by, read),
        "decisions": charts.named_bars(_decisions(connection)),
        "rejects": _rejects(source),
        "duplicates": _duplicates(source),
        "made_by": json.dumps(
            {key: made_by[key] for key in ("command", "version") if key in made_by}
            | dict(made_by.get("options", {})),
            indent=1,
            ensure_ascii=False,
        ),
    }


def _tiles(source: Source, found: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Returns the most important figures: the figure, its name, a remark."""
    chosen, total = found["num_chosen"], found["num_records"]
    part = "" if chosen == total else f"{found['share']:.2%} of {total:,}"
    tiles = [
        (f"{chosen:,}", "records", part),
        (f"{found['num_classes']:,}", "classes", f"of {len(source.known.classes):,}"),
        (shown(found["num_bytes"]), "on disk", ""),
    ]
    if sizes := found["sizes"]:
        width, height = sizes["width"], sizes["height"]
        size = f"{width['median']:,} \N{MULTIPLICATION SIGN} {height['median']:,}"
        tiles.append((size, "pixels, median", f"largest side {_most(sizes):,}"))
        mean = shown(round(sizes["num_bytes"]["mean"]))
        tiles.append((mean, "a record, mean", ""))
    return tiles


def _most(sizes: Mapping[str, Mapping[str, int]]) -> int:
    return max(sizes["width"]["max"], sizes["height"]["max"])


def _picture(item: Sample) -> dict[str, str]:
    """Returns a sample for the gallery; its picture is a JPEG in base64."""
    row, content = item.row, ""
    if item.picture is not None:
        picture = samples.encode(item.picture, "JPEG", quality=_QUALITY)
        content = base64.b64encode(picture).decode()
    return {
        "content": content,
        "fault": item.fault,
        "name": row.name,
        "size": f"{row.width:,} \N{MULTIPLICATION SIGN} {row.height:,}",
        "file": row.filename.rpartition("/")[2],
    }


def _classes(
    source: Source, connection: "duckdb.DuckDBPyConnection"
) -> dict[str, Any] | None:
    """Returns the chart of the classes and what must be known about their balance."""
    listed = counts.count_classes(connection)
    if not listed:
        return None
    most, least = listed[0]["num_records"], listed[-1]["num_records"]
    sentence = f"Each class has {count_of(most, 'record')}."
    if most != least:
        sentence = (
            f"The largest class has {most:,} records, the smallest {least:,}: "
            f"a ratio of {most / least:,.1f}."
        )
    there = {item["label"] for item in listed}
    empty = [c.text or c.synset for c in source.classes if c.label not in there]
    pairs = [(counts.class_name(item), item["num_records"]) for item in listed]
    is_short = len(pairs) <= charts.MAX_NAMED_BARS
    return {
        "sentence": sentence,
        "bars": charts.named_bars(pairs) if is_short else [],
        "ranks": None if is_short else charts.ranks([n for _, n in pairs]),
        "largest": charts.named_bars(pairs[:10]) if most != least else [],
        "smallest": charts.named_bars(pairs[:-11:-1], most=most),
        "num_empty": len(empty),
        "empty": empty[:_NUM_EXAMPLES],
    }


def _encoding(read: Sequence[Sample]) -> dict[str, Any]:
    """Returns how the images of the records that were read are encoded."""
    found = collections.Counter(
        "cannot be read" if item.fault else item.subsampling or "not a JPEG"
        for item in read
    )
    return {"num_read": len(read), "bars": charts.named_bars(found.most_common())}


def _boxes(made_by: Mapping[str, Any], read: Sequence[Sample]) -> dict[str, Any]:
    """Returns figures about bounding boxes: of the conversion, and of the sample."""
    known = made_by.get("options", {}).get("boxes") or {}
    return {
        "counts": [(name.replace("_", " "), n) for name, n in known.items()],
        "num_read": len(read),
        "num_with": sum(item.num_boxes > 0 for item in read),
        "num_boxes": sum(item.num_boxes for item in read),
        "bars": charts.named_bars(
            [
                (count_of(number, "box"), count)
                for number, count in sorted(
                    collections.Counter(item.num_boxes for item in read).items()
                )
            ][: charts.MAX_NAMED_BARS]
        ),
    }


def _decisions(connection: "duckdb.DuckDBPyConnection") -> list[tuple[str, int]]:
    rows = connection.execute(
        "SELECT file.decision, count(*) FROM chosen JOIN file ON chosen.place = "
        "file.file_row_number GROUP BY 1 ORDER BY 2 DESC, 1"
    ).fetchall()
    return [(str(name or "not known"), number) for name, number in rows]


def _rejects(source: Source) -> list[dict[str, Any]]:
    """Returns the reasons why files were left out, with examples."""
    found: dict[str, dict[str, Any]] = {}
    for line in _lines(source, publish.REJECTS_NAME):
        reason = str(line.get("reason", "not known"))
        entry = found.setdefault(
            reason, {"reason": reason, "number": 0, "examples": []}
        )
        entry["number"] += 1
        if len(entry["examples"]) < _NUM_EXAMPLES:
            example = str(line.get("name", "")), str(line.get("detail", ""))
            entry["examples"].append(example)
    return sorted(found.values(), key=lambda entry: (-entry["number"], entry["reason"]))


def _duplicates(source: Source) -> dict[str, Any]:
    """Returns the groups of equal images and their counts."""
    counted = source.known.made_by.get("duplicates") or {}
    groups = []
    for line in _lines(source, duplicates.NAME):
        groups.append(
            {
                "names": [str(name) for name in line.get("names", ())][:_NUM_EXAMPLES],
                "number": len(line.get("names", ())),
                "splits": ", ".join(map(str, line.get("splits", ()))),
                "synsets": ", ".join(map(str, line.get("synsets", ()))),
            }
        )
        if len(groups) == _NUM_GROUPS:
            break
    return {
        "counts": [
            (name.removeprefix("num_").replace("_", " "), n)
            for name, n in counted.items()
        ],
        "any": any(counted.values()),
        "groups": groups,
    }


def _lines(source: Source, name: str) -> Sequence[Mapping[str, Any]]:
    """Returns the lines of a report of the conversion; none if there is no report."""
    files = source.files or Files(str(source.folder))
    try:
        content = files.read(name)
    except errors.MissingFileError:
        return []
    found = []
    for line in content.splitlines():
        try:
            document = errors.from_json(line)
        except ValueError:
            continue  # a line that a person edited
        if isinstance(document, dict):
            found.append(document)
    return found


def require_library() -> None:
    """Checks that Jinja2 is installed.

    Raises:
        ValueError: If it is not.
    """
    try:
        import jinja2  # noqa: F401
    except ImportError as error:
        raise ValueError("--report needs Jinja2: pip install jinja2.") from error


def render(found: Mapping[str, Any]) -> str:
    """Returns the page as HTML."""
    return page.render("converters.catalog", "page.html.j2", **found)


def write(text: str, path: pathlib.Path) -> None:
    """Writes a page in one step.

    Raises:
        OSError: If it cannot be written.
    """
    # Names of files may hold bytes that are no UTF-8.
    content = text.encode(errors="backslashreplace")
    atomic.write_chosen(path, content, fsync=False)
