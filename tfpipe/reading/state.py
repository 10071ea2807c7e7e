"""The state of a run in its data: a few integers, the same on every rank.

In: the numbers of a run. Out: a `State` that is saved with a checkpoint. The same or
another number of ranks resumes from a state.
"""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfpipe import errors
from tfpipe.reading.order import EpochPosition, Order, Phase
from tfpipe.shard_cache import metadata


@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """The progress of a run in its data.

    Example:
        >>> source = tfpipe.TFRecordSource("DIR", "train", batch_size=8)
        >>> state = source.advance(tfpipe.State(), 4)  # an epoch has 3 steps
        >>> (state.epoch, state.step)
        (1, 1)

    Attributes:
        epoch: Number of the epoch, >= 0.
        step: Steps that every rank has made in the epoch since `phases`, >= 0.
        num_ranks: Ranks that made these steps; None stands for the resuming ranks.
        batch_size: Examples in a rank's batch in these steps; None stands for the batch
            size of the resuming run.
        phases: Parts of the epoch that other numbers of ranks read before.
        digest: Digest of the data and of their order, see `TFRecordSource.digest`; ""
            if unknown.
        ranks_per_host: Ranks on each host in these steps, for a source with affinity;
            empty stands for the hosts of the resuming ranks.
        generation: Number of the generation of a growing data set; 0 for a usual data
            set, or if unknown.
        data: Digest of the shards alone, see `TFRecordSource.data_digest`; "" if
            unknown.
        tags: Digest of the ETags of the shards, see `TFRecordSource.tags`; "" if
            unknown.

    Raises:
        ValueError: If a number is out of range.
    """

    epoch: int = 0
    step: int = 0
    num_ranks: int | None = None
    batch_size: int | None = None
    phases: tuple[Phase, ...] = ()
    digest: str = ""
    ranks_per_host: tuple[int, ...] = ()
    generation: int = 0
    data: str = ""
    tags: str = ""

    def __post_init__(self) -> None:
        errors.settle_ints(self, ["epoch", "step", "generation"], least=0)
        errors.settle_ints(self, ["num_ranks", "batch_size"], least=1, also=[None])
        for name in ("digest", "data", "tags"):
            errors.require_kind(self, name, getattr(self, name), str)
        phases = [_checked(Phase(*phase)) for phase in self.phases]
        errors.settle(self, "phases", tuple(phases))
        hosts = _checked_hosts(self.ranks_per_host, self.num_ranks)
        errors.settle(self, "ranks_per_host", hosts)

    def to_json(self) -> str:
        """Returns the state as a line of JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "State":
        """Reads the text of `to_json`.

        Raises:
            ValueError: If the text is not a state.
        """
        try:
            fields = errors.from_json(text)
            phases = tuple(Phase(*phase) for phase in fields.pop("phases"))
            return cls(**fields, phases=phases)
        except (TypeError, KeyError, AttributeError, json.JSONDecodeError) as error:
            raise ValueError(
                "State.from_json must get a text that State.to_json wrote, got "
                f"{text!r}."
            ) from error


def _checked(phase: Phase) -> Phase:
    owner = "State.phases"
    num_ranks = errors.require_int(owner, "num_ranks", phase.num_ranks, least=1)
    return Phase(
        num_ranks,
        errors.require_int(owner, "num_records", phase.num_records, least=0),
        _checked_hosts(phase.ranks_per_host, num_ranks),
    )


def _checked_hosts(counts: Sequence[int], num_ranks: int | None) -> tuple[int, ...]:
    checked = tuple(
        errors.require_int("State", "ranks_per_host", count, least=1)
        for count in counts
    )
    if checked and sum(checked) != num_ranks:
        raise ValueError(
            "State.ranks_per_host must add up to num_ranks, got "
            f"{list(checked)} for {num_ranks} ranks."
        )
    return checked


def position(state: State, order: Order) -> EpochPosition:
    """Returns the position of a state in an order.

    Raises:
        ValueError: If the epoch has fewer steps than the state, or if the order has
            affinity and the state does not hold the hosts of other ranks.
    """
    num_ranks = state.num_ranks or order.num_ranks
    batch_size = state.batch_size or order.batch_size
    num_read = state.step * batch_size
    hosts = state.ranks_per_host
    if num_ranks == order.num_ranks:
        hosts = hosts or order.ranks_per_host
    if order.affinity is not None and sum(hosts) != num_ranks:
        raise ValueError(
            "A state must hold ranks_per_host for a source with affinity, if other "
            f"ranks go on; got {num_ranks} ranks on unknown hosts."
        )
    read_by = (num_ranks, batch_size, hosts)
    if read_by == (order.num_ranks, order.batch_size, order.ranks_per_host):
        begin = EpochPosition(state.epoch, state.phases, num_read)
    else:
        phase = Phase(num_ranks, num_read, hosts)
        begin = EpochPosition(state.epoch, (*state.phases, phase))
    left = order.num_steps(begin._replace(start=0))
    if begin.start > left * order.batch_size:
        raise ValueError(
            f"An epoch has {left} steps of {order.batch_size} records on each of "
            f"{order.num_ranks} ranks, got a start at step {state.step} of it."
        )
    # If the rest of the epoch gives no step, the next epoch begins.
    return begin if order.num_steps(begin) else EpochPosition(state.epoch + 1)


def require_same_data(state: State, source: Any) -> None:
    """Checks that a state belongs to a `TFRecordSource`.

    Shards that were copied again are named: they may have the same bytes or others.

    Raises:
        ValueError: If the state belongs to other data or another order.
    """
    shown = source.split_index.storage.location.shown
    if state.data not in ("", source.data_digest):
        raise ValueError(
            f"{shown} must have the digest {state.data} of the state, got "
            f"{source.data_digest}: the data set was replaced since then. Take the old "
            "one, or begin with tfpipe.State()."
        )
    if state.digest not in ("", source.digest):
        raise ValueError(
            "The state must be of the same data, seed and shuffling as this source,"
            f" {source.digest} of {source!r}, got {state.digest}."
        )
    if source.tags and state.tags not in ("", source.tags):
        metadata.say_copied(shown, "the state was saved")


def num_steps(state: State, order: Order, num_epochs: int | None) -> int | None:
    """Returns the steps from a state to the end of `num_epochs`; None is endless."""
    if num_epochs is None:
        return None
    begin = position(state, order)
    num_later = num_epochs - 1 - (begin.epoch - state.epoch)
    return order.num_steps(begin) + num_later * order.num_steps()


def advance(begin: EpochPosition, order: Order, count: int) -> State:
    """Returns the state `count` steps after a position, without digests."""
    epoch, phases = begin.epoch, begin.phases
    left = order.num_steps(begin)
    step = begin.start // order.batch_size + count
    if count >= left:
        later, step = divmod(count - left, order.num_steps())
        epoch, phases = epoch + 1 + later, ()
    return State(
        epoch=epoch,
        step=step,
        num_ranks=order.num_ranks,
        batch_size=order.batch_size,
        phases=phases,
        ranks_per_host=order.ranks_per_host,
    )


class CheckpointState(tf.train.experimental.PythonState):  # type: ignore[misc]  # TF is untyped
    """A `State` in a `tf.train.Checkpoint`, beside the model.

    After every step a training loop sets `saved.state = source.advance(saved.state)`.
    After `checkpoint.restore(path)` it builds with `pipeline.build(state=saved.state)`.

    Example:
        >>> saved = tfpipe.CheckpointState(tfpipe.State(epoch=2, step=5))
        >>> path = tf.train.Checkpoint(data=saved).save("checkpoint")
        >>> restored = tfpipe.CheckpointState()
        >>> status = tf.train.Checkpoint(data=restored).restore(path)
        >>> restored.state.step
        5

    Attributes:
        state: The current state; set `state` before saving.
    """

    def __init__(self, state: State | None = None) -> None:
        errors.require_kind(self, "state", state, State, or_none=True)
        self.state = state or State()

    def serialize(self) -> str:
        """Returns the text for `tf.train.Checkpoint`."""
        return self.state.to_json()

    def deserialize(self, string_value: bytes | str) -> None:
        """Sets the state from the text of `serialize`."""
        text = (
            string_value.decode() if isinstance(string_value, bytes) else string_value
        )
        self.state = State.from_json(text)
