"""Joins several inputs under the names of their sources.

In: places with names, and options by name. Out: a `Listed`, whose files are URLs or
relative to the folder above all sources. Each source has the `Reader` of its kind.
"""

import dataclasses
import functools
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from converters.inputs import exported, files, labels, listing, reading
from converters.inputs.class_lists import ClassList
from converters.inputs.image import Image
from converters.inputs.listed import Listed, ordered
from converters.inputs.listing import LeftOut
from converters.inputs.meaning import NUMBER, TEXT, LabelType, Meaning, label_type
from converters.inputs.merged import sources
from converters.inputs.merged.sources import MergeSource
from converters.inputs.reader import Reader, Workspace
from converters.inputs.tables import columns, servers
from tfpipe import errors
from tfpipe.location.location import Location

_Result = TypeVar("_Result")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MergeReader(Reader):
    """Reads several inputs as one; the flags of the same names describe the fields.

    Attributes:
        how: Values of the flags of `sources.HOW`, by flag and name of the source.

    Raises:
        ValueError: If values do not fit together.
    """

    sources: Mapping[str, str] = dataclasses.field(repr=False)
    class_map: Mapping[str, str] = dataclasses.field(default_factory=dict)
    how: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    on_null: str = columns.FAIL
    file_in_names: bool = False
    extra_in_records: bool = False
    label_map: str | None = None
    label_base: int | None = None

    def __post_init__(self) -> None:
        if not self.sources:
            raise ValueError("Sources must be given as NAME=PLACE, got none.")
        for flag, values in {"class_map": self.class_map, **self.how}.items():
            for name in values:
                if name not in self.sources:
                    raise ValueError(
                        f"--{flag} must be of one of the sources "
                        f"{', '.join(self.sources)}, got {name!r}."
                    )

    def to_json(self) -> dict[str, Any]:
        shown = {name: servers.shown(place) for name, place in self.sources.items()}
        return dataclasses.asdict(self) | {"sources": shown}

    @property
    def recorded(self) -> Mapping[str, Any]:
        maps = {source.name: dict(source.class_map) for source in self.checked}
        recorded: dict[str, Any] = {"sources": maps}
        how = {
            each.name: {k: v for k, v in each.options.items() if k != "root"}
            | {"kind": each.kind}
            for each in self.checked
            if each.kind != sources.TREE
        }
        if how:
            recorded |= {"how": how, "on_null": self.on_null}
            recorded["file_in_names"] = self.file_in_names
        if self.extra_in_records:
            recorded[columns.IN_RECORDS_OPTION] = True
        return recorded

    @property
    def slow_files(self) -> Sequence[str] | None:
        slow = [source.reader.slow_files for source in self.checked]
        if all(each is None for each in slow):
            return None
        return [file for each in slow for file in each or ()]

    def list_images(self, meaning: Meaning, workspace: Workspace) -> Listed:
        names: Mapping[int, str] = {}
        if self.label_map is not None:
            path = files.path_of("--label_map", self.label_map)
            labels_of = labels.read_label_map(path, self.label_base)
            names = {label: name for name, label in labels_of.items()}
        found = [
            (each, _named(each.name, _list, each, names, meaning, workspace))
            for each in self.checked
        ]
        _require_own_files(found)
        if meaning.label_type != TEXT:
            _require_one_type(found)
        return _joined(found, in_records=self.extra_in_records)

    @functools.cached_property
    def checked(self) -> Sequence[MergeSource]:
        """Returns the sources in the order of their names, which decides all bytes."""
        return [_named(name, self._source, name) for name in sorted(self.sources)]

    def _source(self, name: str) -> MergeSource:
        return sources.source_of(
            name,
            self.sources[name],
            {flag: values[name] for flag, values in self.how.items() if name in values},
            self.class_map.get(name),
            on_null=self.on_null,
            file_in_names=self.file_in_names,
        )


def _list(
    source: MergeSource,
    names: Mapping[int, str],
    meaning: Meaning,
    workspace: Workspace,
) -> Listed:
    """Lists a source; its classes have their new names, an empty one to leave out."""
    listed = source.reader.list_images(meaning, workspace)
    listed = listed._replace(apart=listed.folders_of_images())
    if source.kind == sources.TREE:
        listed = listed._replace(apart=[listed.folder])
    listed = listed.named().of_type(meaning.label_type)
    listed = exported.with_columns(listed, workspace)
    own = listed.class_names()
    if missing := sorted(set(source.class_map) - set(own)):
        raise ValueError(
            f"--class_map of {source.name!r} must name classes of that source, got "
            f"{missing[0]!r}. It has {len(own)}, the first is {own[0]!r}."
        )
    if names and _are_numbers(own, meaning.label_type):
        mapped = {int(number): name for number, name in source.class_map.items()}
        return listed.named({**names, **mapped}, names_from="--label_map")
    return listed.renamed(source.class_map)


def _named(name: str, work: Callable[..., _Result], *arguments: Any) -> _Result:
    """Calls a function about a source; its errors name the source."""
    try:
        return work(*arguments)
    except (ValueError, errors.BadIndexError, errors.RemoteError) as error:
        kind, cause = type(error), error
    except OSError as error:
        if error.errno is not None:  # its path names the place of the source
            raise
        raise OSError(f"Source {name}: {error}") from error
    # The readers know the place by the flags of their own commands.
    text = re.sub(r"--input(_dir)?\b", "its place", str(cause))
    raise (ValueError if isinstance(cause, ValueError) else kind)(
        f"Source {name}: {text}"
    ) from cause


_Found = Sequence[tuple[MergeSource, Listed]]


def _joined(found: _Found, *, in_records: bool) -> Listed:
    """Joins sources; a class of one name is one class, and splits are as well.

    Raises:
        ValueError: If class maps leave out all classes of a split.
    """
    top = _folder_above(found)
    parts = [_in_merge(source, listed, top) for source, listed in found]
    splits: dict[str, dict[str, list[Image]]] = {}
    for part in parts:
        for split, classes in part.splits.items():
            joined = splits.setdefault(split, {})
            for name, images in classes.items():
                joined.setdefault(name, []).extend(images)
    for split in splits:
        if not splits[split]:
            raise ValueError(
                f"Split {split} must have at least one class, got none: --class_map "
                "leaves out all of them."
            )
    texts: dict[str, str] = {}
    for part in parts:
        own = part.classes.texts
        texts = {n: text for n, text in own.items() if n != text} | texts
    counts = [part.num_rows for part in parts]
    return Listed(
        top,
        ordered(splits),
        [item for part in parts for item in part.left_out],
        ClassList(texts=texts),
        several={n: classes for part in parts for n, classes in part.several.items()},
        states={file: state for part in parts for file, state in part.states.items()},
        rows=[r._replace(in_records=in_records) for part in parts for r in part.rows],
        num_rows=None if None in counts else sum(filter(None, counts)),
        apart=[folder for part in parts for folder in part.apart],
    )


def _in_merge(source: MergeSource, listed: Listed, top: Location) -> Listed:
    """Returns the images of a source by their names in the merge, below the top folder.

    A class without a name is left out.
    """
    prefix, folder, above = f"{source.name}/", listed.folder, ""
    if folder.is_local:
        path = os.path.relpath(os.path.realpath(folder.path), top.path)
        above = "" if path == "." else f"{path}/"
    several = {name: _kept(names) for name, names in listed.several.items()}
    left_out = [item.under(prefix) for item in listed.left_out]
    splits: dict[str, dict[str, list[Image]]] = {}
    for split, classes in listed.splits.items():
        kept = splits[split] = {name: [] for name in filter(None, classes)}
        for name, images in classes.items():
            for image in images:
                is_url = reading.is_remote(folder, image.file)
                file = folder.resolve(image.file).text if is_url else above + image.file
                moved = image._replace(name=prefix + image.name, file=file)
                if names := several.get(image.name, _kept([name])):
                    kept.setdefault(names[0], []).append(moved)
                else:
                    left_out.append(LeftOut(moved.name, listing.NOT_MAPPED))
    rows = [
        each._replace(
            row_of={prefix + name: row for name, row in each.row_of.items()},
            source=source.name,
        )
        for each in listed.rows
        if each.columns
    ]
    return listed._replace(
        splits=splits,
        left_out=left_out,
        several={prefix + name: names for name, names in several.items()},
        states={above + file: state for file, state in listed.states.items()},
        rows=rows,
    )


def _kept(classes: Sequence[str]) -> list[str]:
    """Returns the classes of an image that a class map did not leave out, each once."""
    return [*dict.fromkeys(filter(None, classes))]


def _are_numbers(names: Sequence[str], chosen: LabelType | None) -> bool:
    return label_type(names, chosen) == NUMBER


def _folder_above(found: _Found) -> Location:
    """Returns the folder above all sources on this host, across no link."""
    local = [
        os.path.realpath(listed.folder.path)
        for _, listed in found
        if listed.folder.is_local
    ]
    return Location(os.path.commonpath(local)) if local else found[0][1].folder


def _require_one_type(found: _Found) -> None:
    """Refuses numbers of a source beside names of another."""
    names = {name for _, listed in found for name in listed.class_names() if name}
    words = sorted(name for name in names if not _are_numbers([name], None))
    for source, listed in found:
        kept = set(listed.class_names()) - set(source.class_map.values())
        if words and kept and kept.isdisjoint(words):
            raise ValueError(
                "Classes of all sources must be names, or all must be numbers, "
                f"got {min(kept)} of {source.name!r} beside {words[0]!r}. Name them "
                f"with --class_map={source.name}=FILE, in lines of a number, a tab and "
                "a class."
            )


def _require_own_files(found: _Found) -> None:
    """Refuses archives and folders of a tree in two sources."""
    owners: dict[str, str] = {}
    for source, listed in found:
        files: Iterable[str] = (image.file for image in listed.images())
        if source.kind == sources.TREE:
            files = (file.rpartition("/")[0] for file in files)
        for file in sorted(set(files)) if source.kind != sources.TABLE else ():
            shown = listed.folder.resolve(file).shown
            owner = owners.setdefault(shown, source.name)
            if owner != source.name:
                raise ValueError(
                    f"Sources must have files of their own, got {shown} in {owner!r} "
                    f"and in {source.name!r}. Leave one of the sources out, or name "
                    "folders beside each other."
                )
