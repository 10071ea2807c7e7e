"""Does sample work with options of each type.

  python -m sample DIR --count=3
  python -m sample DIR --level=deep

More words that --help shows if there is room. The last line is a JSON object.
"""

import enum
from collections.abc import Sequence
from typing import Any, Literal
from unittest import mock

from absl import flags

from tfpipe import cli

# absl's own list keeps the flags of the product, some of which have these names.
FLAGS = flags.FlagValues()
_own_list = mock.patch.object(flags, "FLAGS", FLAGS)
_own_list.start()
_SIZES = cli.group("Sizes")


class Color(enum.Enum):
    """Two colors."""

    RED = "red"
    BLUE = "blue"


@cli.options
class Policy:
    """Options that are nested in others."""

    keep: bool = cli.flag(False, "Keep files.")
    turn: Literal["apply", "keep"] = cli.flag("keep", "Turn images.")


@cli.options
class Base:
    """Options of several commands."""

    name: str = cli.flag("base", "Name of the data set.")
    seed: int = cli.flag(0, "Seed of random choices.", least=0)


@cli.options
class Sample(Base):
    """Options with a field of each type."""

    data_dir: str = cli.argument("Folder with shards.", shown="DIR", url=True)
    out: str = cli.required("Folder to write. It must be empty.")
    name: str = "sample"
    count: int | None = _SIZES(None, "Records. Default: all.", least=1, most=9)
    rate: float = _SIZES(0.5, "Share of the records.", above=0, most=1)
    ranks: tuple[int, ...] = _SIZES((1, 2), "Numbers of ranks.", least=1)
    max_bytes: int | None = _SIZES(None, "GB.", name="max_gb", parse=cli.gigabytes)
    fsync: bool = cli.flag(True, "Wait for the disk.")
    level: Literal["quick", "deep"] = cli.flag("quick", "How closely.")
    color: Color = cli.flag(Color.RED, "Color.")
    whole: bool | str = cli.flag(
        "auto", "Whole batches.", choices={"auto": "auto", "yes": True, "no": False}
    )
    models: Sequence[str] = cli.flag((), "Models.", choices=("vgg", "resnet"))
    inputs: tuple[str, ...] = cli.flag((), "Files.", repeated=True, url=True)
    more: tuple[str, ...] = cli.argument("Words after --.", default=())
    policy: Policy = cli.nested(Policy, turn="apply")
    seen: int = 0

    def __post_init__(self) -> None:
        if self.level == "deep":
            cli.refuse(self, "--level=deep", "count", "rate")


@cli.options
class Copy:
    """Options with a list and a value that need no flag."""

    sources: tuple[str, ...] = cli.required("Files.", repeated=True)
    target: str = cli.required("Folder.")
    level: str = cli.flag("quick", "How closely.")
    save: str | None = cli.flag(None, "File.", needs="--level=deep")
    weight: float = cli.flag(1.0, "Weight.", needs="--save")


def make_policy(**values: Any) -> Policy:
    """Makes a policy that keeps what it turns."""
    return Policy(**{"keep": values["turn"] == "apply", **values})


@cli.options
class Nesting:
    """Options with a nested class that a function makes."""

    policy: Policy = cli.nested(Policy, make=make_policy, turn="apply")


_own_list.stop()


def work(options: Sample) -> int:
    """Ends as the name says."""
    failures = {
        "missing": FileNotFoundError("no file."),
        "large": MemoryError(),
        "stopped": KeyboardInterrupt(),
    }
    if options.name in failures:
        raise failures[options.name]
    print(options)
    return options.seed


COMMAND = cli.Command(
    Sample,
    work,
    arguments=("data_dir",),
    rest="more",
    groups=("Sizes",),
    hint=lambda options, error: f"Look at {options.out}.",
)
