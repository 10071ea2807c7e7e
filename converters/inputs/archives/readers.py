"""The images of many files of a kind, by split and class.

In: files, and the reading of a file of their kind. Out: `Listed`: images by split and
class, and the names of classes beside the files. Several files are listed at a time;
the order of the images stays the same.
"""

import abc
import collections
import dataclasses
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from converters.inputs import patterns
from converters.inputs.classes import beside, exported, of_rows, only_list
from converters.inputs.image import Image
from converters.inputs.listed import Listed, Splits, ordered
from converters.inputs.listing import LeftOut, Reason
from converters.inputs.meaning import (
    TEXT,
    Meaning,
    is_no_label,
    is_readable,
    label_type,
    text_of_float,
    values_say_splits,
)
from converters.inputs.patterns import Archive
from converters.inputs.reader import Reader, Workspace
from tfpipe.cli import progress
from tfpipe.location import parts
from tfpipe.location.browse import Folder
from tfpipe.location.location import Location
from tfpipe.shards import first_record
from tfpipe.shards.split_names import split_of_name

# Begins a row of 0 and 1 as the class of an image, until the end of the list.
_ROW = "\0row "


class FoundImage(NamedTuple):
    """An image of a record or sample, its class, and its own split, if any."""

    class_name: str
    image: Image
    split: str | None = None


# A record or sample, or its name and why there is no image.
Found = FoundImage | LeftOut
# A file, its state before it was read, and its records or samples.
_Content = tuple[Archive, str, list[Found]]
# Lists a file, relative to the folder above all files.
ReadArchive = Callable[[Location, Archive], Iterable[Found]]


class NoClassError(Exception):
    """A record has no image or class, for a reason."""

    def __init__(self, reason: Reason) -> None:
        self.reason = reason


def class_of(value: Any) -> str:
    """Returns the class that a value of a record or a sample names.

    A row of 0 and 1 is a text of its own, until all rows are known.

    Raises:
        NoClassError: If there is no class, or the class cannot be read.
    """
    if isinstance(value, list | tuple) and len(value) == 1:
        (value,) = value
    if value is None:
        raise NoClassError(Reason.NO_LABEL)
    if isinstance(value, list | tuple):
        if not value or any(each not in (0, 1) for each in value):
            raise NoClassError(Reason.SEVERAL_LABELS)
        return _ROW + "".join(str(int(each)) for each in value)
    if isinstance(value, float) and (value := text_of_float(value)) is None:
        raise NoClassError(Reason.FLOAT_LABEL)
    if isinstance(value, bytes):
        try:
            value = value.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise NoClassError(Reason.BAD_LABEL) from None
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise NoClassError(Reason.BAD_LABEL)
    text = str(value).strip()
    if is_no_label(text):
        raise NoClassError(Reason.NO_LABEL)
    if not is_readable(text) or (isinstance(value, int) and value < 0):
        raise NoClassError(Reason.BAD_LABEL)
    return text


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArchiveReader(Reader, abc.ABC):
    """Reads files that hold many images each, by their paths, patterns or URLs."""

    input: Sequence[str]
    file_in_names: bool = False
    label_key: str | None = None

    kind: ClassVar[patterns.Kind]

    def __post_init__(self) -> None:
        if isinstance(self.input, str) or not self.input:
            raise ValueError(
                "--input must name at least one file, pattern, folder or URL, got "
                f"{self.input!r}."
            )
        if self.label_key is not None and not self.label_key.strip():
            raise ValueError("--label_key must be a key, got nothing.")

    @property
    def recorded(self) -> Mapping[str, Any]:
        others = ("input", "on_null")
        return {n: value for n, value in self.to_json().items() if n not in others}

    @property
    def label_keys(self) -> Sequence[str]:
        """Keys of the label in a record; TFDS names lists of classes by them."""
        return ()

    @property
    def says_splits(self) -> bool:
        """Whether records may say their splits."""
        return False

    @abc.abstractmethod
    def read_archive(self, folder: Location, archive: Archive) -> Iterable[Found]:
        """Lists the records of a file, relative to a folder, in their order."""

    def list_images(self, meaning: Meaning, workspace: Workspace) -> Listed:
        archives, tops = patterns.find(self.input, self.kind, meaning)
        is_split_said = any(patterns.split_of(word)[0] for word in self.input)
        listed = list_archives(
            archives,
            self.read_archive,
            file_in_names=self.file_in_names,
            own_splits=self.says_splits
            and meaning.split is None
            and meaning.split_names
            and not is_split_said,
        )
        is_text = label_type(listed.class_names(), meaning.label_type) == TEXT
        # The folders of the files, and the folders above in the flags.
        near = map(listed.folder.resolve, map(posixpath.dirname, listed.states))
        folders = dict.fromkeys([*near, *tops])
        # A list may also stand above all files, as beside `train` and `val`.
        lists = (
            exported(each) if is_text else beside(each, self.label_keys)
            for each in map(Folder, folders | {listed.folder: None})
        )
        listed = listed.with_list(only_list(lists, meaning))
        return listed if is_split_said else listed.in_folders(folders, meaning)


def list_archives(
    archives: Sequence[Archive],
    read: ReadArchive,
    *,
    file_in_names: bool,
    split_in_names: bool = True,
    own_splits: bool = False,
) -> Listed:
    """Lists the images of all files; several threads call `read`.

    The name of an image begins with its split, unless `split_in_names` is False, and
    with `file_in_names` with split and file. With `own_splits` images may say splits.
    """
    folder, archives = patterns.relative_to_one(archives)
    splits: dict[str, dict[str, list[Image]]] = {}
    left_out: list[LeftOut] = []
    owners: dict[str, str] = {}
    num_rows, states, warnings = 0, {}, list[str]()
    contents: Iterable[_Content] = _contents(folder, archives, read)
    if own_splits:
        contents = _by_own_splits([*contents], warnings)
    for archive, state, found in contents:
        prefix = f"{archive.split}/" if split_in_names else ""
        if file_in_names:
            base = archive.file.rpartition("/")[2].removesuffix(".tar")
            prefix = f"{archive.split}/{base}/"
        classes = splits.setdefault(archive.split, collections.defaultdict(list))
        for each in found:
            if isinstance(each, LeftOut):
                left_out.append(each.under(f"{archive.file}/"))
                continue
            image = each.image._replace(name=prefix + each.image.name)
            if image.name in owners:
                files = (owners[image.name], image.file)
                first, second = (folder.resolve(file).shown for file in files)
                raise ValueError(
                    f"An image must have a name of its own, but {each.image.name} is "
                    f"in {first} and in {second}. If these are two files, "
                    "--file_in_names puts the file before the name of the image."
                )
            owners[image.name] = archive.file
            classes[each.class_name].append(image)
        num_rows += len(found)
        states[archive.file] = state
    _require_images(splits, left_out)
    listed = Listed(folder, splits, left_out, states=states, num_rows=num_rows)
    return _without_rows(listed._replace(warnings=warnings))


def _by_own_splits(
    contents: Sequence[_Content], warnings: list[str]
) -> Iterator[_Content]:
    """Yields each file once for each split of its images, if all values are splits."""
    images = (each for *_, records in contents for each in records)
    values = (each.split for each in images if isinstance(each, FoundImage))
    says, warning = values_say_splits(values, "key")
    warnings += [warning] if warning else []
    for archive, state, records in contents:
        if not says:
            yield archive, state, records
            continue
        by_split: dict[str, list[Found]] = {}
        faults: list[Found] = []
        for each in records:
            if isinstance(each, LeftOut):
                faults.append(each)
            elif split := split_of_name(each.split or ""):
                by_split.setdefault(split, []).append(each)
            else:
                faults.append(LeftOut(each.image.name, Reason.NULL_SPLIT))
        first = next(iter(by_split), archive.split)
        by_split.setdefault(first, []).extend(faults)
        for split, images_of in by_split.items():
            yield archive._replace(split=split), state, images_of


def _contents(
    folder: Location, archives: Sequence[Archive], read: ReadArchive
) -> Iterator[_Content]:
    """Yields each file with its state before it was read, and its records."""

    def look(archive: Archive) -> _Content:
        location = folder.resolve(archive.file)
        state = parts.state_of(location)
        return archive, state, list(read(folder, archive))

    with progress.bar(len(archives), "file") as bar:
        for seen in parts.in_threads(look, archives):
            yield seen
            bar.update()


def _require_images(splits: Splits, left_out: Sequence[LeftOut]) -> None:
    for split, classes in splits.items():
        if not classes:
            counts = collections.Counter(item.reason for item in left_out)
            reasons = "; ".join(
                f"{count:,} because {reason.value}" for reason, count in counts.items()
            )
            first = f", the first is {left_out[0].name}" if left_out else ""
            raise ValueError(
                f"The {split} files of --input must hold images with a class, got none"
                f"{first}. Left out: {reasons or 'nothing'}. See --help for where the "
                "class comes from."
            )


def _without_rows(listed: Listed) -> Listed:
    """Returns images whose classes are numbers where the classes are one-hot rows."""
    names = listed.class_names()
    rows = {name: name.removeprefix(_ROW) for name in names if name.startswith(_ROW)}
    if not rows:
        return listed._replace(splits=ordered(listed.splits))
    if len(rows) < len(names) or not first_record.is_one_hot(
        [[*map(int, row)] for row in rows.values()], None
    ):
        raise ValueError(
            "Labels must be one number or text for each image, or rows of 0 and 1 of "
            f"one length above 2, got {next(iter(rows.values()))} beside others. Name "
            "another feature with --label_key."
        )
    if several := [row for row in rows.values() if row.count("1") != 1]:
        raise ValueError(
            f"A row of a label must have one 1, got the row {several[0]}. Each image "
            "of these files has one class; name another feature with --label_key, or "
            "read the images as a table, whose rows may have several."
        )
    number_of = {name: str(row.index("1")) for name, row in rows.items()}
    return listed.renamed(number_of).with_list(of_rows(len(rows[names[0]])))
