"""The process that stands for a fork of `warm_python`: it begins and ends with it.

  python -I -S warm_client.py ADDRESS -m MODULE [ARGUMENT...]
  python -I -S warm_client.py ADDRESS -c CODE [ARGUMENT...]
  python -I -S warm_client.py ADDRESS FILE [ARGUMENT...]

It imports nothing but a few small modules, so it starts within some milliseconds. Its
name for the kernel is NAME and the process id of the fork.
"""

import json
import os
import resource
import signal
import socket
import sys

NAME = "warm "
MAX_BYTES = 1 << 18
# All but what no process can catch, and what a process or its children cause.
_OWN = {
    *(signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ),
    *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT),
}
SIGNALS = {n for n in signal.valid_signals() - _OWN if n < signal.SIGRTMIN}


def main() -> None:
    address, *arguments = sys.argv[1:]
    if "LD_PRELOAD" in os.environ:  # it acts only on a new Python
        os.execv(sys.executable, [sys.executable, *arguments])
    ignored = [int(n) for n in SIGNALS if signal.getsignal(n) is signal.SIG_IGN]
    server = ask(address, arguments, ignored)
    child = server.recv(MAX_BYTES)

    def forward(number: int, _: object) -> None:
        server.sendall(str(number).encode())

    for number in SIGNALS.difference(ignored):
        signal.signal(number, forward)
    with open("/proc/self/comm", "w") as file:
        file.write(NAME + child.decode())
    _end(int(server.recv(MAX_BYTES)))


def ask(address: str, arguments: list[str], ignored: list[int]) -> socket.socket:
    """Asks for a program with the files 0, 1 and 2 of this process.

    Returns:
        The connection, from which the process id of the fork can be read.
    """
    umask = os.umask(0)
    os.umask(umask)
    program = {
        "arguments": arguments,
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "cores": [*os.sched_getaffinity(0)],
        "umask": umask,
        "ignored": ignored,
    }
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.connect(address)
    text = json.dumps(program).encode()
    assert len(text) < MAX_BYTES, "the program and its environment are too long"
    server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MAX_BYTES)
    socket.send_fds(server, [text], [0, 1, 2])
    return server


def _end(code: int) -> None:
    """Ends this process as the fork ended."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
