"""The flags of benchmarks that run several ways in turns, each in its own process."""

from absl import flags

_NUM_ROUNDS = flags.DEFINE_integer(
    "num_rounds", 3, "Times that each way or peer is run.", lower_bound=1
)
_NUM_TIMED_IMAGES = flags.DEFINE_integer(
    "num_timed_images", 4000, "Images of a run, after a fourth as many.", lower_bound=1
)


def num_rounds() -> int:
    """Turns of each way."""
    return _NUM_ROUNDS.value


def image_counts() -> dict[str, int]:
    """Images of a run that are timed, and those before them that are not, by name."""
    return {
        "num_warmup_images": _NUM_TIMED_IMAGES.value // 4,
        "num_timed_images": _NUM_TIMED_IMAGES.value,
    }
