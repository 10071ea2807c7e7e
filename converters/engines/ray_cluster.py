"""Tasks on a Ray cluster, with the results or the files of a run on the own host.

In: the address of a cluster, a function and its tasks. Out: the results in the order of
the tasks, or the first exception, after every task has stopped. A function may also
write files into a folder; the files are then the output. A task whose worker or node is
lost is done again elsewhere, so a task must be safe to do twice. Nodes see the folder
at the same path. If the function uploads its large files itself, nodes use own folders
and send the small files back. `ray` is imported when a cluster is connected, because
the other engine does without Ray.
"""

import contextlib
import dataclasses
import functools
import importlib.util
import itertools
import os
import pathlib
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from converters.engines import processes
from tfpipe import host
from tfpipe.cli import progress

if TYPE_CHECKING:
    import socket

Task = TypeVar("Task")
Result = TypeVar("Result")

# A cluster without an answer within so many seconds cannot be reached.
REACH_SECONDS = 10.0
# A task lost so often is taken for the reason why workers die.
MAX_LOST = 4
_POLL_SECONDS = 0.1
# Seconds in which a task must stop when a run stops. The end of the connection then
# kills the worker of the task.
_GRACE_SECONDS = 5.0
# Tasks waiting on the cluster for every CPU, so that no CPU waits for the driver.
_TASKS_PER_CPU = 2
# Ray's least. Functions and results are small: records never pass through Ray.
_STORE_BYTES = 80 << 20
# Addresses: the cluster of the own host, and a cluster for the command alone.
AUTO, LOCAL = "auto", "local"
# The first bytes of HTTP/2 from both sides (RFC 9113, 3.4): a fixed text, and then a
# frame of settings, here empty.
_SETTINGS = b"\x04"
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + _SETTINGS + bytes(5)
# By default Ray reports its use to its makers, and warns about GPUs.
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_SCHEDULER_EVENTS": "0",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cluster:
    """The cluster to which the process is connected.

    Attributes:
        num_workers: Most tasks running at a time; None fills all CPUs of the cluster,
            also the CPUs of nodes that join later.

    Raises:
        ValueError: If the number is below 1.
    """

    num_workers: int | None = None

    def __post_init__(self) -> None:
        if self.num_workers is not None and self.num_workers < 1:
            raise ValueError(f"num_workers must be >= 1, got {self.num_workers}.")


class _Done(NamedTuple, Generic[Result]):
    """The answer of a node.

    Attributes:
        result: The result of the function.
        num_images: Number of images counted by the task.
        seconds: Duration of the task.
        cpu_seconds: CPU time of the process meanwhile.
    """

    result: Result
    num_images: int
    seconds: float
    cpu_seconds: float


def require() -> None:
    """Checks that Ray is installed, without importing it.

    Raises:
        ValueError: If Ray is not installed.
    """
    if importlib.util.find_spec("ray") is None:
        raise ValueError(
            "--engine=ray needs the package ray, which is not installed. Run "
            "pip install 'tfpipe[ray]', or leave --engine out."
        )


@contextlib.contextmanager
def connected(address: str | None, *, num_workers: int | None) -> Iterator[None]:
    """Connects the process to a cluster until the end of the block.

    Args:
        address: HOST:PORT of the head, ray://HOST:PORT, "auto" for the cluster of the
            own host, or "local" for a cluster started for the block. None stands for
            `RAY_ADDRESS`, else "auto", else "local".
        num_workers: Number of CPUs of a started cluster; None takes the CPUs of the
            process.

    Raises:
        ValueError: If Ray is not installed.
        OSError: If the cluster cannot be reached, or runs other versions of Ray or
            Python.
    """
    require()
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    handler = signal.getsignal(signal.SIGTERM)
    address = address or os.environ.get("RAY_ADDRESS") or None
    if address not in (None, AUTO, LOCAL):
        require_reachable(str(address))
    import ray

    try:
        if address is None:
            _connect_any(num_workers)
        else:
            _connect(address, num_workers)
        _restore(handler)  # Ray sets one that ends the process
        yield
    finally:
        ray.shutdown()
        _restore(handler)


def _restore(handler: Any) -> None:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


def _connect_any(num_workers: int | None) -> None:
    """Connects to the cluster of this host, or starts one if there is none."""
    try:
        _connect(AUTO, num_workers)
    except ConnectionError:
        _connect(LOCAL, num_workers)


def _connect(address: str, num_workers: int | None) -> None:
    import ray

    options: dict[str, Any] = {}
    if hide_broken_pyarrow():
        hook = f"{__name__}.{hide_broken_pyarrow.__name__}"
        options["runtime_env"] = {"worker_process_setup_hook": hook}
    if address == LOCAL:
        options["num_cpus"] = num_workers or host.num_cores()
        options["object_store_memory"] = _STORE_BYTES
        options["include_dashboard"] = False
    try:
        with _silent():
            ray.init(address, log_to_driver=False, logging_level="ERROR", **options)
    except ConnectionError as error:
        raise ConnectionError(
            f"No Ray cluster answers at {address}: {_first_line(error)}. Start one "
            "with `ray start --head`, or name another with --ray_address. If it has a "
            "token, RAY_AUTH_TOKEN or ~/.ray/auth_token must hold it here too."
        ) from error
    except Exception as error:  # Ray raises just this, for example if it starts slowly
        raise OSError(
            f"The Ray cluster at {address} cannot be used: {_first_line(error)}"
        ) from error


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Hides the lines of Ray at every try to connect; an error says the reason once."""
    sys.stderr.flush()
    shown = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(shown, 2)
        os.close(shown)


def hide_broken_pyarrow() -> bool:
    """Makes a pyarrow without a working import look as if pyarrow were not installed.

    Ray does without pyarrow, but not with a failing pyarrow. Today's pyarrow needs
    NumPy 2, and the reference stack has NumPy 1. Every worker process calls the
    function too.

    Returns:
        Whether there is such a pyarrow.
    """
    try:
        import pyarrow  # noqa: F401
    except ModuleNotFoundError:
        return "pyarrow" in sys.modules  # hidden before
    except ImportError:
        sys.modules["pyarrow"] = None  # type: ignore[assignment]
        return True
    return False


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")


def require_reachable(address: str) -> None:
    """Checks that something listens at an address: Ray itself waits much longer.

    Args:
        address: HOST:PORT or ray://HOST:PORT.

    Raises:
        ValueError: If the text is not an address.
        ConnectionError: If nothing answers.
    """
    name, _, port = address.rpartition("://")[2].rpartition(":")
    if not name or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(
            "--ray_address must be HOST:PORT, ray://HOST:PORT, auto or local, "
            f"got {address}."
        )
    import socket

    host_port = (name.strip("[]"), int(port))
    try:
        with socket.create_connection(host_port, REACH_SECONDS) as connection:
            problem = "" if "RAY_USE_TLS" in os.environ else _problem_of(connection)
    except OSError as error:
        problem = error.strerror or str(error)
    if problem:
        raise ConnectionError(
            f"No Ray cluster answers at {address} within {REACH_SECONDS:g} s: "
            f"{problem}. Is it the address that `ray start --head` printed?"
        )


def _problem_of(connection: "socket.socket") -> str:
    """Returns why what has answered is no server of gRPC; empty if it is one.

    Ray would ask another server for minutes.
    """
    connection.settimeout(REACH_SECONDS)
    connection.sendall(_HELLO)
    frame = connection.recv(9)  # its head: a length of 3 bytes, then its kind
    return "" if frame[3:4] == _SETTINGS else "another server answered"


def run(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    num_workers: int | None = None,
    num_images: int,
    unit: str = "image",
    on_result: Callable[[Result], object] = processes.ignore,
    on_span: Callable[[processes.Span], object] = processes.ignore,
    note: str = "",
) -> list[Result]:
    """Calls `function` on every task, on the cluster of `connected`.

    Args:
        function: Can be pickled; the module of the function is installed on every
            node. The function may be called twice with a task, also at the same time.
        tasks: The arguments of the calls.
        num_workers: Most tasks running at a time, see `Cluster`.
        num_images: As for `processes.run`. The bar moves when a task ends.
        unit: As for `processes.run`.
        on_result: As for `processes.run`.
        on_span: Called with the span of every task. The span ends when the result
            arrives here, because every host has an own clock.
        note: As for `processes.run`.

    Raises:
        OSError: If the workers of a task die again and again, or the cluster is lost.
        Exception: The first exception of `function` or `on_result`.
    """
    with progress.bar(num_images, unit) as bar:
        num_ended = itertools.count(1)

        def on_end(done: _Done[Result]) -> None:
            end = time.monotonic()
            on_span(processes.Span(end - done.seconds, end, done.cpu_seconds))
            on_result(done.result)
            bar.update(done.num_images)
            bar.set_postfix_str(note.format(next(num_ended)), refresh=False)

        return _run(function, tasks, on_end, num_workers)


def _run(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    on_end: Callable[[_Done[Result]], object],
    num_workers: int | None,
) -> list[Result]:
    import ray

    # SPREAD: every host reads and writes, also while there are few tasks.
    call = ray.remote(_call).options(
        num_cpus=1, max_retries=MAX_LOST, scheduling_strategy="SPREAD"
    )
    results: dict[int, Result] = {}
    running: dict[Any, int] = {}
    stop = f"tfpipe-stop-{os.urandom(16).hex()}"
    try:
        shared = _put(function)
        waiting = iter(enumerate(tasks))
        while len(results) < len(tasks):
            free = (num_workers or _room()) - len(running)
            for number, task in itertools.islice(waiting, max(0, free)):
                running[call.remote(shared, stop, task)] = number
            done, _ = ray.wait(list(running), timeout=_POLL_SECONDS)
            for reference in done:
                ended = _get(reference)
                results[running.pop(reference)] = ended.result
                on_end(ended)
    except BaseException:
        _stop(stop, list(running))
        raise
    return [results[number] for number in range(len(tasks))]


def _put(function: Callable[[Any], Any]) -> Any:
    """Sends a function to the cluster once, and not with every task."""
    import ray

    try:
        return ray.put(function)
    except ImportError as error:  # by ray://, of the server on the head
        raise OSError(
            f"The head of the Ray cluster cannot take the job: {_first_line(error)}. "
            "Mend its packages, or run the command on a host of the cluster."
        ) from error


def _room() -> int:
    """Returns the most tasks at the cluster, also while the cluster has no CPU yet."""
    import ray

    num_cpus: float = ray.cluster_resources().get("CPU", 0)
    return max(1, round(num_cpus * _TASKS_PER_CPU))


def _get(reference: Any) -> Any:
    """Returns the result of a task, or raises the exception of the task."""
    import ray

    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if not isinstance(error.cause, Exception):
            raise
        if isinstance(error.cause, OSError):  # such as a full disk
            print(f"A task failed on the node {error.ip}.", file=sys.stderr)
        raise error.cause from error
    except ray.exceptions.RayError as error:
        raise OSError(
            f"A task was lost {MAX_LOST + 1} times with its worker or node, or the "
            f"cluster was lost: {_first_line(error)}. If the nodes lack memory, try "
            "fewer --num_workers."
        ) from error


class _Stopped:
    """An actor that does nothing: its name tells the tasks of a run to stop."""


def _stop(name: str, references: list[Any]) -> None:
    """Ends tasks within a few seconds; the end of the connection kills the others.

    The tasks end themselves. Ray may answer a second time for a task cancelled by Ray,
    and then ends the process with a stack of Ray in place of the error.
    """
    import ray

    with contextlib.suppress(ray.exceptions.RayError, ConnectionError):
        if references:
            # The actor lasts as long as the variable.
            stopped = ray.remote(_Stopped).options(name=name, num_cpus=0).remote()
            ray.wait(references, num_returns=len(references), timeout=_GRACE_SECONDS)
            del stopped


def _require_running(stop: str) -> None:
    """Ends a task, with an InterruptedError, if its run has to stop."""
    import ray

    with contextlib.suppress(ValueError):  # no actor has the name
        ray.get_actor(stop)
        raise InterruptedError("The run was stopped.")


def _call(function: Callable[[Any], Any], stop: str, task: Any) -> _Done[Any]:
    """Does a task. Runs on a node."""
    num_images, last = 0, time.monotonic()

    def count() -> None:
        # A question to the cluster takes as long as a small image.
        nonlocal num_images, last
        num_images += 1
        if time.monotonic() - last >= _POLL_SECONDS:
            _require_running(stop)
            last = time.monotonic()

    _require_running(stop)
    start, cpu_start = time.monotonic(), time.process_time()
    with processes.counting(count):
        result = function(task)
    seconds, cpu_seconds = time.monotonic() - start, time.process_time() - cpu_start
    return _Done(result, num_images, seconds, cpu_seconds)


def node_name() -> str:
    """Returns the address of the node of the running task."""
    import ray

    return str(ray.util.get_node_ip_address())


class Nodes(NamedTuple):
    """How nodes write the files of a run.

    Attributes:
        cluster: The cluster to which the process is connected.
        problem: Called on a node before every task: says why the node cannot do the
            task, as the end of a sentence whose subject is the node; empty if the node
            can. Can be pickled.
        sends: Whether nodes send files back, because nodes need not see the folder.
        keep: Called here with the name and the content of every sent file.
        last: Suffix of the file sent last, after which the files are complete.
    """

    cluster: Cluster
    problem: Callable[[], str]
    sends: bool
    keep: Callable[[str, bytes], object]
    last: str


class _Sent(NamedTuple, Generic[Result]):
    """The answer of a node: the result of a task, and files to keep, in order."""

    result: Result
    files: Mapping[str, bytes]


def write_files(
    write: Callable[[pathlib.Path, Task], Result],
    folder: pathlib.Path,
    tasks: Sequence[Task],
    *,
    nodes: Nodes | None,
    num_workers: int,
    num_images: int,
    on_result: Callable[[Result], object],
    on_span: Callable[[processes.Span], object],
    note: str,
) -> None:
    """Writes the files of all tasks, on a cluster or in processes of this host.

    Args:
        write: Writes the files of a task into a folder; can be pickled.
        folder: Folder for the files.
        tasks: The tasks.
        nodes: How nodes write; None writes on this host.
        num_workers: Number of processes on this host, >= 1.
        num_images: As for `processes.run`.
        on_result: As for `processes.run`; the files are in the folder by then.
        on_span: As for `processes.run`.
        note: As for `processes.run`.

    Raises:
        OSError: If a node cannot do its tasks, or workers die again and again.
        Exception: The first exception of `write` or `on_result`.
    """
    if nodes is None:
        processes.run(
            functools.partial(write, folder),
            tasks,
            num_workers=num_workers,
            num_images=num_images,
            on_result=on_result,
            on_span=on_span,
            note=note,
        )
        return

    keep, seen = nodes.keep, None if nodes.sends else folder

    def on_sent(sent: _Sent[Result]) -> None:
        for name, content in sent.files.items():
            keep(name, content)
        on_result(sent.result)

    run(
        functools.partial(_write_afar, write, seen, nodes.problem, nodes.last),
        tasks,
        num_workers=nodes.cluster.num_workers,
        num_images=num_images,
        on_result=on_sent,
        on_span=on_span,
        note=note,
    )


def _write_afar(
    write: Callable[[pathlib.Path, Task], Result],
    folder: pathlib.Path | None,
    problem: Callable[[], str],
    last: str,
    task: Task,
) -> _Sent[Result]:
    """Does a task in a folder of all nodes, or else in a folder of the own node."""
    if found := problem():
        raise OSError(f"The node {node_name()} {found}")
    if folder is not None:
        return _Sent(write(folder, task), {})
    with tempfile.TemporaryDirectory(prefix="tfpipe-convert-") as name:
        result = write(pathlib.Path(name), task)
        paths = sorted(pathlib.Path(name).iterdir(), key=lambda p: p.suffix == last)
        return _Sent(result, {path.name: path.read_bytes() for path in paths})
