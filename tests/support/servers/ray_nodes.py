"""A Ray cluster on this host: a head and more nodes, each of which can be killed."""

import contextlib
import os
import pathlib
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping

import psutil

HOST = "127.0.0.1"
_START_SECONDS = 300
_MAX_STARTS = 3
# A busy host is slow, and no process of Ray may take that for a loss: a node without
# an answer is stopped, and a process without a head prints its stack and ends.
_LIMITS = {
    "RAY_AUTH_MODE": "token",
    "RAY_NUM_REDIS_GET_RETRIES": "300",  # tries to find the head, one a second
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_gcs_rpc_server_connect_timeout_s": "300",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "300",
    "RAY_gcs_server_request_timeout_seconds": "300",
    "RAY_memory_monitor_refresh_ms": "0",  # the memory of other tests ends no worker
    "RAY_py_gcs_connect_timeout_s": "300",
    "RAY_raylet_start_wait_time_s": "300",
    "RAY_worker_register_timeout_seconds": "300",
}
# The head asks each node several times a second. A node that is gone refuses at once,
# and is given up after three refusals; a node that is slow has a minute.
_CONFIG = (
    '{"health_check_initial_delay_ms": 0, "health_check_period_ms": 300, '
    '"health_check_timeout_ms": 60000, "health_check_failure_threshold": 3}'
)


class Node:
    """The processes of a node; `kill` ends them as a power loss would."""

    def __init__(
        self, command: list[str], log: pathlib.Path, environment: Mapping[str, str]
    ) -> None:
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                command,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def processes(self) -> list[psutil.Process]:
        """Returns the processes of the node."""
        with contextlib.suppress(psutil.NoSuchProcess):
            node = psutil.Process(self._process.pid)
            return [*node.children(recursive=True), node]
        return []

    def kill(self) -> None:
        """Kills every process of the node with SIGKILL."""
        if not self.is_running():
            return
        # A stopped parent starts no more processes.
        os.kill(self._process.pid, signal.SIGSTOP)
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()

    def is_running(self) -> bool:
        """Returns whether the node has not ended."""
        return self._process.poll() is None


class Cluster:
    """A head, which also does tasks, and more nodes.

    Attributes:
        address: Address of the head.
        environment: Variables of every process that uses the cluster.
        nodes: The nodes, the head first.
    """

    def __init__(self, folder: pathlib.Path, variables: Mapping[str, str]) -> None:
        self._folder = folder
        own = _LIMITS | {"RAY_AUTH_TOKEN": secrets.token_hex(32)}
        self.environment = {**os.environ, **own, **variables}
        self.address = ""
        self.nodes: list[Node] = []

    def start(self, num_nodes: int) -> None:
        """Starts all nodes, and waits until each does tasks.

        Ray ends a node that needs more than 30 s to start: a busy host gets more tries.
        """
        for left in reversed(range(_MAX_STARTS)):
            try:
                self._start_all(num_nodes)
                return
            except AssertionError:
                self.close()
                if not left:
                    raise

    def _start_all(self, num_nodes: int) -> None:
        (port,) = _free_ports(1)  # another process may take the port first
        self.address = f"{HOST}:{port}"
        flags = ("--head", f"--port={port}", f"--system-config={_CONFIG}")
        self._start(*flags, f"--temp-dir={self._folder}", "--include-dashboard=false")
        self._wait(self._head_answers)
        for _ in range(num_nodes - 1):
            self._start(f"--address={self.address}")
        pattern = "session_latest/runtime_env_agent_port_*"
        self._wait(lambda: len([*self._folder.glob(pattern)]) == num_nodes)

    def _head_answers(self) -> bool:
        host, port = self.address.split(":")
        with contextlib.suppress(OSError):
            socket.create_connection((host, int(port)), 1).close()
            return True
        return False

    def _start(self, *flags: str) -> None:
        command = [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block"),
            *(f"--node-ip-address={HOST}", "--num-cpus=1", "--num-gpus=0"),
            *("--include-log-monitor=false", "--disable-usage-stats"),
            *(f"--object-store-memory={80 << 20}", *flags),
        ]
        log = self._folder / f"node-{len(self.nodes)}.log"
        self.nodes.append(Node(command, log, self.environment))

    def _wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if condition():
                return
            if not all(node.is_running() for node in self.nodes):
                break
            time.sleep(0.1)
        logs = [log.read_text() for log in sorted(self._folder.glob("node-*.log"))]
        raise AssertionError("\n".join(logs))

    def close(self) -> None:
        """Kills all nodes."""
        while self.nodes:
            self.nodes.pop().kill()


@contextlib.contextmanager
def cluster(num_nodes: int, **variables: str) -> Iterator[Cluster]:
    """Yields a cluster whose nodes have one CPU each; its files are removed at the end.

    Args:
        num_nodes: Number of nodes, with the head.
        variables: Environment variables of the nodes and of those who use them.
    """
    # The paths of sockets must be short: pytest's folders are too deep.
    with tempfile.TemporaryDirectory(
        prefix="ray-", dir="/tmp", ignore_cleanup_errors=True
    ) as folder:
        made = Cluster(pathlib.Path(folder), variables)
        try:
            made.start(num_nodes)
            yield made
        finally:
            made.close()


def _free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in sockets]
