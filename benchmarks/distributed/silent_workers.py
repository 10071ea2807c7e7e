"""The workers of a tf.data service that do not answer, in sentences.

In: the addresses of workers. Out: sentences about workers that are silent or back.
"""

import dataclasses
import time
from collections.abc import Callable, Collection


@dataclasses.dataclass
class SilentWorkers:
    """Finds the workers that have not answered for some time.

    Args:
        limit: Seconds after which a worker is silent.
        is_answering: Whether a worker answers, `tfpipe.service_worker_answers`.
        clock: Seconds; for tests.
    """

    limit: float
    is_answering: Callable[[str], bool]
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._answered: dict[str, float] = {}
        self._silent: set[str] = set()

    def look(self, addresses: Collection[str]) -> list[str]:
        """Asks each worker, and returns a sentence for each that is silent or back."""
        sentences = []
        for address in addresses:
            is_alive, now = self.is_answering(address), self.clock()
            if is_alive or address not in self._answered:
                self._answered[address] = now
            silence = now - self._answered[address]
            if is_alive and address in self._silent:
                self._silent.remove(address)
                sentences.append(f"The worker at {address} answers again.")
            elif silence >= self.limit and address not in self._silent:
                self._silent.add(address)
                sentences.append(
                    f"The worker at {address} has not answered for {silence:.0f} "
                    "seconds. Epochs of which it has records cannot end without it: "
                    f"start it again with --address={address}, or end their trainers "
                    "and this service."
                )
        return sentences
