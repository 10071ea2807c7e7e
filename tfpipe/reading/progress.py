"""The progress of a run in the order of its records, as methods of a source.

In: a source with an `Order`, and states. Out: places, later states, and numbers of
steps and records. Nothing is read.
"""

import dataclasses
from collections.abc import Iterator

from tfpipe.reading import state as state_of_run
from tfpipe.reading.order import Order, Place
from tfpipe.reading.state import State


class Progress:
    """The progress of a source, computed from its order.

    Attributes:
        rank: Number of this rank.
        batch_size: Examples in a batch of this rank.
    """

    rank: int
    batch_size: int

    @property
    def order(self) -> Order:
        """The order of the records."""
        raise NotImplementedError

    @property
    def digest(self) -> str:
        """A digest of the data and of all that decides its order."""
        raise NotImplementedError

    @property
    def steps_per_epoch(self) -> int:
        """Steps that every rank makes in an epoch."""
        return self.order.num_steps()

    def place(self, state: State) -> Place:
        """Returns the place of a state in the order of this source.

        Raises:
            ValueError: If the state belongs to other data or another order.
        """
        if state.digest not in ("", self.digest):
            raise ValueError(
                "The state must be of the same data, seed and shuffling as this source,"
                f" {self.digest} of {self!r}, got {state.digest}."
            )
        return state_of_run.place(state, self.order)

    def advance(self, state: State, num_steps: int = 1) -> State:
        """Returns the state `num_steps` later."""
        self.place(state)  # raises if the state belongs to another source
        later = state_of_run.advance(state, self.order, num_steps)
        return dataclasses.replace(later, digest=self.digest)

    def num_steps(self, state: State, num_epochs: int | None) -> int | None:
        """Returns the steps from a state on in `num_epochs` epochs; None is endless."""
        return state_of_run.num_steps(state, self.order, num_epochs)

    def num_records(self, state: State, num_epochs: int | None) -> int | None:
        """Returns the records this rank reads in `num_steps`; None is endless."""
        steps = self.num_steps(state, num_epochs)
        return None if steps is None else steps * self.batch_size

    def window_starts(self, state: State) -> Iterator[int]:
        """Yields how many records after a state each window begins: 0, and so on.

        Epochs never end. `Interleave` reads a whole window, while it uses the last.
        """
        return _window_starts(self.order, self.rank, self.place(state))


def _window_starts(order: Order, rank: int, place: Place) -> Iterator[int]:
    start = 0
    while True:
        for number in order.windows(rank, place):
            yield start
            start += order.window(rank, place, number).take
        place = Place(place.epoch + 1)
