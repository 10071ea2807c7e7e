"""Joins several inputs under the names of their sources.

In: places with names, and options by name. Out: a `Listed`, whose files are URLs or
relative to the folder above all sources. Each source has the `Reader` of its kind.
"""

import dataclasses
import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from converters.inputs import files, labels, listing, meaning, reading
from converters.inputs.class_lists import ClassList
from converters.inputs.image import Image
from converters.inputs.listed import ImageRows, Listed, Splits, ordered
from converters.inputs.listing import LeftOut
from converters.inputs.meaning import Meaning
from converters.inputs.merged import sources
from converters.inputs.merged.sources import MergeSource
from converters.inputs.reader import Reader, Workspace
from converters.inputs.reading import State
from converters.inputs.tables import columns, extras, servers
from tfpipe import errors
from tfpipe.location.location import Location

_Result = TypeVar("_Result")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MergeReader(Reader):
    """Reads several inputs as one; the flags of the same names describe the fields.

    Attributes:
        sources: Path, pattern or URL of each source, by name.
        class_map: File with the new classes of a source, by its name.
        how: Values of the flags of `sources.HOW`, by flag and name of the source.
        on_null: What to do about an image without a label.
        file_in_names: Whether names of images in archives begin with that of the file.
        extra_in_records: Whether records get the further columns of the sources too.
        label_map: File of --label_map, for sources whose classes are numbers.
        label_base: Value of --label_base.

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
        recorded: dict[str, Any] = {"sources": {}}
        for source in self.checked:
            recorded["sources"][source.name] = dict(source.class_map)
            if source.kind != sources.TREE:
                how = {f: text for f, text in source.options.items() if f != "root"}
                how |= {"kind": source.kind}
                recorded.setdefault("how", {})[source.name] = how
        if "how" in recorded:
            recorded["on_null"] = self.on_null
            recorded["file_in_names"] = self.file_in_names
        if self.extra_in_records:
            recorded[extras.IN_RECORDS_OPTION] = True
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
        return _joined(found, meaning.label_type, in_records=self.extra_in_records)

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
    listed = extras.with_export(listed, workspace)
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


def _joined(
    found: _Found, label_type: meaning.LabelType | None, *, in_records: bool
) -> Listed:
    """Joins sources.

    Args:
        found: The sources with their images.
        label_type: Value of --label_type.
        in_records: Value of --extra_in_records.

    Raises:
        ValueError: If some sources have numeric classes and others have names, or
            images are in two sources.
    """
    _require_own_files(found)
    folder = _folder_above(found)
    splits: dict[str, dict[str, list[Image]]] = {}
    left_out: list[LeftOut] = []
    texts: dict[str, str] = {}
    states: dict[str, State] = {}
    several: dict[str, Sequence[str]] = {}
    for source, listed in found:
        above = _relative(listed.folder, folder)
        states |= {above + file: state for file, state in listed.states.items()}
        left_out += (item.under(f"{source.name}/") for item in listed.left_out)
        for split, classes in listed.splits.items():
            joined = splits.setdefault(split, {})
            joined |= {name: joined.get(name, []) for name in filter(None, classes)}
        for split, kept, image in _images(source, listed, above):
            if kept:
                splits[split].setdefault(kept[0], []).append(image)
            else:
                left_out.append(LeftOut(image.name, listing.NOT_MAPPED))
        several |= {
            f"{source.name}/{name}": _kept(classes)
            for name, classes in listed.several.items()
        }
        own = listed.classes.texts
        texts = {n: text for n, text in own.items() if n != text} | texts
    _require_classes(splits)
    if label_type != meaning.TEXT:
        _require_one_type(found)
    counts = [listed.num_rows for _, listed in found]
    return Listed(
        folder,
        ordered(splits),
        left_out,
        ClassList(texts=texts),
        several=several,
        states=states,
        rows=_rows(found, in_records),
        num_rows=None if None in counts else sum(filter(None, counts)),
        apart=[each for _, listed in found for each in listed.apart],
    )


def _images(
    source: MergeSource, listed: Listed, above: str
) -> Iterator[tuple[str, list[str], Image]]:
    """Yields split, classes and the image by its name in the merge, for each image."""
    for split, classes in listed.splits.items():
        for name, images in classes.items():
            for image in images:
                kept = _kept(listed.several.get(image.name, [name]))
                yield split, kept, _moved(source, listed.folder, above, image)


def _kept(classes: Sequence[str]) -> list[str]:
    """Returns the classes of an image that a class map did not leave out, each once."""
    return [*dict.fromkeys(filter(None, classes))]


def _require_classes(splits: Splits) -> None:
    for split, classes in splits.items():
        if not classes:
            raise ValueError(
                f"Split {split} must have at least one class, got none: --class_map "
                "leaves out all of them."
            )


def _rows(found: _Found, in_records: bool) -> list[ImageRows]:
    """Returns the rows of all sources by the names of their images in the merge."""
    return [
        each._replace(
            row_of={f"{source.name}/{name}": row for name, row in each.row_of.items()},
            in_records=in_records,
            source=source.name,
        )
        for source, listed in found
        for each in listed.rows
        if each.columns
    ]


def _are_numbers(names: Sequence[str], chosen: meaning.LabelType | None) -> bool:
    return meaning.label_type(names, chosen) == meaning.NUMBER


def _folder_above(found: _Found) -> Location:
    """Returns the folder above all sources on this host, across no link."""
    local = [
        os.path.realpath(listed.folder.path)
        for _, listed in found
        if listed.folder.is_local
    ]
    return Location(os.path.commonpath(local)) if local else found[0][1].folder


def _relative(folder: Location, above: Location) -> str:
    """Returns the path from a folder above to a folder, with a slash at its end."""
    if not folder.is_local:
        return ""
    path = os.path.relpath(os.path.realpath(folder.path), above.path)
    return "" if path == "." else f"{path}/"


def _moved(source: MergeSource, folder: Location, above: str, image: Image) -> Image:
    """Returns an image of a source under the name of the source."""
    if reading.is_remote(folder, image.file):
        file = folder.resolve(image.file).text
    else:
        file = above + image.file
    return image._replace(name=f"{source.name}/{image.name}", file=file)


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
