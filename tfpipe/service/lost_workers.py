"""Lost workers: an epoch that waits for a worker that is gone ends with an error.

In: the times at which elements arrive, and the answers of the servers. Out: nothing, or
an error that names who does not answer. TensorFlow itself waits without a time limit.
"""

import dataclasses
import functools
import threading
import time
from collections.abc import Callable

from tfpipe.service.workers import service_worker_answers, service_workers

# Times that the servers are asked within the limit, while no element arrives.
_NUM_PROBES = 4


def start_thread(work: Callable[[], None]) -> None:
    """Starts a thread that does some work, and does not keep the process alive."""
    threading.Thread(target=work, daemon=True, name="tfpipe-service-probe").start()


@dataclasses.dataclass(kw_only=True)
class LostWorkers:
    """Finds out why no element arrives from a service.

    The servers are asked only while none arrives, in a thread of its own. A worker is
    lost if no element has arrived for `limit` seconds, and the worker has not answered
    in that time.

    Args:
        address: HOST:PORT of the dispatcher.
        limit: Seconds after which a server that does not answer is lost.
        workers: Returns the addresses of the workers of a dispatcher; for tests.
        is_answering: Whether a worker answers; for tests.
        clock: Seconds; for tests.
        start: Runs a probe beside the caller; for tests.
    """

    address: str
    limit: float
    workers: Callable[[str], list[str]] = service_workers
    is_answering: Callable[[str], bool] = service_worker_answers
    clock: Callable[[], float] = time.monotonic
    start: Callable[[Callable[[], None]], None] = start_thread

    def __post_init__(self) -> None:
        self._is_probing = False
        self.arrived()

    def arrived(self) -> None:
        """Notes that an element has arrived, or that an epoch begins."""
        self._probed = self._waits_since = self.clock()
        # When each server answered last, by its name in the message.
        self._answered: dict[str, float] = {}

    def check(self) -> None:
        """Asks the servers if it is time to.

        Raises:
            RuntimeError: If a server is lost.
        """
        now, begun = self.clock(), self._waits_since
        lost = [
            name
            for name, answered in [*self._answered.items()]
            if self._probed - max(begun, answered) >= self.limit
        ]
        if lost and now - begun >= self.limit:
            raise RuntimeError(self._message(lost, now - begun))
        if not self._is_probing and now - self._probed >= self.limit / _NUM_PROBES:
            self._is_probing = True
            self.start(functools.partial(self._probe, begun))

    def _probe(self, begun: float) -> None:
        """Asks all servers; forgets the answers if an element arrives meanwhile."""
        try:
            found = self._answers()
            now = self.clock()
            if begun == self._waits_since:
                for name, is_answering in found.items():
                    last = self._answered.get(name, begun)
                    self._answered[name] = now if is_answering else last
                self._probed = now
        finally:
            self._is_probing = False

    def _answers(self) -> dict[str, bool]:
        """Returns whether each server answers, by its name in the message."""
        dispatcher = f"the dispatcher at {self.address}"
        try:
            addresses = self.workers(self.address)
        except ConnectionError:
            return {dispatcher: False}
        found = {f"the worker at {each}": self.is_answering(each) for each in addresses}
        return found | {dispatcher: True, "any worker": bool(found)}

    def _message(self, lost: list[str], seconds: float) -> str:
        return (
            f"The tf.data service at {self.address} has given no element for "
            f"{seconds:.0f} seconds, and no answer came from {', '.join(sorted(lost))}."
            " Start each again with the address that it had: python -m "
            "benchmarks.service worker --address=… (or dispatcher, with its "
            "--work_dir). Then resume the run from its last checkpoint. "
            "Service.lost_after_s is the time to wait for that."
        )
