"""A Python that has imported TensorFlow and more, and forks for each program.

In: a command line that begins with `WarmPython.command`, as if with `sys.executable`;
then -m MODULE, -c CODE or a file, and arguments.
Out: a process as of a new Python: exit code, signals, stdin, stdout, stderr, folder,
environment, cores. Importing TensorFlow takes seconds of CPU time, so all processes of
a session share one import. Tests of the import itself start a Python of their own.

`warm_client` is the process that a test starts. It hands everything that is its own to
the server, which forks; then it passes on signals, and ends as the fork ended.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import pathlib
import runpy
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Iterator, Mapping
from typing import Any

import psutil

from tests.support.processes import warm_client

ROOT = pathlib.Path(__file__).parents[3]

# With this variable a program clears all modules when it ends, as a new Python does.
WHOLE_END = "WARM_PYTHON_WHOLE_END"

# What the programs import of other projects; not DuckDB, which tells at the end of a
# process what is left of it.
LIBRARIES = (
    *("horovod.tensorflow", "keras", "tensorflow", "numpy.testing"),
    *("PIL.Image", "absl.app", "google_crc32c", "jinja2", "obstore.store"),
    *("psutil", "tqdm", "xxhash"),
)

# A program that `run` waits for and that takes longer is stuck.
MAX_SECONDS = 300


class WarmPython:
    """The command line of the shared Python.

    Attributes:
        command: What stands in place of `sys.executable`.
    """

    def __init__(self, address: str) -> None:
        self.command = (sys.executable, "-I", "-S", warm_client.__file__, address)

    def run(self, *arguments: object) -> "subprocess.CompletedProcess[str]":
        """Runs a program from the top folder of the checkout and waits for its end."""
        return subprocess.run(
            [*self.command, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            timeout=MAX_SECONDS,
        )

    def program(self, folder: pathlib.Path) -> str:
        """Writes a program that may take the place of `sys.executable`."""
        path = folder / "python"
        path.write_text(f'#!/bin/sh\nexec {shlex.join(self.command)} "$@"\n')
        path.chmod(0o755)
        return str(path)


def kill(process: "subprocess.Popen[Any]") -> None:
    """Kills the fork behind a process that a test started, and waits for its end.

    `Popen.kill` ends the process itself, and the fork only some time later. Workers of
    the fork end by themselves, after a shard that they may still complete.
    """
    comm = pathlib.Path(f"/proc/{process.pid}/comm")
    while process.poll() is None:
        name = comm.read_text()
        if name.startswith(warm_client.NAME):
            fork = psutil.Process(int(name.removeprefix(warm_client.NAME)))
            workers = fork.children(recursive=True)
            fork.kill()
            process.wait()
            psutil.wait_procs(workers, timeout=10)
        time.sleep(0.005)


@contextlib.contextmanager
def serve(_: pathlib.Path) -> Iterator[dict[str, str]]:
    """Runs the server, which imports while the first programs already wait for it."""
    with tempfile.TemporaryDirectory() as folder:  # its name is short, as it must be
        address = f"{folder}/socket"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(address)
            listener.listen(1000)
            server = subprocess.Popen(
                [sys.executable, "-m", __name__, str(listener.fileno())],
                pass_fds=[listener.fileno()],
                stdin=subprocess.PIPE,
                cwd=ROOT,
                env={
                    **os.environ,
                    "TF_CPP_MIN_LOG_LEVEL": "3",
                    "PYTHONPATH": str(ROOT),
                },
            )
        assert server.stdin is not None
        try:
            yield {"address": address}
        finally:
            server.stdin.close()
            server.wait(60)


def main() -> None:
    """Forks for each client, until the pipe on stdin ends."""
    kept: dict[str, types.ModuleType] = {}
    # Registered before any library registers its own, so called after all of those.
    atexit.register(_keep, kept)
    # Only imported: threads that TensorFlow starts later would be lost in a fork.
    for name in LIBRARIES:
        with contextlib.suppress(ModuleNotFoundError):  # no Horovod on TensorFlow 2.21
            importlib.import_module(name)
    own = {*sys.stdlib_module_names, "__main__", "tests"}
    kept |= {n: m for n, m in sys.modules.items() if n.partition(".")[0] not in own}
    gc.freeze()  # a collection in a fork would copy every page
    listener = socket.socket(fileno=int(sys.argv[1]))
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin, selectors.EVENT_READ)
    selector.register(listener, selectors.EVENT_READ, (_accept, listener))
    while True:
        (key, _), *_ = selector.select()  # one at a time: a step may end the others
        if key.data is None:
            _kill_all(selector)
            return
        step, *arguments = key.data
        if program := step(selector, *arguments):
            _leave(selector)
            _run(*program)
            return


def _keep(modules: dict[str, types.ModuleType]) -> None:
    """Takes modules out of those that Python clears when a program ends.

    To clear TensorFlow's takes longer than most programs, as a fork copies the pages.
    The modules of the program itself, and all that it made, are cleared as ever. A test
    about the end of a process sets WHOLE_END.
    """
    for name, module in modules.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(modules))  # for ever


_Program = tuple[dict[str, Any], list[int]]


def _accept(
    selector: selectors.BaseSelector, listener: socket.socket
) -> _Program | None:
    """Forks for the next client; returns its program in the fork, None otherwise."""
    client, _ = listener.accept()
    text, files, _, _ = socket.recv_fds(client, warm_client.MAX_BYTES, 3)
    if len(files) < 3:  # the client was killed before it said what it wants
        client.close()
        return None
    child = os.fork()
    if child == 0:
        client.close()
        return json.loads(text), files
    for file in files:
        os.close(file)
    # A number of a process may belong to another one after its end; this handle cannot.
    handle = os.pidfd_open(child)
    with contextlib.suppress(ConnectionError):  # killed by now: `_signal` is told so
        client.sendall(str(child).encode())
    selector.register(handle, selectors.EVENT_READ, (_report, client, handle, child))
    selector.register(client, selectors.EVENT_READ, (_signal, client, handle))
    return None


def _signal(
    selector: selectors.BaseSelector, client: socket.socket, handle: int
) -> None:
    """Gives the fork a signal of its client, and SIGKILL when the client is gone."""
    try:
        text = client.recv(warm_client.MAX_BYTES)
    except ConnectionError:
        text = b""
    if not text:
        selector.unregister(client)
    signal.pidfd_send_signal(handle, int(text) if text else signal.SIGKILL)


def _report(
    selector: selectors.BaseSelector, client: socket.socket, handle: int, child: int
) -> None:
    """Tells the client how the fork ended."""
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(KeyError):  # unregistered already: the client is gone
        selector.unregister(client)
    with contextlib.suppress(ConnectionError):
        client.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    client.close()
    selector.unregister(handle)
    os.close(handle)


def _kill_all(selector: selectors.BaseSelector) -> None:
    """Ends the forks that are left, whose tests have ended before them."""
    for key in selector.get_map().values():
        if isinstance(key.fileobj, int):
            signal.pidfd_send_signal(key.fileobj, signal.SIGKILL)


def _leave(selector: selectors.BaseSelector) -> None:
    """Closes in a fork what belongs to the server."""
    for key in list(selector.get_map().values()):
        if isinstance(key.fileobj, int):
            os.close(key.fileobj)
        elif isinstance(key.fileobj, socket.socket):
            key.fileobj.close()
    selector.close()


def _run(program: Mapping[str, Any], files: list[int]) -> None:
    """Runs a program in this process, whose exit code is then that of the program."""
    os.setsid()
    os.chdir(program["folder"])
    os.sched_setaffinity(0, program["cores"])
    os.umask(program["umask"])
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    for number in warm_client.SIGNALS:
        is_ignored = number in program["ignored"]
        signal.signal(number, signal.SIG_IGN if is_ignored else signal.SIG_DFL)
    if signal.SIGINT not in program["ignored"]:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(program["environment"])
    if WHOLE_END in os.environ:
        atexit.unregister(_keep)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    # That of the server was a file, in which it would look for its place.
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # noqa: SIM115
    if os.environ.get("PYTHONUNBUFFERED"):
        sys.stdout.reconfigure(write_through=True)
    own = [str(ROOT)] * 2  # of -m and of PYTHONPATH
    assert sys.path[:2] == own, sys.path
    places = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:2] = places
    _run_main(*program["arguments"])


def _run_main(kind: str, *arguments: str) -> None:
    """Does what Python does with its arguments."""
    if kind == "-m":
        name, *rest = arguments
        sys.path.insert(0, os.getcwd())
        sys.argv = [name, *rest]
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    elif kind == "-c":
        code, *rest = arguments
        sys.path.insert(0, "")
        sys.argv = [kind, *rest]
        sys.modules["__main__"] = types.ModuleType("__main__")
        exec(code, vars(sys.modules["__main__"]))
    else:
        sys.path.insert(0, str(pathlib.Path(kind).parent.resolve()))
        sys.argv = [kind, *arguments]
        runpy.run_path(kind, run_name="__main__")


if __name__ == "__main__":
    main()
