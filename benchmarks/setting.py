"""A setting: a `Config` with the model's defaults filled in and the data looked at.

In: a config and the ranks. Out: the pipeline of this rank, and how many steps to run.
"""

import dataclasses

import tfpipe
from benchmarks import models
from benchmarks.config import Config
from benchmarks.ranks import Ranks

_DEFAULT_WARMUP_STEPS = 10
_DEFAULT_SYNTHETIC_STEPS = 100
_SYNTHETIC_CLASSES = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """What a run needs to know before it starts.

    Attributes:
        config: The config with every default of the model filled in.
        pipeline: Where this rank's batches come from.
        num_records: Records in the split; 0 if synthetic.
        class_names: Name of each class, which are the outputs of the model.
    """

    config: Config
    pipeline: tfpipe.Pipeline
    num_records: int
    class_names: tuple[str, ...]

    @property
    def steps_per_epoch(self) -> int:
        """Steps of every rank in an epoch."""
        return int(self.pipeline.source.steps_per_epoch)

    @property
    def num_training_steps(self) -> int | None:
        """Steps from the first epoch on, if the config gives epochs; else None."""
        if self.config.num_steps is not None or self.config.synthetic:
            return None
        return self.steps_per_epoch * (self.config.num_epochs or 1)

    def num_steps(self, state: tfpipe.State) -> tuple[int, int]:
        """Warm-up and timed steps to run from a state on.

        Raises:
            ValueError: If there is nothing left to run, or only warm-up.
        """
        warmup = self.config.num_warmup_steps
        if self.num_training_steps is None:
            timed = self.config.num_steps or _DEFAULT_SYNTHETIC_STEPS
            return _DEFAULT_WARMUP_STEPS if warmup is None else warmup, timed
        num_epochs = self.config.num_epochs or 1
        left = 0
        if state.epoch < num_epochs:
            left = self.pipeline.source.num_steps(state, num_epochs - state.epoch)
        if warmup is None:
            warmup = min(_DEFAULT_WARMUP_STEPS, left // 10)
        if left <= warmup:
            raise ValueError(
                f"--num_epochs={num_epochs} is {self.num_training_steps} steps, of "
                f"which {left} are left and {warmup} are for warm-up: no step is left "
                "to time. Raise --num_epochs, lower --num_warmup_steps, or choose "
                "another --checkpoint_dir."
            )
        return warmup, left - warmup


def make_setting(config: Config, ranks: Ranks) -> Setting:
    """Fills in the model's defaults and composes the pipeline of this rank.

    Raises:
        ValueError: If the config does not fit the data.
        TfpipeError: If the data set is not complete.
    """
    model = models.MODELS[config.model]
    config = dataclasses.replace(
        config,
        batch_size=config.batch_size or model.batch_size,
        image_size=config.image_size or model.image_size,
        learning_rate=config.learning_rate or model.learning_rate,
    )
    tuning = tfpipe.Tuning.for_local_ranks(ranks.num_local_ranks)
    if config.synthetic:
        return _synthetic(config, tuning)
    preset = tfpipe.imagenet_eval if config.mode == "eval" else tfpipe.imagenet_train
    pipeline = preset(
        config.data_dir,
        image_size=config.image_size,
        batch_size=config.batch_size,
        seed=config.seed,
        rank=ranks.rank,
        num_ranks=ranks.num_ranks,
        with_record_id=True,
        on_error=config.on_error,
        max_faults=config.max_faults,
        tuning=tuning,
    )
    if config.tuning is not None:
        pipeline = tfpipe.load_tuned(config.tuning, pipeline)
    index = pipeline.source.index
    return Setting(
        config=config,
        pipeline=pipeline,
        num_records=index.num_records(pipeline.source.split),
        class_names=tuple(text for _, text in index.classes),
    )


def _synthetic(config: Config, tuning: tfpipe.Tuning) -> Setting:
    """One batch, kept in memory and given again and again."""
    source = tfpipe.SyntheticSource(
        batch_size=config.batch_size,
        image_size=config.image_size,
        num_classes=_SYNTHETIC_CLASSES,
        seed=config.seed,
    )
    return Setting(
        config=config,
        pipeline=tfpipe.Pipeline(
            source, stages=[], tuning=tuning, device_ops=[tfpipe.Normalize()]
        ),
        num_records=0,
        class_names=tuple(str(label) for label in range(_SYNTHETIC_CLASSES)),
    )
