"""A tf.data service of real processes, of which tests kill some."""

import concurrent.futures
import contextlib
import os
import pathlib
import socket
import subprocess
from collections.abc import Iterator, Sequence

from tests.support.processes import warm_python
from tests.support.processes.warm_python import WarmPython

ROOT = pathlib.Path(__file__).parents[3]


class ServiceProcesses:
    """The processes of one service: a dispatcher and workers.

    Args:
        python: The interpreter.
        folder: Folder for the state of the dispatcher.
        num_workers: Number of workers.
        of_workers: More flags of the workers.

    Attributes:
        address: Address of the dispatcher.
    """

    def __init__(
        self,
        python: WarmPython,
        folder: pathlib.Path,
        num_workers: int,
        of_workers: Sequence[str] = (),
    ) -> None:
        self._python = python.command
        self._folder, self._of_workers = folder, of_workers
        self.address = "127.0.0.1:0"
        self._dispatcher = self._start_dispatcher()
        ports = [free_port() for _ in range(num_workers)]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            started = pool.map(self._start_worker, ports)
            self._workers = dict(zip(ports, started, strict=True))

    def kill_worker(self) -> int:
        """Kills a worker with SIGKILL; returns its port."""
        port, process = self._workers.popitem()
        _kill(process)
        return port

    def start_worker(self, port: int) -> None:
        """Starts a worker on a port, and waits until it serves."""
        self._workers[port] = self._start_worker(port)

    def wait_for_line(self, part: str) -> None:
        """Waits until the dispatcher writes a line that has a text in it."""
        assert self._dispatcher.stdout is not None
        assert any(part in line for line in self._dispatcher.stdout), part

    def restart_dispatcher(self) -> None:
        """Kills the dispatcher with SIGKILL and starts it again, on the same port."""
        _kill(self._dispatcher)
        self._dispatcher = self._start_dispatcher()

    def close(self) -> None:
        """Ends all processes."""
        for process in (*self._workers.values(), self._dispatcher):
            _kill(process)

    def _start_dispatcher(self) -> "subprocess.Popen[str]":
        arguments = [f"--address={self.address}", f"--work_dir={self._folder}"]
        arguments.append("--silent_seconds=2")
        process, line = start(self._python, "dispatcher", *arguments)
        self.address = line.split('"')[1]
        return process

    def _start_worker(self, port: int) -> "subprocess.Popen[str]":
        places = f"--dispatcher={self.address}", f"--address=127.0.0.1:{port}"
        process, _ = start(self._python, "worker", *places, *self._of_workers)
        return process


def free_port() -> int:
    """Returns a port of this host that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def start(
    python: Sequence[str], role: str, *arguments: str
) -> "tuple[subprocess.Popen[str], str]":
    """Starts a server; returns its process and the line that says that it serves."""
    process = subprocess.Popen(
        [*python, "-m", "benchmarks.service", role, *arguments],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if line.startswith("tfpipe.Service(") or "A worker serves" in line:
            return process, line
    raise AssertionError(f"{role} did not start: {''.join(seen)}")


@contextlib.contextmanager
def running(
    python: WarmPython,
    folder: pathlib.Path,
    num_workers: int,
    of_workers: Sequence[str] = (),
) -> Iterator[ServiceProcesses]:
    """Runs a service, whose dispatcher keeps its state in a folder."""
    service = ServiceProcesses(python, folder, num_workers, of_workers)
    try:
        yield service
    finally:
        service.close()


def _kill(process: "subprocess.Popen[str]") -> None:
    warm_python.kill(process)
    assert process.stdout is not None
    process.stdout.close()
