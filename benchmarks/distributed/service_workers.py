"""The workers of a tf.data service: which of them answer.

In: the address of a dispatcher. Out: sentences about workers that are silent or back.
It asks the dispatcher as trainers do; the servers of TensorFlow say nothing of it.
"""

import dataclasses
import socket
import time
from collections.abc import Callable, Collection, Iterator

_METHOD = "/tensorflow.data.DispatcherService/GetWorkers"
_ANSWER_SECONDS = 5.0


def worker_addresses(dispatcher: str) -> list[str]:
    """Returns HOST:PORT of each worker that a dispatcher knows, alive or not.

    Raises:
        ConnectionError: If the dispatcher does not answer.
    """
    import grpc

    # A proxy of the environment is for other hosts than this one.
    options = [("grpc.enable_http_proxy", 0)]
    with grpc.insecure_channel(dispatcher, options) as channel:
        try:
            answer = channel.unary_unary(_METHOD)(b"", timeout=_ANSWER_SECONDS)
        except grpc.RpcError as error:
            raise ConnectionError(
                f"The dispatcher at {dispatcher} must name its workers, got: "
                f"{error.code().name}."
            ) from error
    return parse_workers(answer)


def parse_workers(message: bytes) -> list[str]:
    """Returns the addresses of a GetWorkersResponse, a list of WorkerInfo.

    The address is field 1 of WorkerInfo, which is field 1 of the response. See
    tensorflow/core/data/service/dispatcher.proto.
    """
    workers = (value for field, value in _fields(message) if field == 1)
    return [
        value.decode()
        for each in workers
        for field, value in _fields(each)
        if field == 1
    ]


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the number and bytes of each field of bytes; passes over whole numbers."""
    place = 0

    def number() -> int:
        nonlocal place
        value, shift = 0, 0
        while True:
            byte = message[place]
            place, value, shift = place + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while place < len(message):
        key = number()
        value = number()
        if key & 7 == 2:
            yield key >> 3, message[place : place + value]
            place += value


def answers(address: str) -> bool:
    """Checks whether a server accepts a connection at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS):
            return True
    except OSError:
        return False


@dataclasses.dataclass
class SilentWorkers:
    """Finds the workers that have not answered for some time.

    Args:
        limit: Seconds after which a worker is silent.
        is_answering: Whether a worker answers; for tests.
        clock: Seconds; for tests.
    """

    limit: float
    is_answering: Callable[[str], bool] = answers
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
