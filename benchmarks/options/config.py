"""The configuration of a run of benchmarks.train.

In: the values of the flags. Out: a frozen `Config`, checked for contradictions, which
the result holds as JSON.
"""

import dataclasses
from collections.abc import Sequence

from benchmarks.models import accelerators
from benchmarks.models.accelerators import Emulation
from benchmarks.options import settings_file
from benchmarks.options.data_access import DataOptions

MODES = ("train", "eval", "infer")
PRECISIONS = ("float32", "bfloat16", "float16")
DATA_FORMATS = ("NHWC", "NCHW")
RAM_CACHES = ("records", "images")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(DataOptions):
    """The options of a run; a field has the name of its flag, whose help explains it.

    Raises:
        ValueError: If options are contradictory.
    """

    ram_cache: str | None = None
    mode: str = "train"
    num_steps: int | None = None
    num_epochs: int | None = None
    num_warmup_steps: int | None = None
    learning_rate: float | None = None
    synthetic: bool = False
    checkpoint_dir: str | None = None
    on_error: str = "raise"
    max_faults: int = 100
    num_classes: int | None = None
    precision: str = "float32"
    data_format: str = "NHWC"
    xla: bool = False
    emulate: str | None = None
    accelerators_file: str | None = None
    step_time_ms: float | None = None
    read_only: bool = False
    cache: str = "as_is"
    allow_nan: bool = False
    rank_timeout: float = 300.0
    elastic: bool = False
    bars: bool = False
    repeat: int = 1
    require: Sequence[str] = ()

    def __post_init__(self) -> None:
        # A config from JSON has a list here.
        object.__setattr__(self, "require", tuple(self.require))
        self._check_data()
        self._check_bars()
        self._check_elastic()
        _check_emulated(self)
        _check_caches(self)

    def _check_data(self) -> None:
        if self.synthetic == (self.data_dir is not None):
            raise ValueError(
                "One of --data_dir and --synthetic must be given, and not both; "
                f"got data_dir={self.data_dir}, synthetic={self.synthetic}."
            )
        if self.num_steps is not None and self.num_epochs is not None:
            raise ValueError(
                "--num_steps and --num_epochs exclude each other, "
                f"got {self.num_steps} and {self.num_epochs}."
            )
        if self.synthetic and self.num_epochs is not None:
            raise ValueError("--synthetic has no epochs: give --num_steps instead.")
        if self.mode == "eval" and (self.synthetic or self.checkpoint_dir is None):
            raise ValueError(
                "--mode=eval must have --data_dir and --checkpoint_dir: it measures "
                "the accuracy of a trained model on real records."
            )

    def _check_bars(self) -> None:
        if self.bars and (self.synthetic or self.mode == "eval"):
            raise ValueError(
                "--bars compares real data with synthetic: it must have --data_dir, "
                f"and --mode=train or infer; got --mode={self.mode}."
            )
        if self.bars and self.checkpoint_dir is not None:
            raise ValueError("--bars and --checkpoint_dir exclude each other.")

    def _check_elastic(self) -> None:
        others = (
            self.mode != "train",
            self.synthetic,
            self.num_steps is not None,
            self.bars,
            self.repeat > 1,
            self.is_emulated,
        )
        if self.elastic and any(others):
            raise ValueError(
                "--elastic trains epochs on real data: it must have --data_dir and "
                "--mode=train, and no --num_steps, --bars, --repeat, --emulate or "
                "--step_time_ms."
            )

    @property
    def is_emulated(self) -> bool:
        """Whether a step time replaces the model."""
        return self.emulate is not None or self.step_time_ms is not None

    @property
    def kind(self) -> str:
        """Whether the run is "real", "synthetic" (no records) or "emulated"."""
        if self.is_emulated:
            return "emulated"
        return "synthetic" if self.synthetic else "real"

    def find_emulation(self) -> Emulation | None:
        """Returns the accelerator of --emulate with its figure; None without the flag.

        Raises:
            ValueError: If the accelerator is not known, or has no figure for the model,
                or the file of --accelerators_file is not valid.
            OSError: If the file cannot be read.
        """
        if self.emulate is None:
            return None
        by_name = settings_file.accelerators_with(self.accelerators_file)
        return accelerators.find(by_name, self.emulate, self.model, self.mode)


def _check_emulated(config: Config) -> None:
    if config.emulate is not None and config.step_time_ms is not None:
        raise ValueError(
            "--emulate and --step_time_ms exclude each other, "
            f"got {config.emulate} and {config.step_time_ms}."
        )
    if config.accelerators_file is not None and config.emulate is None:
        raise ValueError(
            f"--accelerators_file={config.accelerators_file} adds names for "
            "--emulate, which must be given."
        )
    if config.read_only and (not config.is_emulated or config.synthetic or config.bars):
        raise ValueError(
            "--read_only reads records and decodes none, so that no model can take "
            "them: it must have --data_dir and --emulate or --step_time_ms, and "
            "no --bars."
        )
    has_model = config.mode == "eval" or config.checkpoint_dir is not None
    if config.is_emulated and has_model:
        raise ValueError(
            "An emulated accelerator computes nothing: --emulate and "
            "--step_time_ms go with --mode=train and --mode=infer, and without "
            "--checkpoint_dir."
        )


def _check_caches(config: Config) -> None:
    access = config.access  # checks itself
    if config.cache != "as_is" and not (
        access.is_read_in_place or config.shard_cache_dir is not None
    ):
        raise ValueError(
            f"--cache={config.cache} is the state of the page cache or of "
            "--shard_cache_dir, and there must be files or a shard cache; got "
            f"data_dir={config.data_dir}, synthetic={config.synthetic}."
        )
    if config.ram_cache is None:
        return
    if config.synthetic or config.cache != "as_is":
        raise ValueError(
            f"--ram_cache={config.ram_cache} keeps what it read from --data_dir: it "
            "excludes --synthetic and --cache."
        )
    if config.ram_cache == "images" and (
        config.whole_batches is True or config.read_only
    ):
        raise ValueError(
            "--ram_cache=images decodes each image alone, and once: it excludes "
            "--whole_batches=yes and --read_only."
        )
