"""The state of a run in its data: a few integers, the same on every rank.

In: the numbers of a run. Out: a `State` that is saved with a checkpoint, and from which
the same or another number of ranks resumes.
"""

import dataclasses
import json

import tensorflow as tf

from tfpipe import errors
from tfpipe.reading import order


@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """The progress of a run in its data.

    Attributes:
        epoch: Number of the epoch, >= 0.
        step: Steps that every rank has made in the epoch since `phases`, >= 0.
        num_ranks: Ranks that made these steps; None stands for the ranks that resume.
        batch_size: Examples in a batch of one rank in these steps; None stands for the
            batch size of the run that resumes.
        phases: Parts of the epoch that other numbers of ranks read before.
        digest: Digest of the data and of all that decides its order, see
            `TFRecordSource.digest`; "" if not known.

    Raises:
        ValueError: If a number is out of range.
    """

    epoch: int = 0
    step: int = 0
    num_ranks: int | None = None
    batch_size: int | None = None
    phases: tuple[order.Phase, ...] = ()
    digest: str = ""

    def __post_init__(self) -> None:
        errors.settle_ints(self, ["epoch", "step"], least=0)
        errors.settle_ints(self, ["num_ranks", "batch_size"], least=1, also=[None])
        errors.require_kind(self, "digest", self.digest, str)
        phases = [_checked(phase) for phase in self.phases]
        errors.settle(self, "phases", tuple(phases))

    def to_json(self) -> str:
        """Returns the state as one line of JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "State":
        """Reads the text that `to_json` returned.

        Raises:
            ValueError: If the text is not a state.
        """
        try:
            fields = json.loads(text)
            phases = tuple(order.Phase(*phase) for phase in fields.pop("phases"))
            return cls(**fields, phases=phases)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"Not a state of a pipeline: {text!r}.") from error


def _checked(phase: tuple[int, int]) -> order.Phase:
    num_ranks, num_records = phase
    return order.Phase(
        errors.require_int("State.phases", "num_ranks", num_ranks, least=1),
        errors.require_int("State.phases", "num_records", num_records, least=0),
    )


def place(state: State, of: order.Order) -> order.Place:
    """Returns the place of a state in an order.

    Raises:
        ValueError: If the epoch has fewer steps than the state.
    """
    num_ranks = state.num_ranks or of.num_ranks
    batch_size = state.batch_size or of.batch_size
    num_read = state.step * batch_size
    if (num_ranks, batch_size) == (of.num_ranks, of.batch_size):
        found = order.Place(state.epoch, state.phases, num_read)
    else:
        phase = order.Phase(num_ranks, num_read)
        found = order.Place(state.epoch, (*state.phases, phase))
    left = of.num_steps(found._replace(start=0))
    if found.start > left * of.batch_size:
        raise ValueError(
            f"An epoch has {left} steps of {of.batch_size} records on each of "
            f"{of.num_ranks} ranks, got a start at step {state.step} of it."
        )
    # If what is left of the epoch gives no step, the next epoch begins.
    return found if of.num_steps(found) else order.Place(state.epoch + 1)


def num_steps(state: State, of: order.Order, num_epochs: int | None) -> int | None:
    """Returns the steps from a state to the end of `num_epochs`; None is endless."""
    if num_epochs is None:
        return None
    found = place(state, of)
    num_later = num_epochs - 1 - (found.epoch - state.epoch)
    return of.num_steps(found) + num_later * of.num_steps()


def advance(state: State, of: order.Order, count: int) -> State:
    """Returns the state `count` steps later."""
    epoch, phases, start = place(state, of)
    left = of.num_steps(order.Place(epoch, phases, start))
    step = start // of.batch_size + count
    if count >= left:
        later, step = divmod(count - left, of.num_steps())
        epoch, phases = epoch + 1 + later, ()
    return State(
        epoch=epoch,
        step=step,
        num_ranks=of.num_ranks,
        batch_size=of.batch_size,
        phases=phases,
        digest=state.digest,
    )


class SavedState(tf.train.experimental.PythonState):  # type: ignore[misc]  # TF is untyped
    """A `State` that a `tf.train.Checkpoint` saves and restores.

    saved = tfpipe.SavedState()
    checkpoint = tf.train.Checkpoint(model=model, data=saved)
    checkpoint.restore(path)
    dataset = pipeline.build(state=saved.state, num_epochs=None)
    ... each step: saved.state = pipeline.source.advance(saved.state)

    Attributes:
        state: The current state; set it before saving.
    """

    def __init__(self, state: State | None = None) -> None:
        errors.require_kind(self, "state", state, State, or_none=True)
        self.state = state or State()

    def serialize(self) -> str:
        """Returns the text that `tf.train.Checkpoint` writes."""
        return self.state.to_json()

    def deserialize(self, string_value: bytes | str) -> None:
        """Sets the state from the text that `tf.train.Checkpoint` read."""
        text = (
            string_value.decode() if isinstance(string_value, bytes) else string_value
        )
        self.state = State.from_json(text)
