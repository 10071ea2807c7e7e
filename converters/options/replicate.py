"""Options of converters.replicate.

In: the command line. Out: a frozen `ReplicateOptions`, whose values fit together.
"""

import dataclasses
import functools
from typing import Any

from converters.exports import sizing
from converters.exports.change import Change
from converters.exports.copies import Damaged
from converters.exports.identical import By
from converters.images.policy import ENTRY_POINTS_HELP, REENCODE_QUALITY
from converters.options import shared
from tfpipe import cli
from tfpipe.native import entry_file

GROUPS = ("How many copies", "What the copies are", *shared.GROUPS)
_many, _copies = map(cli.group, GROUPS[:2])


_size = functools.partial(_many, parse=sizing.parse_bytes, shown="SIZE")


@cli.options
class ReplicateOptions(shared.WritingOptions):
    """Options of one replication. Sizes are in bytes.

    Raises:
        ValueError: If values do not fit together.
    """

    data_dir: str = shared.data_dir()
    copies: int | None = _many(
        None,
        "Number of copies. The source itself is not one of them. Default with "
        "--enlarge: 1. Otherwise this, --target_bytes or --for_ram must be given.",
        least=1,
    )
    target_bytes: int | None = _size(
        None,
        "Make enough copies for this size of all together, such as 22TB or 1.5e12. "
        "Units are decimal; 64GiB is 64 x 2^30 bytes.",
    )
    for_ram: int | None = _size(
        None,
        "Make enough copies for hosts with this much memory each, such as 512GB; see "
        "--num_hosts, --ram_factor and --storage_cache.",
    )
    num_hosts: int = _many(1, "Number of hosts that will read the copies.", least=1)
    ram_factor: float = _many(
        sizing.RAM_FACTOR,
        "Ratio of the data to the memory of all hosts; 5 is the rule of MLPerf "
        "Storage.",
        least=1,
    )
    storage_cache: int = _size(
        0, "Cache of the storage that the data must exceed, as 2TB."
    )
    splits: tuple[str, ...] = shared.splits(group=GROUPS[1])
    mirror: bool = _copies(
        False,
        "Mirror half of the images of each copy, drawn by --seed, without loss; their "
        "boxes too. An image that ends within a block is not mirrored.",
    )
    reencode: bool = _copies(
        False,
        "Decode every JPEG and encode it with other quantization tables in each copy.",
    )
    enlarge: float | None = _copies(
        None,
        "Scale images up by this factor, above 1. The height and width in the records "
        "follow.",
    )
    quality: int | None = _copies(
        None,
        "Quality of the images that --enlarge or --reencode encode, "
        f"{REENCODE_QUALITY} by default.",
        least=1,
        most=100,
    )
    identical: bool = _copies(
        False,
        "Make copies of the same bytes. A deduplicating storage, and with hard links "
        "also the page cache of a host, keeps them once.",
    )
    identical_by: By = _copies(
        "auto",
        "How --identical makes a file. reflink: blocks shared by the file system "
        "(Btrfs, XFS). link: a hard link, a second name of the same file. copy: bytes "
        "of its own. auto: the first of these that works.",
        needs="--identical",
    )
    entry_points: bool = _copies(False, ENTRY_POINTS_HELP)
    damaged: Damaged = _copies(
        "fail",
        "What to do about a damaged record of DIR. skip: leave it out of the copies, "
        "and name it in rejects.jsonl.",
    )
    dry_run: bool = shared.dry_run(group=shared.RUNNING)

    def __post_init__(self) -> None:
        super().__post_init__()
        data_dir = shared.location_of("DIR", self.data_dir)
        if self.engine == shared.RAY and not data_dir.is_local:
            raise ValueError(
                "--engine=ray needs a DIR that all nodes see as a folder, got the URL "
                f"{data_dir.shown}. Mount it, or share the work with --num_tasks."
            )
        changes = ("mirror", "reencode", "enlarge", "quality", "damaged")
        if self.identical and (changed := cli.changed(self, *changes)):
            raise ValueError(
                f"--identical copies whole shards, and {changed[0]} changes records. "
                "Change them in a first run, and copy its result in a second one."
            )
        if self.identical and self.entry_points:
            raise ValueError(
                "--identical copies the entry points that DIR has. Leave out "
                f"--entry_points. If DIR has none: {entry_file.REMEDY}."
            )
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
