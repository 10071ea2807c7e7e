"""Lists any class-per-directory tree as classes and named images.

In: a folder. A folder of images is a class, named by its path, so that classes
may be nested. Folders at the top whose names say splits are splits; otherwise all
images are of the split `train`. Out: the images by split and class. Files are
listed, not opened.
"""

import collections
import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from converters.inputs import devkit, listing
from converters.inputs.classes import EXPORT_FILES, ClassList, exported, texts
from converters.inputs.exported import COLUMNS_NAME
from converters.inputs.image import Image
from converters.inputs.listed import Listed, ordered
from converters.inputs.listing import LeftOut, Reason
from converters.inputs.meaning import Meaning, is_no_label
from converters.inputs.reader import Reader, Workspace
from tfpipe.location.browse import Folder
from tfpipe.shards import missing_index
from tfpipe.shards.split_names import SPLITS, TEST, TRAIN, split_of_name

# A folder is read once for every path to the folder, with links. Links from all
# folders to all other folders would turn a few folders into millions of classes.
_MAX_READS = 100
# Folders above the splits, each the only one in its folder.
_MAX_ABOVE = 8
# A folder below a class with all images of the class, as in Tiny-ImageNet.
_LIST_END = "_annotations.txt"
_LEAVES = {"images", "image", "imgs", "img", "JPEGImages"}

_Identity = tuple[int, int]  # device and inode; folders of a store have none


@dataclasses.dataclass(frozen=True, kw_only=True)
class TreeReader(Reader):
    """Reads a folder for each class, as its path or URL."""

    input_dir: str

    def list_images(self, meaning: Meaning, workspace: Workspace) -> Listed:
        """Lists the tree. Links are followed, but not in circles."""
        source = listing.input_folder(self.input_dir)
        devkit.refuse(source)
        report = listing.Report()
        left_out = report.left_out
        splits = {}
        for split, top in _split_folders(source, meaning, report).items():
            found = _walk(source, top, meaning.class_depth, report)
            if not found:
                where, here = source.shown(top), "converters.folder"
                remedy = missing_index.other_converter(where, here)
                if top and here in remedy:
                    remedy = " If it is a class and no split, say --no_split_names."
                raise ValueError(
                    f"{where} must hold a folder for each class, with images named "
                    "*.jpg, *.png or as another format that Pillow reads in it; got "
                    f"none.{remedy}"
                )
            splits[split] = _listed_classes(source, top, found, left_out) or found
            if not top and meaning.split_names:
                _require_classes(splits[split], meaning)
        if meaning.class_depth is None:
            splits = _without_leaf(splits, left_out)
        own = exported(source)
        if own.export is not None:
            report.forget({*EXPORT_FILES, COLUMNS_NAME})
        listed = Listed(
            source.location, ordered(splits), left_out, num_rows=report.num_names
        )
        listed = listed.in_folders([source.location], meaning)
        if not own.origin:
            names = texts(source, listed.class_names())
            return listed._replace(classes=ClassList(texts=names))
        return listed.with_list(own._replace(names={}))  # folders are names, also `7`


def _listed_classes(
    source: Folder,
    top: str,
    found: Mapping[str, Sequence[Image]],
    left_out: list[LeftOut],
) -> dict[str, list[Image]]:
    """Returns the images of a split by the list of classes in its folder, if any.

    Tiny-ImageNet has such a list, `val/val_annotations.txt`: a line for an image,
    with its name, its class and a box, with tabs between them.
    """
    others = listing.scan(source, top, suffixes=()).left_out if top else []
    lists = [f"{top}/{item.name}" for item in others if item.name.endswith(_LIST_END)]
    if len(lists) != 1:
        return {}
    lines = source.read_text(lists[0]).splitlines()
    class_of = dict(line.split("\t")[:2] for line in lines if line.count("\t"))
    classes: dict[str, list[Image]] = {}
    for image in itertools.chain.from_iterable(found.values()):
        if name := class_of.get(image.name.rpartition("/")[2]):
            classes.setdefault(name, []).append(image)
        else:
            left_out.append(LeftOut(image.name, Reason.NO_LABEL))
    return classes


def _require_classes(classes: Mapping[str, Sequence[Image]], meaning: Meaning) -> None:
    """Checks that the only folder of an input is not called as a split: val/1.jpg."""
    if len(classes) == 1 and meaning.class_depth is None:
        ((name, images),) = classes.items()
        if "/" not in name and split_of_name(name):
            raise _in_one_folder(name, images)


def _in_one_folder(name: str, images: Sequence[Image]) -> ValueError:
    return ValueError(
        f"Each class must have a folder, got all images in one folder {name}/, "
        f"the first is {images[0].name}. Make a folder for each class, or list paths "
        "and labels in a table for converters.table. --class_depth=1 takes the folder "
        "for a class."
    )


def _without_leaf(
    splits: dict[str, dict[str, list[Image]]], left_out: list[LeftOut]
) -> dict[str, dict[str, list[Image]]]:
    """Returns classes without the folder `images` at the end of all classes of train.

    An image of another split in the folder alone has no class.
    """
    leaves = {name.rpartition("/")[2] for name in splits.get(TRAIN, {})}
    if len(leaves) != 1 or not leaves <= _LEAVES or TRAIN not in splits:
        return splits
    (leaf,) = leaves
    if leaf in splits[TRAIN]:
        raise _in_one_folder(leaf, splits[TRAIN][leaf])
    for classes in splits.values():
        alone = classes.pop(leaf, [])
        left_out += (LeftOut(image.name, Reason.NO_CLASS_FOLDER) for image in alone)
    return {
        split: {name.removesuffix(f"/{leaf}"): classes[name] for name in classes}
        for split, classes in splits.items()
        if classes
    }


def _split_folders(
    source: Folder, meaning: Meaning, report: listing.Report
) -> dict[str, str]:
    """Returns the folders of the splits, relative to the input folder; "" is all."""
    whole = {meaning.split or TRAIN: ""}
    if meaning.split is not None or not meaning.split_names:
        return whole
    prefix, skipped = "", list[LeftOut]()
    for _ in range(_MAX_ABOVE):
        top = listing.scan(source, prefix)
        skipped += (item.under(prefix) for item in top.left_out)
        if named := _splits_of_level(source, prefix, top.folders):
            break
        if len(top.folders) != 1 or top.images:
            return whole
        prefix = f"{prefix}{top.folders[0]}/"
    else:
        return whole
    folder_of = {split: name for name, split in named.items()}
    for name, split in named.items():
        if folder_of[split] != name:
            raise ValueError(
                f"{source.shown(prefix)} must hold one {split} split, got {name}/ and "
                f"{folder_of[split]}/. Remove or rename one of them, or convert them "
                "apart."
            )
    others = sorted({*top.folders} - {*named})
    report.leave_out(skipped)
    report.leave_out(LeftOut(f"{prefix}{n}/", Reason.NOT_A_SPLIT) for n in others)
    report.leave_out(LeftOut(n, Reason.NO_CLASS_FOLDER) for n, *_ in top.images)
    return {
        split: _innermost(source, split, prefix + folder_of[split], report)
        for split in SPLITS
        if split in folder_of
    }


def _innermost(source: Folder, split: str, top: str, report: listing.Report) -> str:
    """Returns the folder of a split: train/train in place of train, if both exist."""
    here = listing.scan(source, top)
    if here.images or [*map(split_of_name, here.folders)] != [split]:
        return top
    below = f"{top}/{here.folders[0]}"
    inner = listing.scan(source, below)
    if inner.names or not inner.folders:  # a class with the name of the split
        return top
    report.leave_out(item.under(f"{top}/") for item in here.left_out)
    return _innermost(source, split, below, report)


def _splits_of_level(
    source: Folder, prefix: str, names: Sequence[str]
) -> dict[str, str]:
    """Returns the folders of a level that are splits, if the level is one of splits."""
    said = {name: split for name in names if (split := split_of_name(name))}
    scanned = {name: listing.scan(source, prefix + name) for name in said}
    # Folders of folders, without an image.
    divided = {
        name for name, here in scanned.items() if here.folders and not here.names
    }
    is_mixed = len(said) < len(names)
    splits = {said[name] for name in (divided if is_mixed else said)}
    if (not divided or is_mixed) and len(splits) < 2:
        return {}  # a class may be called `train`
    # Test images often have no class. Other images without a class are an error later.
    return {n: s for n, s in said.items() if s != TEST or n in divided}


def _walk(
    source: Folder, top: str, class_depth: int | None, report: listing.Report
) -> dict[str, list[Image]]:
    found: dict[str, list[Image]] = {}
    num_reads: collections.Counter[_Identity] = collections.Counter()
    # The class of a folder, the prefix of the names in the folder, the folders above.
    pending = [("", f"{top}/" if top else "", frozenset[_Identity]())]
    while pending:
        class_name, prefix, above = pending.pop()
        identity = source.identity(prefix)
        if identity in above:
            report.leave_out([LeftOut(prefix, Reason.LINK_LOOP)])
            continue
        if identity is not None:
            num_reads[identity] += 1
            if num_reads[identity] > _MAX_READS:
                raise ValueError(
                    f"A folder must be reached by at most {_MAX_READS} ways, got more "
                    f"for the one at {source.shown(prefix)}: links lead from folder to "
                    "folder. Remove the links that are not classes of their own."
                )
            above |= {identity}
        here = listing.scan(source, prefix)
        report.read(here, prefix)
        name = "/".join(class_name.split("/")[:class_depth])
        if here.images and is_no_label(name):
            reason = Reason.NO_LABEL if name else Reason.NO_CLASS_FOLDER
            report.left_out += (LeftOut(each.name, reason) for each in here.images)
        elif here.images:
            found.setdefault(name, []).extend(here.images)
        elif not here.folders:
            report.leave_out([LeftOut(prefix, Reason.EMPTY_FOLDER)])
        for name in reversed(here.folders):
            below = f"{class_name}/{name}" if class_name else name
            pending.append((below, f"{prefix}{name}/", above))
    return found
