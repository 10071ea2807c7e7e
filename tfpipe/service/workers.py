"""The workers of a tf.data service: which there are, which answer, which are lost.

In: the address of a dispatcher or of a worker, and the times at which elements arrive.
Out: addresses, answers, or an error with the name of a server that does not answer. The
requests are the same as those of trainers. TensorFlow itself waits without a limit.
"""

import dataclasses
import functools
import threading
import time
from collections.abc import Callable

from tfpipe.location import direct
from tfpipe.location.location import Location
from tfpipe.shards import example

_WORKERS = "/tensorflow.data.DispatcherService/GetWorkers"
_TASKS = "/tensorflow.data.WorkerService/GetWorkerTasks"
_ANSWER_SECONDS = 5.0
# Requests to the servers within the limit, while no element arrives.
_NUM_PROBES = 4


def service_workers(dispatcher: str) -> list[str]:
    """Returns HOST:PORT of each worker that a dispatcher knows, alive or not.

    Example:
        >>> from tfpipe.service.workers import service_workers
        >>> try:
        ...     service_workers("127.0.0.1:1")
        ... except ConnectionError as error:
        ...     print(error)
        The dispatcher at 127.0.0.1:1 must name its workers, got: UNAVAILABLE.

    Args:
        dispatcher: HOST:PORT of the dispatcher.

    Raises:
        ConnectionError: If the dispatcher does not answer within 5 seconds.
    """
    answer, code = _ask(dispatcher, _WORKERS)
    if answer is None:
        raise ConnectionError(
            f"The dispatcher at {dispatcher} must name its workers, got: {code}."
        )
    return parse_workers(answer)


def service_worker_answers(address: str) -> bool:
    """Checks whether a worker answers at HOST:PORT within 5 seconds.

    A stopped worker, which accepts connections only, does not answer.

    Example:
        >>> from tfpipe.service.workers import service_worker_answers
        >>> service_worker_answers("127.0.0.1:1")
        False
    """
    answer, code = _ask(address, _TASKS)
    return answer is not None or code not in ("UNAVAILABLE", "DEADLINE_EXCEEDED")


def read_by_url(url: str) -> None:
    """Makes a worker able to read the shards of a data set by URL.

    Example:
        >>> from tfpipe.service.workers import read_by_url
        >>> try:
        ...     read_by_url("az://container/imagenet")
        ... except ValueError as error:
        ...     print(str(error)[:26])
        Direct reading takes URLs

    Raises:
        ValueError: If the text is no URL, or tensorflow-io cannot read the URL.
        RemoteError: If the settings of the store are wrong.
    """
    location = Location.from_user("--data_dir", url)
    if location.is_local:
        raise ValueError(
            f"--data_dir must be the URL of a data set, got {url}. Workers read a "
            "folder without the flag."
        )
    direct.prepare(location)


def _ask(address: str, method: str) -> tuple[bytes | None, str]:
    """Returns the answer of a server to an empty request, and the name of a failure."""
    import grpc  # type: ignore[import-untyped]

    # A proxy of the environment is for other hosts.
    options = [("grpc.enable_http_proxy", 0)]
    with grpc.insecure_channel(address, options) as channel:
        try:
            answer: bytes = channel.unary_unary(method)(b"", timeout=_ANSWER_SECONDS)
        except grpc.RpcError as error:
            return None, error.code().name
    return answer, ""


def parse_workers(message: bytes) -> list[str]:
    """Returns the addresses of a GetWorkersResponse, a list of WorkerInfo.

    The address is field 1 of WorkerInfo, which is field 1 of the response. See
    tensorflow/core/data/service/dispatcher.proto.
    """
    return [
        bytes(address).decode()
        for worker in _contents(memoryview(message))
        for address in _contents(worker)
    ]


def _contents(message: memoryview) -> list[memoryview]:
    """Returns the bytes of each field 1 of a protobuf message."""
    fields = example.fields_of(message)
    return [content for field, kind, content in fields if (field, kind) == (1, 2)]


def start_thread(work: Callable[[], None]) -> None:
    """Does some work in a thread that does not keep the process alive."""
    threading.Thread(target=work, daemon=True, name="tfpipe-service-probe").start()


@dataclasses.dataclass(kw_only=True)
class LostWorkers:
    """Finds out why no element arrives from a service.

    A thread asks the servers, only while no element arrives. A worker is lost if for
    `limit` seconds no element has arrived and the worker has not answered.

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
        """Asks the servers from time to time.

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

    def all_answer(self) -> bool:
        """Asks all servers now; returns whether each answers within 5 seconds."""
        return all(self._answers().values())

    def _probe(self, begun: float) -> None:
        """Asks all servers; forgets the answers if an element arrives meanwhile."""
        try:
            answers = self._answers()
            now = self.clock()
            if begun == self._waits_since:
                for name, is_answering in answers.items():
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
        answers = {f"the worker at {a}": self.is_answering(a) for a in addresses}
        return answers | {dispatcher: True, "any worker": bool(answers)}

    def _message(self, lost: list[str], seconds: float) -> str:
        return (
            f"The tf.data service at {self.address} has given no element for "
            f"{seconds:.0f} seconds, and no answer came from {', '.join(sorted(lost))}."
            " Start each again with the address that it had: python -m "
            "benchmarks.service worker --address=… (or dispatcher, with its "
            "--work_dir). Then resume the run from its last checkpoint. "
            "Service.lost_after_s is the time to wait for that."
        )
