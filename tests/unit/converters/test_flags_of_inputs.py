"""Each command for inputs has the flags that docs/concepts/inputs.md lists for it."""

import pathlib
import re
from typing import Any

from converters import folder, imagenet, merge, table, tfrecord, webdataset
from converters.inputs.merged import HOW
from converters.options import shared
from converters.options.job import ConvertOptions
from tfpipe.cli import fields

PAGE = pathlib.Path(__file__).parents[3] / "docs/concepts/inputs.md"
OPTIONS: dict[str, Any] = {
    "folder": folder.FolderOptions,
    "imagenet": imagenet.ImagenetOptions,
    "table": table.TableOptions,
    "webdataset": webdataset.TarOptions,
    "tfrecord": tfrecord.TfrecordOptions,
    "merge": merge.MergeOptions,
}
PLACES = {"input", "input_dir", "sources"}


def _flags(kind: Any) -> set[str]:
    return {option.field for option in fields.options_of(kind)} - PLACES


def test_the_page_lists_the_commands_of_each_flag_about_the_input() -> None:
    rows = re.findall(r"^\| `(--.*)` \| `(.*)` \|$", PAGE.read_text(), re.MULTILINE)
    listed = {
        flag.removeprefix("--"): set(commands.split())
        for flags, commands in rows
        for flag in flags.split()
    }

    own = {command: _flags(kind) for command, kind in OPTIONS.items()}
    of_all = _flags(ConvertOptions)
    assert listed == {
        flag: {command for command in OPTIONS if flag in own[command]}
        for flag in set().union(*own.values()) - of_all
    }
    assert all(of_all <= flags for flags in own.values())
    assert own["merge"] == set().union(*own.values())


def test_each_way_to_read_a_source_is_a_flag_of_a_merge() -> None:
    named = {
        option.field
        for option in fields.options_of(merge.MergeOptions)
        if option.about.repeated and option.about.group == shared.INPUT
    }

    assert {*HOW} == named - {"class_map"}
