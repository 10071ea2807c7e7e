"""The workers of a tf.data service: which there are, and which answer.

In: the address of a dispatcher or of a worker. Out: addresses, or whether it answers.
They are asked as trainers ask them.
"""

from collections.abc import Iterator

_WORKERS = "/tensorflow.data.DispatcherService/GetWorkers"
_TASKS = "/tensorflow.data.WorkerService/GetWorkerTasks"
_ANSWER_SECONDS = 5.0


def service_workers(dispatcher: str) -> list[str]:
    """Returns HOST:PORT of each worker that a dispatcher knows, alive or not.

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

    A worker that is stopped, and accepts connections only, does not answer.
    """
    answer, code = _ask(address, _TASKS)
    return answer is not None or code not in ("UNAVAILABLE", "DEADLINE_EXCEEDED")


def _ask(address: str, method: str) -> tuple[bytes | None, str]:
    """Returns the answer of a server to an empty request, and the name of a failure."""
    import grpc  # type: ignore[import-untyped]

    # A proxy of the environment is for other hosts than these.
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
