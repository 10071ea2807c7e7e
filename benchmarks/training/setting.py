"""A setting: a `Config` with the model's defaults filled in, and its pipeline.

In: a config and the ranks. Out: the pipeline of the rank, and the number of steps.
The index of the data set is read here; no record is.
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

import tfpipe
from benchmarks.distributed.ranks import Ranks, Seat, unbound
from benchmarks.distributed.watch import Beat, Stop
from benchmarks.models import catalog
from benchmarks.models.accelerators import Figure
from benchmarks.options.config import Config, DataOptions
from benchmarks.training import caches, steady_state
from benchmarks.training.caches import EmptyCaches
from benchmarks.training.steady_state import ReadAhead
from tfpipe.cli.progress import Progress

_DEFAULT_WARMUP_STEPS = 10
_DEFAULT_SYNTHETIC_STEPS = 100
_SYNTHETIC_CLASSES = 1000
_BATCHES_ON_THE_WAY = 2  # to the device


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """All decisions before a run starts.

    Attributes:
        config: The config with every default of the model filled in.
        class_names: Names of the classes of the data. A model may have more outputs:
            the first outputs are these classes.
    """

    config: Config
    pipeline: tfpipe.Pipeline
    num_records: int
    class_names: tuple[str, ...]
    seat: Seat
    emulation: Figure | None = None
    empty_caches: EmptyCaches | None = None
    beat: Beat = dataclasses.field(default_factory=Beat)
    progress: Progress = dataclasses.field(default_factory=Progress)
    stop: Stop = dataclasses.field(default_factory=Stop)

    @property
    def source(self) -> Any:
        """The source of the pipeline: of TFRecords, or synthetic."""
        return self.pipeline.source

    @property
    def batch_size(self) -> int:
        """Examples in a batch of each rank."""
        return int(self.source.batch_size)

    @property
    def emulated_seconds(self) -> float | None:
        """Configured time of an emulated step; None if a model computes."""
        if self.emulation is not None:
            return self.emulation.step_seconds(self.batch_size)
        milliseconds = self.config.step_time_ms
        return None if milliseconds is None else milliseconds / 1e3

    @property
    def files(self) -> list[str]:
        """Paths of the local files that the run reads.

        The files belong to the data set or to a shard cache. Empty if the run reads no
        files, or other files in every epoch, as with a cold shard cache.
        """
        has_files = not self.config.synthetic and self.empty_caches is None
        return caches.local_files(self.source) if has_files else []

    @property
    def num_bytes(self) -> int:
        """Size of the shards of the split; 0 if data is synthetic."""
        return 0 if self.config.synthetic else caches.split_bytes(self.source)

    @property
    def record_bytes(self) -> float | None:
        """Mean size of a record in its shard; None if data is synthetic."""
        return None if self.config.synthetic else self.num_bytes / self.num_records

    @property
    def num_training_steps(self) -> int | None:
        """Number of steps in all epochs; None if the config does not give epochs."""
        if self.config.num_steps is not None or self.config.synthetic:
            return None
        return int(self.source.steps_per_epoch) * (self.config.num_epochs or 1)

    def num_steps(self, state: tfpipe.State) -> tuple[int, int]:
        """Returns the number of warm-up steps and of timed steps left after a state."""
        warmup = self.config.num_warmup_steps
        if self.num_training_steps is None:
            timed = self.config.num_steps or _DEFAULT_SYNTHETIC_STEPS
            if warmup is None:
                ahead = read_ahead(self.pipeline, state).num_warmup_steps
                warmup = max(_DEFAULT_WARMUP_STEPS, ahead)
            return warmup, timed
        num_epochs = self.config.num_epochs or 1
        left = 0
        if state.epoch < num_epochs:
            left = self.source.num_steps(state, num_epochs - state.epoch)
        if warmup is None:
            warmup = self.num_warmup_steps(state, left)
        if left <= warmup:
            raise ValueError(
                f"--num_epochs={num_epochs} is {self.num_training_steps} steps, of "
                f"which {left} are left and {warmup} are for warm-up: no step is left "
                "to time. Raise --num_epochs, lower --num_warmup_steps, or choose "
                "another --checkpoint_dir."
            )
        return warmup, left - warmup

    def num_warmup_steps(self, state: tfpipe.State, num_left: int) -> int:
        """Returns how many of the steps left after a state to leave out of the timing.

        These steps use the records read ahead, if the steps are at most half of all.
        Otherwise the run is too short for a steady state.
        """
        ahead = read_ahead(self.pipeline, state).num_warmup_steps
        usual = min(_DEFAULT_WARMUP_STEPS, num_left // 10)
        return max(ahead, usual) if ahead <= num_left // 2 else usual


def read_ahead(pipeline: tfpipe.Pipeline, state: tfpipe.State) -> ReadAhead:
    """Returns the examples read from a state on before the first step."""
    source: Any = pipeline.source
    # tf.data begins with a buffer of a batch where tf.data decides.
    ready = max(1, pipeline.tuning.prefetch_buffer_size)
    return steady_state.read_ahead(
        source.window_starts(state),
        source.batch_size,
        num_batches=ready + _BATCHES_ON_THE_WAY + _num_batches_in_work(pipeline),
    )


def _num_batches_in_work(pipeline: tfpipe.Pipeline) -> int:
    path = pipeline.paths.get("whole_batches")
    if path is None or path.value != "yes":
        return 1
    stages, threads = pipeline.tuned_stages(), pipeline.tuning.num_threads
    calls = (s.num_parallel_calls or 0 for s in stages if isinstance(s, tfpipe.Map))
    # AUTOTUNE, -1, takes up to a call a thread.
    return max(count if count > 0 else threads for count in calls)


def make_setting(
    config: Config, ranks: Ranks, *, seat: Seat | None = None, **others: Any
) -> Setting:
    """Fills in the model's defaults and composes the pipeline of the rank.

    Threads and memory of the pipeline are the rank's share of the host. `others` are
    beat, progress and stop of the setting. Without a seat the rank has no own cores.
    """
    model = catalog.MODELS[config.model]
    seat = seat or unbound(ranks.num_local_ranks)
    config = dataclasses.replace(
        config,
        batch_size=config.batch_size or model.batch_size,
        image_size=config.image_size or model.image_size,
        learning_rate=config.learning_rate or model.learning_rate,
    )
    model.check_image_size(config.image_size or model.image_size)
    emulation, empty_caches = config.find_emulation(), None
    tuning, num_records = make_tuning(seat, ranks), 0
    if config.synthetic:
        num_classes = config.num_classes or _SYNTHETIC_CLASSES
        pipeline = _synthetic(config, tuning, num_classes)
        names = tuple(str(label) for label in range(num_classes))
    else:
        if config.cache == "cold" and config.has_shard_cache:
            empty_caches = EmptyCaches(config, ranks)
        pipeline = _pipeline(config, ranks, tuning, empty_caches)
        source: Any = pipeline.source
        num_records = source.index.num_records(source.split)
        names = tuple(text for _, text in source.index.classes)
        num_classes = config.num_classes or len(names)
        if num_classes < len(names):
            raise ValueError(
                f"--num_classes must be >= {len(names)}, the classes of "
                f"{config.data_dir}, got {num_classes}."
            )
    return Setting(
        config=dataclasses.replace(config, num_classes=num_classes),
        pipeline=pipeline,
        num_records=num_records,
        class_names=names,
        seat=seat,
        emulation=emulation,
        empty_caches=empty_caches,
        **others,
    )


def make_tuning(seat: Seat, ranks: Ranks) -> tfpipe.Tuning:
    """Returns AUTOTUNE with limits: the rank's share of the host's cores and RAM."""
    return tfpipe.Tuning(
        private_threadpool_size=seat.num_threads,
        ram_budget_bytes=tfpipe.host.ram_left() // 2 // ranks.num_local_ranks,
    )


def preset_pipeline(
    config: DataOptions,
    ranks: Ranks,
    tuning: tfpipe.Tuning,
    *,
    is_training: bool,
    directory: pathlib.Path | None = None,
    of_source: Mapping[str, Any] | None = None,
    **of_preset: Any,
) -> tfpipe.Pipeline:
    """Returns the pipeline of a preset over the data set of a config.

    Args:
        directory: Folder of the shard cache; None is --shard_cache_dir.
        of_source: More arguments of the source; `of_preset` are those of the preset.
    """
    model = catalog.MODELS[config.model]
    source = tfpipe.TFRecordSource(
        str(config.data_dir),
        "train" if is_training else "validation",
        shard_cache=config.shard_cache(directory),
        seed=config.seed,
        rank=ranks.rank,
        num_ranks=ranks.num_ranks,
        batch_size=config.batch_size or model.batch_size,
        shuffle="window" if is_training else "none",
        remainder="drop" if is_training else "pad",
        **(of_source or {}),
    )
    preset = tfpipe.imagenet_train if is_training else tfpipe.imagenet_eval
    options: dict[str, Any] = {
        "recipe": getattr(tfpipe.recipes, model.recipe),
        "image_size": config.image_size or model.image_size,
        "whole_batches": config.whole_batches,
        "with_record_id": True,
        "tuning": tuning,
    }
    return preset(source, **(options | of_preset))


def _pipeline(
    config: Config,
    ranks: Ranks,
    tuning: tfpipe.Tuning,
    empty_caches: EmptyCaches | None,
) -> tfpipe.Pipeline:
    of_preset: dict[str, Any] = {"recipe": None} if config.read_only else {}
    if config.ram_cache == "records":
        of_preset["cache"] = tfpipe.Cache("ram")
    if config.ram_cache == "images":  # kept images are examples
        of_preset["whole_batches"] = False
    pipeline = preset_pipeline(
        config,
        ranks,
        tuning,
        is_training=config.mode == "train",
        directory=None if empty_caches is None else empty_caches.directory,
        of_source={
            "on_error": config.on_error,
            "max_faults": config.max_faults,
            "affinity": config.affinity,
            "hosts": None if config.affinity is None else ranks.hosts(),
        },
        **of_preset,
    )
    if config.ram_cache == "images":
        pipeline = caches.with_images(pipeline)
    if config.tuning is not None:
        pipeline = tfpipe.load_tuned(config.tuning, pipeline)
    return pipeline


def _synthetic(
    config: Config, tuning: tfpipe.Tuning, num_classes: int
) -> tfpipe.Pipeline:
    model = catalog.MODELS[config.model]
    source = tfpipe.SyntheticSource(
        batch_size=config.batch_size or model.batch_size,
        image_size=config.image_size or model.image_size,
        num_classes=num_classes,
        seed=config.seed,
    )
    recipe = getattr(tfpipe.recipes, model.recipe)
    return tfpipe.Pipeline(
        source,
        stages=[tfpipe.Prefetch()],
        tuning=tuning,
        # Synthetic images are normalized on the device, like real images.
        device_ops=recipe(source.image_size, "uint8", "exact").device_ops,
    )
