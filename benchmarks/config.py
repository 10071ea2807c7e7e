"""The configuration of one benchmark run: frozen, checked, JSON-able."""

import dataclasses
from typing import Any

MODES = ("train", "eval")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """What to run; the flags' help says more about each field."""

    data_dir: str | None = None
    model: str = "resnet50"
    mode: str = "train"
    batch_size: int | None = None
    image_size: int | None = None
    num_steps: int | None = None
    num_epochs: int | None = None
    num_warmup_steps: int | None = None
    learning_rate: float | None = None
    synthetic: bool = False
    checkpoint_dir: str | None = None
    report_dir: str | None = None
    seed: int = 0
    on_error: str = "raise"
    max_faults: int = 100
    tuning: str | None = None

    def __post_init__(self) -> None:
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

    def as_json(self) -> dict[str, Any]:
        """The fields as a dict that JSON can hold."""
        return dataclasses.asdict(self)
