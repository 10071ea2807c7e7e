"""The command that converts an exported tree again, and whether its shards are equal.

In: the plan of a tree. Out: one line for a shell. Nothing is read here.
"""

import collections
import os
import pathlib
import shlex

from converters.exports import naming, tree
from converters.exports.plan import ExportPlan
from converters.exports.source import Source
from converters.images.policy import Policy, policy_of
from converters.jobs import side_files

FOLDER = "converters.folder"

# Stored images have been changed already: only these policies could change them, or
# leave them out, once more.
_KEPT_FIELDS = (
    *("truncated", "decode"),
    *("max_pixels", "max_decoded_pixels", "max_image_bytes"),
)


def command_line(plan: ExportPlan, output_dir: pathlib.Path) -> str:
    """Returns the command that makes a data set of an exported tree.

    Args:
        plan: The plan of the tree.
        output_dir: Folder of the tree.
    """
    known = plan.source.known
    options = known.made_by.get("options", {})
    is_imagenet = tree.is_imagenet(plan)
    flags = {"input_dir": os.fspath(output_dir), "output_dir": "DIR"}
    if not is_imagenet:
        flags["label_map"] = os.fspath(output_dir / side_files.LABELS_NAME)
        flags["name"] = known.name
    # A split of a subset may have fewer images than the whole has shards.
    for split, number in collections.Counter(p.split for p in plan.parts).items():
        flags[f"num_{split}_shards"] = str(number)
    flags["seed"] = str(options.get("seed", 0))
    if (layout := options.get("layout", "inception")) != "inception":
        flags["layout"] = layout
    flags["exif_orientation"] = "keep"  # stored images have been turned already
    flags |= _policy_flags(plan.source)
    module = naming.IMAGENET if is_imagenet else FOLDER
    given = [f"--{name}={value}" for name, value in flags.items()]
    return shlex.join(["python", "-m", module, *given])


def _policy_flags(source: Source) -> dict[str, str]:
    """Returns the flags without which an image of the data set could be left out."""
    fields = source.known.made_by.get("options", {}).get("policy")
    if fields is None:
        return {}
    made, default = policy_of(fields), Policy()
    return {
        name: str(getattr(made, name))
        for name in _KEPT_FIELDS
        if getattr(made, name) != getattr(default, name)
    }


def is_identical(plan: ExportPlan) -> bool:
    """Whether that command writes the same shards, if all splits are exported."""
    known = plan.source.known
    command = known.made_by.get("command")
    reader = naming.IMAGENET if tree.is_imagenet(plan) else FOLDER
    num_records = sum(known.num_records(split) for split in known.splits)
    options = known.made_by.get("options", {})
    return (
        command == reader
        and plan.style == "source"
        and num_records == plan.num_records
        and "seed" in options
    )
