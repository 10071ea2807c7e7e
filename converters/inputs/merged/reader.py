"""Joins several inputs under the names of their sources.

In: places with names, and options by name. Out: a `Listed`, whose files are URLs or
relative to the folder above all sources. Each source has the `Reader` of its kind.
"""

import dataclasses
import functools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from converters.inputs import files, labels, listing, meaning, reading
from converters.inputs.class_lists import ClassList
from converters.inputs.files import State
from converters.inputs.image import Image
from converters.inputs.listed import Listed, ordered
from converters.inputs.listing import LeftOut
from converters.inputs.meaning import Meaning
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
        sources: Path, pattern or URL of each source, by name.
        class_map: File with the new classes of a source, by its name.
        how: Values of the flags of `sources.FLAGS`, by flag and name of the source.
        on_null: What to do about an image without a label.
        file_in_names: Whether names of images in archives begin with that of the file.
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
        return recorded

    @property
    def slow_files(self) -> Sequence[str] | None:
        slow = [source.reader.slow_files for source in self.checked]
        if all(each is None for each in slow):
            return None
        return [file for each in slow for file in each or ()]

    def list_images(self, meaning: Meaning, workspace: Workspace) -> Listed:
        checked = self.checked
        _require_trees_apart(checked)
        names: Mapping[int, str] = {}
        if self.label_map is not None:
            path = files.path_of("--label_map", self.label_map)
            labels_of = labels.read_label_map(path, self.label_base)
            names = {label: name for name, label in labels_of.items()}
        found = [
            (each, _named(each.name, _list, each, meaning, workspace))
            for each in checked
        ]
        return _joined(found, names, meaning.label_type)

    @functools.cached_property
    def checked(self) -> Sequence[MergeSource]:
        """Returns the sources in the order of their names, which decides all bytes."""
        return [_named(name, self._source, name) for name in sorted(self.sources)]

    def _source(self, name: str) -> MergeSource:
        class_map = {}
        if name in self.class_map:
            path = files.path_of(f"--class_map={name}", self.class_map[name])
            class_map = sources.read_class_map(path)
        place = self.sources[name]
        kind = sources.kind_of(place)
        options = {f: values[name] for f, values in self.how.items() if name in values}
        same = {"on_null": self.on_null, "file_in_names": self.file_in_names}
        return MergeSource(
            name=name,
            place=place,
            kind=kind,
            reader=sources.reader_of(name, place, kind, options, **same),
            class_map=class_map,
            options=options,
        )


def _list(source: MergeSource, meaning: Meaning, workspace: Workspace) -> Listed:
    listed = source.reader.list_images(meaning, workspace)
    for name, classes in listed.several.items():
        row = listed.rows.row_of[name] if listed.rows else 0
        raise ValueError(
            f"Each image of a merge must have one label, got {len(classes)} for row "
            f"{row} ({name}). Choose one in --query, as in label[1] AS label."
        )
    if source.kind == sources.TREE:
        listed = listed._replace(apart=[listed.folder])
    return listed.named()


def _named(name: str, work: Callable[..., _Result], *arguments: Any) -> _Result:
    """Calls a function about a source; its errors name the source."""
    try:
        return work(*arguments)
    except (ValueError, errors.BadIndexError, errors.RemoteError) as error:
        kind, cause = type(error), error
    except OSError as error:
        # An error with a number shows no other text.
        raise OSError(f"Source {name}: {error}") from error
    # The readers know the place by the flags of their own commands.
    text = re.sub(r"--input(_dir)?\b", "its place", str(cause))
    raise (ValueError if isinstance(cause, ValueError) else kind)(
        f"Source {name}: {text}"
    ) from cause


_Found = Sequence[tuple[MergeSource, Listed]]


def _joined(
    found: _Found, names: Mapping[int, str], label_type: meaning.LabelType | None
) -> Listed:
    """Joins sources.

    Args:
        found: The sources with their images.
        names: Names of classes that are numbers; no name leaves the numbers.
        label_type: Value of --label_type.

    Raises:
        ValueError: If a source lacks a class of its class map, some sources have
            numeric classes and others have names, or images are in two sources.
    """
    _require_own_files(found)
    folder = _folder_above(found)
    splits: dict[str, dict[str, list[Image]]] = {}
    left_out: list[LeftOut] = []
    texts: dict[str, str] = {}
    unnamed: dict[str, str] = {}
    states: dict[str, State] = {}
    for source, as_listed in found:
        listed = as_listed.of_type(label_type)
        own = listed.class_names()
        is_number = meaning.label_type(own, label_type) == meaning.NUMBER
        renamed = _new_names(source, own, names if is_number else {})
        above = _relative(listed.folder, folder)
        states |= {above + file: state for file, state in listed.states.items()}
        left_out += (item.under(f"{source.name}/") for item in listed.left_out)
        for split, classes in listed.splits.items():
            joined = splits.setdefault(split, {})
            for old, images in classes.items():
                moved = [_moved(source, listed.folder, above, each) for each in images]
                if new := renamed.get(old, old):
                    joined.setdefault(new, []).extend(moved)
                else:
                    left_out += (LeftOut(i.name, listing.NOT_MAPPED) for i in moved)
        for name in sorted(set(own) - set(renamed)):
            if listed.classes.texts.get(name, name) != name:
                texts.setdefault(name, listed.classes.texts[name])
            if is_number:
                unnamed.setdefault(source.name, name)
    _require_classes(splits)
    apart = [folder for _, listed in found for folder in listed.folders_of_images()]
    counts = [listed.num_rows for _, listed in found]
    num_rows = None if None in counts else sum(filter(None, counts))
    whole = Listed(
        folder, ordered(splits), left_out, ClassList(texts=texts), states=states
    )
    _require_one_type(whole.class_names(), unnamed)
    return whole._replace(num_rows=num_rows, apart=apart)


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


def _new_names(
    source: MergeSource, classes: Sequence[str], names: Mapping[int, str]
) -> Mapping[str, str]:
    """Returns the new names of renamed classes, by their old name."""
    missing = sorted(set(source.class_map) - set(classes))
    if missing:
        raise ValueError(
            f"--class_map of {source.name!r} must name classes of that source, got "
            f"{missing[0]!r}. It has {len(classes)}, the first is {classes[0]!r}."
        )
    if not names:
        return source.class_map
    for label in classes:
        if label not in source.class_map and int(label) not in names:
            raise ValueError(
                f"--label_map must name the class of each number of {source.name!r}, "
                f"got no name for {label}."
            )
    named = {label: names.get(int(label), "") for label in classes}
    return {**named, **source.class_map}


def _require_one_type(names: Sequence[str], unnamed: Mapping[str, str]) -> None:
    """Refuses numbers of a source beside names of another."""
    for source, class_name in unnamed.items():
        for name in names:
            if meaning.label_type([name], None) == meaning.TEXT:
                raise ValueError(
                    "Classes of all sources must be names, or all must be numbers, "
                    f"got {class_name} of {source!r} beside {name!r}. Name them with "
                    f"--class_map={source}=FILE, in lines of a number, a tab and a "
                    "class."
                )


def _require_classes(splits: Mapping[str, Mapping[str, Sequence[Image]]]) -> None:
    for split, joined in splits.items():
        if not joined:
            raise ValueError(
                f"Split {split} must have at least one class, got none: --class_map "
                "leaves out all of them."
            )


def _require_own_files(found: _Found) -> None:
    """Refuses archives in two sources."""
    owners: dict[str, str] = {}
    for source, listed in found:
        if source.kind in (sources.TREE, sources.TABLE):
            continue
        for file in sorted({image.file for image in listed.images()}):
            shown = listed.folder.resolve(file).shown
            owner = owners.setdefault(shown, source.name)
            if owner != source.name:
                raise ValueError(
                    f"Sources must have files of their own, got {shown} in {owner!r} "
                    f"and in {source.name!r}."
                )


def _require_trees_apart(checked: Sequence[MergeSource]) -> None:
    """Refuses trees inside other trees."""
    trees: dict[Location, str] = {}
    for source in checked:
        if source.kind != sources.TREE:
            continue
        tree = Location.from_user("A place", source.place, expand_user=True)
        for other, owner in trees.items():
            if tree.is_in(other) or other.is_in(tree):
                raise ValueError(
                    "Sources must be folders beside each other, got "
                    f"{tree.shown} for {source.name!r}, which has images of {owner!r} "
                    "too."
                )
        trees[tree] = source.name
