"""Starts a tf.data service: processes that prepare images for trainers elsewhere.

  python -m benchmarks.service local --workers=2
  python -m benchmarks.service dispatcher --address=HOST:5050 --work_dir=DIR
  python -m benchmarks.service worker --dispatcher=HOST:5050 --address=OWN:5051

`local` runs a dispatcher and its workers on this host, and replaces a dead worker. On
several hosts, run `dispatcher` on a single host, and `worker` on the hosts that prepare
images. The trainers then have the stage tfpipe.Service("HOST:5050"): the first line on
stdout. Workers read the shards under the same paths as the trainers, or by the URL of
--data_dir.

Start a killed worker again with the same --address, as `local` does: the trainers then
ask for the records of the worker. Until then the trainers get the records of the other
workers, and wait at the end of the epoch. The dispatcher names a worker on stderr that
has not answered for --silent_seconds. With --work_dir a killed dispatcher, started
again with the same --address, goes on. Trainers end with an error if a worker or the
dispatcher is not back after Service.lost_after_s seconds.

The servers of TensorFlow check nobody's identity, run any code from the network, and
listen on every network address of the host, whatever --address says: keep the ports
behind a firewall. The servers run until SIGINT or SIGTERM. On stdout: the stage, and at
the end one JSON object as the last line. Exit code: 0 ended by a signal, 1 an error.
"""

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from benchmarks.reporting import output
from benchmarks.system import child_process
from tfpipe import cli

# A worker asks for tasks each second; TensorFlow's default is 30 seconds.
_HEARTBEAT_MS = 1_000

_RESTART_SECONDS = 1.0  # between two starts of workers that die


@dataclasses.dataclass(frozen=True)
class Address:
    """The host and the port of a server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Returns the address of HOST:PORT."""
    host, _, port = text.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or int(port) >= 1 << 16:
        raise ValueError(f"must be HOST:PORT with a port of 0 to 65535, got {text!r}.")
    return Address(host, int(port))


@cli.options
class ServerOptions:
    """Options of every server."""

    address: Address = cli.flag(
        Address("127.0.0.1", 0),
        "HOST:PORT under which others reach the server; port 0 takes a free one. "
        "With `local` the address is the dispatcher's.",
        parse=parse_address,
        shown="HOST:PORT",
    )


@cli.options
class DispatcherOptions(ServerOptions):
    """Options of a dispatcher."""

    work_dir: str | None = cli.flag(
        None, "Folder in which a dispatcher keeps its state, to go on after a restart."
    )
    silent_seconds: float = cli.flag(
        30.0,
        "Seconds after which a worker that does not answer is named: an epoch waits "
        "for the worker.",
        least=1.0,
    )


@cli.options
class ReadingOptions(cli.StoreOptions):
    """Options of a process that reads the shards."""

    data_dir: str | None = cli.flag(
        None,
        "URL of the data set, if the trainers read one by URL: the worker reads the "
        "URL itself, with tensorflow-io. Default: workers read folders.",
        shown="URL",
        url=True,
    )


@cli.options
class LocalOptions(DispatcherOptions, ReadingOptions):
    """Options of a dispatcher and its workers on this host."""

    workers: int = cli.flag(2, "Worker processes.", least=1)


@cli.options
class WorkerOptions(ServerOptions, ReadingOptions):
    """Options of a worker."""

    dispatcher: Address = cli.required(
        "HOST:PORT of the dispatcher.", parse=parse_address, shown="HOST:PORT"
    )


def serve(options: ServerOptions) -> None:
    """Runs a server until a signal, and prints its figures."""
    role, work = _ROLES[type(options)]
    _say(
        "TensorFlow's servers listen on every network address of this host, and "
        "whoever reaches the port can run code here: keep it behind a firewall."
    )
    started, stop = time.monotonic(), threading.Event()
    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, lambda *_: stop.set())
    figures = work(options, stop)
    result = {
        "command": "benchmarks.service",
        "schema_version": 1,
        "role": role,
        "seconds": time.monotonic() - started,
        "cpu_seconds": sum(os.times()[:4]),  # of the process and of ended children
        **figures,
    }
    cost = f"{result['seconds']:.0f} s, {result['cpu_seconds']:.1f} CPU-seconds"
    output.show(result, f"The service ({role}) has ended: {cost}.")


def _dispatch(options: DispatcherOptions, stop: threading.Event) -> dict[str, Any]:
    """Runs a dispatcher, and the workers of `local`."""
    service = _prepared_service()
    config = service.DispatcherConfig(
        port=options.address.port,
        work_dir=options.work_dir,
        fault_tolerant_mode=options.work_dir is not None,
    )
    server = _started(service.DispatchServer, config)
    shown = f"{options.address.host}:{server.target.rpartition(':')[2]}"
    print(f'tfpipe.Service("{shown}")', flush=True)
    watch = threading.Thread(
        target=_name_silent_workers, args=(options, shown, stop), daemon=True
    )
    watch.start()
    figures: dict[str, Any] = {"address": shown}
    if isinstance(options, LocalOptions):
        figures |= _keep_workers(options, shown, stop)
    stop.wait()
    watch.join()
    return figures


@dataclasses.dataclass
class SilentWorkers:
    """Finds the workers without an answer for `limit` seconds."""

    limit: float
    is_answering: Callable[[str], bool]
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._answered: dict[str, float] = {}
        self._silent: set[str] = set()

    def look(self, addresses: Collection[str]) -> list[str]:
        """Asks the workers; returns sentences about silent workers and workers back."""
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


def _name_silent_workers(
    options: DispatcherOptions, shown: str, stop: threading.Event
) -> None:
    from tfpipe.service import workers

    silent = SilentWorkers(options.silent_seconds, workers.service_worker_answers)
    # The server listens on all addresses of this host; `shown` may be for other hosts.
    here = f"127.0.0.1:{shown.rpartition(':')[2]}"
    said = ""
    while not stop.wait(options.silent_seconds / 4):
        try:
            sentences = silent.look(workers.service_workers(here))
        except ConnectionError as error:
            sentences = [str(error)] if str(error) != said else []
            said = str(error)
        for sentence in sentences:
            _say(sentence)


def _work(options: WorkerOptions, stop: threading.Event) -> dict[str, Any]:
    import tfpipe

    if refused := tfpipe.host.keep_freed_memory():
        _say(f"The C library refuses {', '.join(refused)}: batches cost more CPU time.")
    if options.data_dir is not None:
        from tfpipe.service import workers

        workers.read_by_url(options.data_dir)
    service = _prepared_service()
    dispatcher = str(options.dispatcher)
    config = service.WorkerConfig(
        dispatcher_address=dispatcher,
        worker_address=f"{options.address.host}:%port%",
        port=options.address.port,
        heartbeat_interval_ms=_HEARTBEAT_MS,
    )
    server = _started(service.WorkerServer, config)
    _say(f"A worker serves {dispatcher}.")
    stop.wait()
    del server
    return {"dispatcher": dispatcher}


def _keep_workers(
    options: LocalOptions, dispatcher: str, stop: threading.Event
) -> dict[str, Any]:
    """Starts workers, and replaces dead workers until `stop`; then ends the workers."""
    reads = [] if options.data_dir is None else [f"--data_dir={options.data_dir}"]

    def start(port: int) -> "subprocess.Popen[bytes]":
        own = [f"--dispatcher={dispatcher}", f"--address=127.0.0.1:{port}", *reads]
        return subprocess.Popen(
            [sys.executable, "-m", "benchmarks.service", "worker", *own],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # for the result of this command
            preexec_fn=child_process.end_with_parent(),
        )

    # A new worker has the port of the dead worker: the dispatcher knows a worker by its
    # address, and waits for the address.
    workers = {port: start(port) for port in _free_ports(options.workers)}
    num_restarts = 0
    while not stop.wait(_RESTART_SECONDS):
        for port, worker in workers.items():
            if worker.poll() is not None:
                _say(
                    f"Worker {worker.pid} ended with exit code {worker.returncode}. "
                    "Another one takes its place."
                )
                workers[port] = start(port)
                num_restarts += 1
    for worker in workers.values():
        worker.terminate()
    for worker in workers.values():
        worker.wait()
    return {"num_workers": len(workers), "num_restarts": num_restarts}


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(socket.socket()) for _ in range(count)]
        for server in servers:
            server.bind(("127.0.0.1", 0))
        return [int(server.getsockname()[1]) for server in servers]


def _prepared_service() -> Any:
    """Returns tf.data's service, after the ops of pipelines are loaded."""
    import tensorflow as tf

    import tfpipe

    tf.config.set_visible_devices([], "GPU")  # the trainers use them
    # Loads or compiles the native op: a worker must know the ops of the trainers.
    tfpipe.CenterCrop(image_size=32)
    return tf.data.experimental.service


def _started(server: Callable[[Any], Any], config: Any) -> Any:
    import tensorflow as tf

    try:
        return server(config)
    except tf.errors.OpError as error:
        raise RuntimeError(
            f"The server must be able to start, got: {error.message}"
        ) from error


def _say(text: str) -> None:
    print(f"service: {text}", file=sys.stderr, flush=True)


_ROLES: Mapping[type, tuple[str, Callable[[Any, threading.Event], dict[str, Any]]]] = {
    LocalOptions: ("local", _dispatch),
    DispatcherOptions: ("dispatcher", _dispatch),
    WorkerOptions: ("worker", _work),
}
COMMANDS = (
    *(cli.Command(options, serve, form=role) for options, (role, _) in _ROLES.items()),
)

if __name__ == "__main__":
    cli.run(*COMMANDS)
