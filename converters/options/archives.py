"""Options of commands whose input is files that hold many images, and their flags.

In: images by split and class, or by the number of their class. Out: a `Job`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from absl import app, flags

from converters.inputs.archives import patterns, readers
from converters.jobs.job import Job
from converters.options import labelled, shared

flags.adopt_module_key_flags(labelled)

shared.define("input", "file_in_names", "label_key")
flags.adopt_module_key_flags(shared)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArchiveOptions(labelled.LabelledOptions):
    """Options of one conversion; the flags of the same names describe them.

    Raises:
        ValueError: If there is no input, or see `labelled.LabelledOptions`.
    """

    input: Sequence[str]
    file_in_names: bool = False
    label_key: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.input, str) or not self.input:
            raise ValueError(
                "--input must name at least one file, pattern, folder or URL, got "
                f"{self.input!r}."
            )
        if self.label_key is not None and not self.label_key.strip():
            raise ValueError("--label_key must be a key, got nothing.")

    def to_json(self) -> dict[str, Any]:
        """Returns the options as JSON values."""
        return super().to_json() | {"input": list(self.input)}


def options_from_flags(kind: type[shared.Options], **own: Any) -> shared.Options:
    """Returns the options of a command.

    Args:
        kind: The command's options, a subclass of `ArchiveOptions`.
        own: Values of the options that the command alone has.

    Raises:
        app.UsageError: If --input was not given.
        ValueError: If values do not fit together.
    """
    if not shared.value_of("input"):
        raise app.UsageError("--input must be given: the files to convert.")
    return labelled.options_from_flags(kind, label_key=shared.only("label_key"), **own)


def make_job(
    options: ArchiveOptions,
    *,
    command_name: str,
    reader: readers.Reader,
    own_options: Mapping[str, Any],
) -> Job:
    """Lists the images of all files and plans the shards.

    Args:
        options: Options of the conversion.
        command_name: Module of the command.
        reader: How the files are read.
        own_options: Options of the command alone that decide the bytes; JSON values.

    Raises:
        ValueError: If the input is not as it must be.
        OSError: If a file cannot be read.
        RemoteError: If a file cannot be read by URL.
    """
    files = patterns.find(options.input, reader.kind, options.meaning)
    listed = readers.list_images(
        files,
        reader,
        file_in_names=options.file_in_names,
        label_type=options.label_type,
    )
    recorded = {"file_in_names": options.file_in_names, "label_key": options.label_key}
    return labelled.make_job(
        options,
        labelled.give_labels(options, listed),
        command_name=command_name,
        own_options={**recorded, **own_options},
    )
