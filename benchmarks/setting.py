"""A setting: a `Config` with the model's defaults filled in and the data looked at.

In: a config and the ranks. Out: the pipeline of this rank, and how many steps to run.
"""

import dataclasses

import tfpipe
from benchmarks import models
from benchmarks.checkpoint import Place
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
        steps_per_epoch: Steps of every rank in an epoch; None if synthetic.
        num_records: Records in the split; 0 if synthetic.
        class_names: Name of each class, which are the outputs of the model.
    """

    config: Config
    pipeline: tfpipe.Pipeline
    steps_per_epoch: int | None
    num_records: int
    class_names: tuple[str, ...]

    @property
    def num_training_steps(self) -> int | None:
        """Steps from the first epoch on, if the config gives epochs; else None."""
        if self.config.num_steps is not None or self.steps_per_epoch is None:
            return None
        return self.steps_per_epoch * (self.config.num_epochs or 1)

    def num_steps(self, place: Place) -> tuple[int, int]:
        """Warm-up and timed steps to run from a place in training.

        Raises:
            ValueError: If there is nothing left to run, or only warm-up.
        """
        warmup = self.config.num_warmup_steps
        if self.num_training_steps is None:
            timed = self.config.num_steps or _DEFAULT_SYNTHETIC_STEPS
            return _DEFAULT_WARMUP_STEPS if warmup is None else warmup, timed
        done = place.epoch * self.steps_per_epoch + place.step
        left = self.num_training_steps - done
        if warmup is None:
            warmup = min(_DEFAULT_WARMUP_STEPS, left // 10)
        if left <= warmup:
            raise ValueError(
                f"--num_epochs={self.config.num_epochs or 1} is "
                f"{self.num_training_steps} steps, of which {done} are done and "
                f"{warmup} are for warm-up: no step is left to time. Raise "
                "--num_epochs, lower --num_warmup_steps, or choose another "
                "--checkpoint_dir."
            )
        return warmup, left - warmup

    def require_resumable(self, place: Place) -> None:
        """Checks that a checkpoint within an epoch was made with the same steps.

        Raises:
            ValueError: If the batch size, the ranks or the data have changed since.
        """
        if place.step and place.steps_per_epoch != self.steps_per_epoch:
            raise ValueError(
                f"The checkpoint in {self.config.checkpoint_dir} is at step "
                f"{place.step} of an epoch of {place.steps_per_epoch} steps, but an "
                f"epoch has {self.steps_per_epoch} steps now. Resume with the batch "
                "size, number of ranks and data that it was made with."
            )


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
        tuning=tuning,
    )
    index = pipeline.source.index
    return Setting(
        config=config,
        pipeline=pipeline,
        steps_per_epoch=pipeline.source.steps_per_epoch(config.batch_size),
        num_records=index.num_records(pipeline.source.split),
        class_names=tuple(text for _, text in index.classes),
    )


def _synthetic(config: Config, tuning: tfpipe.Tuning) -> Setting:
    """One batch, kept in memory and given again and again."""
    source = tfpipe.SyntheticSource(
        num_records=config.batch_size,
        image_size=config.image_size,
        num_classes=_SYNTHETIC_CLASSES,
        seed=config.seed,
    )
    stages = [tfpipe.Batch(config.batch_size), tfpipe.Cache(), tfpipe.Repeat()]
    return Setting(
        config=config,
        pipeline=tfpipe.Pipeline(source, stages, tuning=tuning),
        steps_per_epoch=None,
        num_records=0,
        class_names=tuple(str(label) for label in range(_SYNTHETIC_CLASSES)),
    )
