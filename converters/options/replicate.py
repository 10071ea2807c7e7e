"""Options of converters.replicate, and the flags that set them.

In: the command line. Out: a frozen `ReplicateOptions`, whose values fit together.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from absl import flags

from converters.exports import sizing
from converters.exports.change import Change
from converters.exports.copies import Damaged
from converters.exports.identical import By
from converters.images.policy import REENCODE_QUALITY
from converters.options import shared
from tfpipe.native import entry_file

shared.define(*shared.WRITING_FLAGS, "quality", "entry_points", "splits", "dry_run")
flags.adopt_module_key_flags(shared)

flags.DEFINE_integer(
    "copies",
    None,
    "Number of copies. The source itself is not one of them. Default with --enlarge: "
    "1. Otherwise this, --target_bytes or --for_ram must be given.",
    lower_bound=1,
)
for _name, _text in {
    "target_bytes": (
        "Make enough copies for this size of all together, such as 22TB or 1.5e12. "
        "Units are decimal; 64GiB is 64 x 2^30 bytes."
    ),
    "for_ram": (
        "Make enough copies for hosts with this much memory each, such as 512GB; see "
        "--num_hosts, --ram_factor and --storage_cache."
    ),
    "storage_cache": "Cache of the storage that the data must exceed, as 2TB.",
}.items():
    flags.DEFINE_string(_name, None, _text)
flags.DEFINE_integer(
    "num_hosts", 1, "Number of hosts that will read the copies.", lower_bound=1
)
flags.DEFINE_float(
    "ram_factor",
    sizing.RAM_FACTOR,
    "Ratio of the data to the memory of all hosts; 5 is the rule of MLPerf Storage.",
    lower_bound=1.0,
)
for _name, _text in {
    "mirror": (
        "Mirror half of the images of each copy, drawn by --seed, without loss; their "
        "boxes too. An image that ends within a block is not mirrored."
    ),
    "reencode": (
        "Decode every JPEG and encode it with other quantization tables in each copy."
    ),
    "identical": (
        "Make copies of the same bytes. A deduplicating storage, and with hard links "
        "also the page cache of a host, keeps them once."
    ),
}.items():
    flags.DEFINE_boolean(_name, False, _text)
flags.DEFINE_float(
    "enlarge",
    None,
    "Scale images up by this factor, above 1. The height and width in the records "
    "follow.",
)
flags.DEFINE_enum(
    "identical_by",
    "auto",
    ["auto", "reflink", "link", "copy"],
    "How --identical makes a file. reflink: blocks shared by the file system (Btrfs, "
    "XFS). link: a hard link, a second name of the same file. copy: bytes of its own. "
    "auto: the first of these that works.",
)
flags.DEFINE_enum(
    "damaged",
    "fail",
    ["fail", "skip"],
    "What to do about a damaged record of DIR. skip: leave it out of the copies, and "
    "name it in rejects.jsonl.",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplicateOptions(shared.WritingOptions):
    """Options of one replication; the flags of the same names describe them.

    Sizes are in bytes.

    Raises:
        ValueError: If values do not fit together.
    """

    data_dir: str
    copies: int | None = None
    target_bytes: int | None = None
    for_ram: int | None = None
    num_hosts: int = 1
    ram_factor: float = sizing.RAM_FACTOR
    storage_cache: int = 0
    splits: Sequence[str] = ()
    mirror: bool = False
    reencode: bool = False
    enlarge: float | None = None
    quality: int | None = None
    entry_points: bool = False
    identical: bool = False
    identical_by: By = "auto"
    damaged: Damaged = "fail"
    dry_run: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        data_dir = shared.location_of("DIR", self.data_dir)
        if self.engine == shared.RAY and not data_dir.is_local:
            raise ValueError(
                "--engine=ray needs a DIR that all nodes see as a folder, got the URL "
                f"{data_dir.shown}. Mount it, or share the work with --num_tasks."
            )
        others = {
            "--mirror": self.mirror,
            "--reencode": self.reencode,
            "--enlarge": self.enlarge is not None,
            "--quality": self.quality is not None,
            "--damaged=skip": self.damaged == "skip",
        }
        given = [name for name, is_given in others.items() if is_given]
        if self.identical and given:
            raise ValueError(
                f"--identical copies whole shards, and {given[0]} changes records. "
                "Change them in a first run, and copy its result in a second one."
            )
        if self.identical and self.entry_points:
            raise ValueError(
                "--identical copies the entry points that DIR has. Leave out "
                f"--entry_points. If DIR has none: {entry_file.REMEDY}."
            )
        if self.identical_by != "auto" and not self.identical:
            raise ValueError("--identical_by needs --identical.")
        if self.reencode and self.enlarge is not None:
            raise ValueError(
                "--enlarge encodes every image already. Leave out --reencode."
            )
        _ = self.wanted, self.change

    @property
    def wanted(self) -> sizing.Wanted:
        """The size that is asked for."""
        sizes = (self.copies, self.target_bytes, self.for_ram)
        alone = self.enlarge is not None and sizes == (None, None, None)
        return sizing.Wanted(
            copies=1 if alone else self.copies,
            target_bytes=self.target_bytes,
            ram_bytes=self.for_ram,
            num_hosts=self.num_hosts,
            ram_factor=self.ram_factor,
            storage_cache_bytes=self.storage_cache,
        )

    @property
    def change(self) -> Change | None:
        """How the images of a copy are changed; None for identical copies."""
        if self.identical:
            return None
        change = functools.partial(
            Change, mirror=self.mirror, entry_points=self.entry_points
        )
        quality = self.quality or REENCODE_QUALITY
        if self.enlarge is not None:
            return change(kind="enlarged", factor=self.enlarge, quality=quality)
        if self.reencode:
            return change(kind="reencoded", quality=quality)
        return change(quality=self.quality)

    def to_json(self) -> dict[str, Any]:
        """Returns the options as JSON values."""
        return dataclasses.asdict(self) | {"splits": list(self.splits)}


def config_from_flags(data_dir: str) -> ReplicateOptions:
    """Returns the options that the flags describe.

    Raises:
        ValueError: If values do not fit together.
    """

    def size(name: str) -> int | None:
        text = shared.value_of(name)
        return None if text is None else sizing.parse_bytes(f"--{name}", text)

    return shared.options_from_flags(
        ReplicateOptions,
        data_dir=data_dir,
        target_bytes=size("target_bytes"),
        for_ram=size("for_ram"),
        storage_cache=size("storage_cache") or 0,
    )
