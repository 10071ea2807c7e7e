"""Faults at chosen system calls of a command, by strace.

In: a command line, and a folder whose files it uses. Out: the calls that concern the
folder, and the command run again with a fault at one of these calls: an errno, a kill,
a stop of half a second, SIGTERM, or a delay. Unlike a preloaded library, strace sees
calls that libc makes inside, and calls of threads, of C++ and of other processes that
the command starts.
"""

import contextlib
import dataclasses
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence

# Calls that open, read, write, list, change or remove files, by the errnos that they
# may give: open(2), read(2), write(2), fsync(2), rename(2), mmap(2).
_SPACE = ("ENOSPC", "EDQUOT", "EIO")
_OPENING = ("EMFILE", "ENFILE", "ENOMEM", "EIO", "ESTALE", "EACCES")
ERRNOS = {
    **dict.fromkeys(("openat", "mkdir", "unlink", "rmdir"), (*_OPENING, "ENOSPC")),
    **dict.fromkeys(("read", "pread64"), ("EIO", "ESTALE", "ENOMEM", "EINTR")),
    **dict.fromkeys(("write", "pwrite64"), (*_SPACE, "EINTR")),
    **dict.fromkeys(("fsync", "fdatasync", "ftruncate", "fallocate"), _SPACE),
    **dict.fromkeys(("rename", "renameat2", "link"), (*_SPACE, "ESTALE")),
    **dict.fromkeys(("getdents64", "newfstatat", "fstat"), ("EIO", "ESTALE", "ENOMEM")),
    **dict.fromkeys(("lseek", "flock", "copy_file_range"), ("EIO", "ENOLCK")),
    **dict.fromkeys(("mmap",), ("ENOMEM",)),
}
# Calls of a connection: connect(2), recv(2), write(2).
_LOST = ("ECONNRESET", "ETIMEDOUT", "EHOSTUNREACH")
ERRNOS_OF_SOCKETS = {
    "connect": ("ECONNREFUSED", "ENETUNREACH", "EADDRNOTAVAIL", "EMFILE", *_LOST),
    "recvfrom": ("ENOMEM", "EINTR", *_LOST),
    "writev": ("EPIPE", "ENOBUFS", "EINTR", *_LOST),
    "socket": ("EMFILE", "ENFILE", "ENOMEM", "EAFNOSUPPORT"),
}
_CALL = re.compile(r"^\d+ +(\w+)\((.*)$")
_PATH = re.compile(r'<(/[^>]*)>|"(/[^"]*)"')
_STOPPED = re.compile(r"^(\d+) +--- stopped by SIGSTOP", re.MULTILINE)
_SECONDS, _SECONDS_OF_A_STOP = 120.0, 0.5
# The faults in the words of strace; an errno comes as often as the others together.
_SIGNALS = ("signal=SIGKILL", "signal=SIGSTOP", "signal=SIGTERM", "delay_enter=200ms")


@dataclasses.dataclass(frozen=True, order=True)
class Injection:
    """A fault at a system call.

    Attributes:
        name: The name of the call.
        path: The file or folder that the call concerns, or the URL of a server.
        count: The fault comes at the count-th such call of a thread, from 1.
        action: The fault in the words of strace, such as "error=EIO".
        is_lasting: Whether the fault comes at all later calls too.
    """

    name: str
    path: str
    count: int
    action: str
    is_lasting: bool = False


def why_not() -> str | None:
    """Returns why no fault can be injected on this machine, or None if one can."""
    if not (strace := shutil.which("strace")):
        return "strace is not installed: apt-get install -y strace"
    done = subprocess.run(
        [strace, "-f", "-o", os.devnull, "true"], capture_output=True, check=False
    )
    return f"strace may trace no process: {done.stderr!r}" if done.returncode else None


def connections(words: Sequence[str], url: str) -> list[tuple[str, str]]:
    """Runs a command, which must succeed.

    Returns:
        The name of each system call of a connection to a server, with its URL.
    """
    done, log = _traced(words, f"--trace={','.join(ERRNOS_OF_SOCKETS)}", "-yy")
    assert done.returncode == 0, done.stderr
    port = url.rpartition(":")[2]
    lines = (
        line for line in log.splitlines() if f"({port})" in line or f":{port}]" in line
    )
    matches = map(_CALL.match, lines)
    calls = [(match[1], url) for match in matches if match]
    # The port is that of the next call.
    return calls + [("socket", url)] * calls.count(("connect", url))


def calls_of(words: Sequence[str], folder: pathlib.Path) -> list[tuple[str, str]]:
    """Runs a command, which must succeed.

    Returns:
        The name and the path of each system call that concerns a file in the folder.
    """
    done, log = _traced(words, f"--trace={','.join(ERRNOS)}", "-y")
    assert done.returncode == 0, done.stderr
    calls = []
    for line in log.splitlines():
        if not (match := _CALL.match(line)):
            continue  # a signal, an exit, or the end of a call that was interrupted
        name, rest = match.groups()
        paths = [named or quoted for named, quoted in _PATH.findall(rest)]
        calls += [(name, p) for p in paths if p.startswith(f"{folder}/")][:1]
    return calls


def choose(
    calls: Sequence[tuple[str, str]], count: int, *, seed: int
) -> list[Injection]:
    """Returns injections; equal for equal seeds.

    Each name comes as often as the others, and each path of a name likewise.
    """
    dice = random.Random(seed)
    names = sorted({name for name, _ in calls})
    chosen = []
    for _ in range(count):
        name = dice.choice(names)
        path = dice.choice(sorted({path for n, path in calls if n == name}))
        errnos = ERRNOS_OF_SOCKETS | ERRNOS
        action = f"error={dice.choice(errnos[name])}"
        if dice.random() < 0.5:
            action = dice.choice(_SIGNALS)
        number = dice.randint(1, calls.count((name, path)))
        is_lasting = name in ERRNOS_OF_SOCKETS and action.startswith("error=")
        is_lasting = is_lasting and dice.random() < 0.5
        chosen.append(Injection(name, path, number, action, is_lasting))
    return chosen


def run(
    words: Sequence[str], injection: Injection
) -> tuple["subprocess.CompletedProcess[str]", bool]:
    """Runs a command with a fault.

    Returns:
        How the command ended, and whether the fault came: another order of threads may
        make fewer such calls.

    Raises:
        subprocess.TimeoutExpired: If the command does not end within two minutes.
    """
    name, when = injection.name, f"{injection.count}{'+' * injection.is_lasting}"
    at = () if "://" in injection.path else (f"--trace-path={injection.path}",)
    done, log = _traced(
        words,
        *(f"--trace={name}", *at),
        f"--inject={name}:{injection.action}:when={when}",
    )
    return done, any(word in log for word in ("(INJECTED)", "(DELAYED)", "--- SIG"))


def _traced(
    words: Sequence[str], *options: str
) -> tuple["subprocess.CompletedProcess[str]", str]:
    # With the filter of the kernel, only the named calls take more time.
    start = ("strace", "-f", "--seccomp-bpf", "-qq", "-s", "0")
    with (
        tempfile.TemporaryFile("w+", errors="replace") as out,
        tempfile.TemporaryFile("w+", errors="replace") as err,
        tempfile.NamedTemporaryFile("r", errors="replace") as log,
        subprocess.Popen(
            [*start, "-o", log.name, *options, *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        ) as process,
    ):
        try:
            _wait(process, pathlib.Path(log.name))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        texts = [(file.seek(0), file.read())[1] for file in (out, err)]
        done = subprocess.CompletedProcess(words, process.wait(), *texts)
        return done, log.read()


def _wait(process: "subprocess.Popen[bytes]", log: pathlib.Path) -> None:
    """Waits for the end, and lets a stopped process go on."""
    end, num_stops = time.monotonic() + _SECONDS, 0
    while process.poll() is None:
        if time.monotonic() > end:
            raise subprocess.TimeoutExpired(process.args, _SECONDS)
        time.sleep(0.02)
        # A thread may stop again: the count of a call is that of each thread.
        stops = _STOPPED.findall(log.read_text(errors="replace"))
        if stops[num_stops:]:
            time.sleep(_SECONDS_OF_A_STOP)
        for thread in {*stops[num_stops:]}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(thread), signal.SIGCONT)
        num_stops = len(stops)
