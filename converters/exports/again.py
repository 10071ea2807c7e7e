"""The way back: the command that makes a data set of an export, and its limits.

In: the plan of an export. Out: the command, and what does not come back, for people.
"""

import collections
import os
import pathlib
import shlex
from typing import Any

from converters.exports import naming, parquet, tree
from converters.exports.plan import ExportPlan
from converters.images.policy import Policy, policy_of
from converters.inputs.exported import COLUMNS_NAME

FOLDER_COMMAND = "converters.folder"
_COMMANDS = {
    "tree": FOLDER_COMMAND,
    "webdataset": "converters.webdataset",
    "parquet": "converters.table",
}
# Stored images have been changed already: only these policies could change them, or
# leave them out, once more.
_KEPT_FIELDS = (
    *("truncated", "decode"),
    *("max_pixels", "max_decoded_pixels", "max_image_bytes"),
)


def command(plan: ExportPlan) -> str | None:
    """Returns the converter that reads an export; None if there is none."""
    if plan.kind == "tree" and tree.is_imagenet(plan):
        return naming.IMAGENET
    return _COMMANDS.get(plan.kind)


def command_line(plan: ExportPlan, output_dir: pathlib.Path) -> dict[str, str]:
    """Returns the command that makes a data set of an export, as `convert_again`.

    Args:
        plan: The plan.
        output_dir: Folder of the export.
    """
    if (module := command(plan)) is None:
        return {}
    known = plan.source.known
    options = known.made_by.get("options", {})
    place = "input_dir" if plan.kind == "tree" else "input"
    flags = {place: os.fspath(output_dir), "output_dir": "DIR"}
    if module != naming.IMAGENET:
        flags["name"] = known.name
    # A split of a subset may have fewer images than the whole has shards.
    for split, number in collections.Counter(p.split for p in plan.parts).items():
        flags[f"num_{split}_shards"] = str(number)
    flags["seed"] = str(options.get("seed", 0))
    if (layout := options.get("layout", "inception")) != "inception":
        flags["layout"] = layout
    flags["exif_orientation"] = "keep"  # stored images have been turned already
    flags |= _policy_flags(options.get("policy"))
    words = [f"--{name}={value}" for name, value in flags.items()]
    return {"convert_again": shlex.join(["python", "-m", module, *words])}


def _policy_flags(fields: dict[str, Any] | None) -> dict[str, str]:
    """Returns the flags without which an image of the data set could be left out."""
    if fields is None:
        return {}
    # Images that stood a full decode pass without the flag, whatever is decoded then.
    policy, default = policy_of(fields), Policy(decode="full")
    return {
        name: str(getattr(policy, name))
        for name in _KEPT_FIELDS
        if getattr(policy, name) != getattr(default, name)
    }


def is_identical(plan: ExportPlan) -> bool:
    """Whether that command writes the same shards, if all splits are exported."""
    known = plan.source.known
    return (
        plan.kind == "tree"
        and known.made_by.get("command") == command(plan)
        and plan.style == "source"
        and plan.source.num_records == plan.num_records
        and "seed" in known.made_by.get("options", {})
    )


def limits(plan: ExportPlan, num_boxes: int) -> list[str]:
    """Returns a line for all that the files cannot hold or no command reads back.

    Args:
        plan: The plan.
        num_boxes: Number of bounding boxes of the records.
    """
    lines, module = [], command(plan)
    files = parquet.more_types(plan) if plan.kind == "parquet" else plan.columns
    if absent := sorted(set(plan.columns) - set(files)):
        lines.append(
            f"The Parquet files lack {', '.join(absent)}: its name is taken, or "
            f"`datasets` cannot read its type. {COLUMNS_NAME} holds it."
        )
    if module is None:
        lines.append(f"No converter reads {plan.kind} files back.")
    elif num_boxes and module != naming.IMAGENET:
        lines.append(f"{module} does not read {num_boxes:,} bounding boxes back.")
    return lines
