"""Several hosts on one machine: namespaces of Linux with names and an sshd each.

In: a number of hosts and the rate of their links. Out: a `Cluster`, whose hosts run
commands and reach each other by ssh, as `horovodrun -H` needs. All hosts are connected
to one switch, which is a namespace too: nothing changes in the network of the machine,
and nothing is left when the processes end.

  make cluster HOSTS=4 LINK=10gbit          (root, Linux)

Two more hosts carry an S3 server and an HDFS, behind links of their own, and the hosts
mount a shared folder on JuiceFS, where these programs are installed.

The hosts share the kernel, the clock, the cores, the memory, the page cache and the
files of the machine. They cannot show kernel NFS, RDMA, delays or packet loss.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import pytest

from tests.support.processes import horovodrun
from tests.support.servers import hdfs_server, s3_server, shared_mount
from tests.support.servers.shared_server import shared

START_SECONDS = 20.0

_LIMITS = __doc__.split("\n\n")[-1].strip()
_NETWORK = "10.93.0"
_PROGRAMS = ("unshare", "nsenter", "ip", "tc", "ssh", "ssh-keygen", "sshd")
# Host keys are new for each cluster, so nobody should remember them.
_SSH_CONFIG = """Host *
  IdentityFile "{folder}/key"
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
  ServerAliveInterval 10
"""
_KEEPER = (sys.executable, "-IS", pathlib.Path(__file__).with_name("host_keeper.py"))
_SEARCHED = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def why_not() -> str | None:
    """Returns why hosts cannot be made on this machine, or None if they can."""
    if sys.platform != "linux":
        return f"Hosts need the namespaces of Linux, this is {sys.platform}."
    if os.geteuid() != 0:
        return "Hosts need root."
    if missing := [n for n in _PROGRAMS if shutil.which(n, path=_SEARCHED) is None]:
        return f"Programs are missing: {', '.join(missing)}."
    done = subprocess.run(
        ["unshare", "--net", "--uts", "--mount", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    return (
        f"Namespaces are forbidden: {done.stderr.strip()}" if done.returncode else None
    )


@dataclasses.dataclass(frozen=True)
class Host:
    """A host of a cluster.

    Attributes:
        name: Its name, such as host1.
        address: Its IPv4 address on the link eth0.
        process_id: The process that keeps its namespaces, see `host_keeper`.
    """

    name: str
    address: str
    process_id: int

    def command(self, *words: object) -> list[str]:
        """Returns the command line that runs a command on the host."""
        spaces = ("--net", "--uts", "--mount", "--wd=" + os.getcwd())
        return ["nsenter", f"--target={self.process_id}", *spaces, *map(str, words)]

    def has(self, process_id: int) -> bool:
        """Returns whether a process runs on the host."""
        own, other = (
            os.readlink(f"/proc/{i}/ns/net") for i in (self.process_id, process_id)
        )
        return own == other

    def run(self, *words: object, check: bool = True) -> str:
        """Runs a command on the host and returns its stdout."""
        done = subprocess.run(
            self.command(*words), capture_output=True, text=True, check=False
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"{shlex.join(map(str, words))}: {done.stderr.strip()}")
        return done.stdout


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Hosts that reach each other by their names.

    Attributes:
        hosts: The hosts; commands are launched on the first one.
        switch: The namespace that connects the hosts.
    """

    hosts: tuple[Host, ...]
    switch: Host

    def limit(self, host: Host, rate: str) -> None:
        """Limits a host's link in each direction, in words of tc such as 100mbit."""
        bucket = ("root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms")
        for end, device in ((host, "eth0"), (self.switch, f"to-{host.name}")):
            end.run("tc", "qdisc", "replace", "dev", device, *bucket)

    def cut(self, host: Host, *, cut: bool = True) -> None:
        """Cuts the link of a host, or joins it again."""
        state = "down" if cut else "up"
        self.switch.run("ip", "link", "set", f"to-{host.name}", state)

    def sent_bytes(self, host: Host) -> int:
        """Returns the bytes that a host has sent over its link so far."""
        text = self.switch.run("ip", "-s", "-j", "link", "show", f"to-{host.name}")
        count: int = json.loads(text)[0]["stats64"]["rx"]["bytes"]
        return count

    @contextlib.contextmanager
    def s3(self, host: Host, folder: pathlib.Path) -> Iterator[dict[str, str]]:
        """Runs an S3 server on a host; yields the variables of its users."""
        module = s3_server.__name__
        server = shared(module, folder, host.address, prefix=host.command())
        with server as document:
            yield s3_server.environment(document["address"])

    @contextlib.contextmanager
    def hdfs(self, host: Host, folder: pathlib.Path) -> Iterator[str]:
        """Runs an HDFS on a host; yields HOST:PORT of its name node."""
        module = hdfs_server.__name__
        server = shared(module, folder, host.address, prefix=host.command())
        with server as name_node:
            yield name_node

    def horovodrun(
        self,
        ranks_per_host: int,
        *arguments: object,
        num_hosts: int | None = None,
        options: Sequence[str] = (),
        last_rank: Mapping[str, str] = MappingProxyType({}),
    ) -> list[str]:
        """Returns the command line that starts Python on ranks of the first hosts.

        horovodrun needs two hosts for `--network-interfaces`, so a single rank starts
        without it. `last_rank` holds environment variables of the last rank alone.
        """
        if ranks_per_host == num_hosts == 1:
            return self.hosts[0].command(sys.executable, *arguments)
        used = self.hosts[:num_hosts]
        slots = ",".join(f"{host.name}:{ranks_per_host}" for host in used)
        launch = horovodrun.command(
            ranks_per_host * len(used),
            *arguments,
            options=("-H", slots, "--network-interfaces", "eth0", *options),
            last_rank=last_rank,
        )
        return self.hosts[0].command(*launch)


@contextlib.contextmanager
def cluster(
    folder: pathlib.Path, *, num_hosts: int, link: str | None = None
) -> Iterator[Cluster]:
    """Makes hosts named host1, host2, ... and ends all of them at the end.

    Args:
        folder: An empty folder for keys and logs.
        num_hosts: Number of hosts, 1 to 200.
        link: The rate of each link in words of tc, such as 10gbit; None sets no limit.

    Raises:
        RuntimeError: If hosts cannot be made here.
    """
    if (reason := why_not()) is not None:
        raise RuntimeError(reason)
    names = [f"host{i + 1}" for i in range(num_hosts)]
    addresses = [f"{_NETWORK}.{i + 1}" for i in range(num_hosts)]
    known = "".join(f"{a} {n}\n" for a, n in zip(addresses, names, strict=True))
    # A copy of the folder: whoever replaces the file /etc/hosts of the machine, as
    # `sed -i` does, takes away what is mounted on the file in other namespaces.
    etc = shutil.copytree("/etc", folder / "etc", symlinks=True)
    (etc / "hosts").write_text(f"127.0.0.1 localhost\n{known}")
    (etc / "ssh" / "ssh_config").write_text(_SSH_CONFIG.format(folder=folder))
    for key in ("key", "host_key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key],
            check=True,
        )
    with contextlib.ExitStack() as stack:
        switch = Host("switch", "", stack.enter_context(_spaces(folder, "switch")))
        switch.run("ip", "link", "add", "name", "bridge", "type", "bridge")
        switch.run("ip", "link", "set", "bridge", "up")
        hosts = []
        for name, address in zip(names, addresses, strict=True):
            process_id = stack.enter_context(_spaces(folder, name))
            hosts.append(Host(name, address, process_id))
            _connect(switch, hosts[-1])
        made = Cluster(tuple(hosts), switch)
        for host in hosts:
            if link is not None:
                made.limit(host, link)
            stack.enter_context(_sshd(folder, host))
        for host in hosts:
            _wait_for_ssh(host)
        yield made


@contextlib.contextmanager
def _spaces(folder: pathlib.Path, name: str) -> Iterator[int]:
    """Keeps the namespaces of a host while the context lasts; yields their process."""
    setup = " && ".join(
        [
            *(f"hostname {name}", "ip link set lo up"),
            shlex.join(["mount", "--bind", str(folder / "etc"), "/etc"]),
            *("mount -t tmpfs tmpfs /run", "mkdir /run/sshd"),
            f"exec {shlex.join(map(str, _KEEPER))}",
        ]
    )
    with subprocess.Popen(
        ["unshare", "--net", "--uts", "--mount", "sh", "-c", setup],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C ends this process, and that the keeper
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"{name} was not made: {process.stderr.read()}")
        yield process.pid


@contextlib.contextmanager
def cluster_or_skip(
    folder: pathlib.Path, *, num_hosts: int, link: str | None = None
) -> Iterator[Cluster]:
    """Makes hosts for a fixture, see `cluster`; skips its tests where none can be."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    folder.mkdir(exist_ok=True)
    with cluster(folder, num_hosts=num_hosts, link=link) as made:
        yield made


def _connect(switch: Host, host: Host) -> None:
    port = f"to-{host.name}"
    switch.run(
        *("ip", "link", "add", port, "type", "veth"),
        *("peer", "name", "eth0", "netns", host.process_id),
    )
    switch.run("ip", "link", "set", port, "master", "bridge", "up")
    host.run("ip", "addr", "add", f"{host.address}/24", "dev", "eth0")
    host.run("ip", "link", "set", "eth0", "up")


@contextlib.contextmanager
def _sshd(folder: pathlib.Path, host: Host) -> Iterator[None]:
    settings = {
        "HostKey": folder / "host_key",
        "AuthorizedKeysFile": folder / "key.pub",
        "PidFile": "none",
        "StrictModes": "no",
        "UsePAM": "no",
        "PermitRootLogin": "yes",
        "PasswordAuthentication": "no",
        "MaxStartups": 100,
    }
    options = [f"-o{name}={value}" for name, value in settings.items()]
    program = shutil.which("sshd", path=_SEARCHED)
    with open(folder / f"{host.name}.log", "ab") as log:
        process = subprocess.Popen(
            host.command(program, "-D", "-e", "-f", "/dev/null", *options),
            stdout=log,
            stderr=log,
            preexec_fn=s3_server.die_with_parent,
        )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _wait_for_ssh(host: Host) -> None:
    probe = f"exec 3<>/dev/tcp/{host.address}/22"
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            host.run("bash", "-c", probe)
            return
        except RuntimeError as error:
            if time.monotonic() > end:
                raise RuntimeError(f"sshd did not start on {host.name}") from error
            time.sleep(0.05)


def _servers(
    made: Cluster, folder: pathlib.Path, stack: contextlib.ExitStack
) -> Iterator[str]:
    """Starts what can be had here for all hosts but the last two; says how to use it.

    The S3 server is on the last host but one, the HDFS on the last host.
    """
    hosts, (of_s3, of_hdfs) = made.hosts[:-2], made.hosts[-2:]
    if shared_mount.can_mount():
        mount = folder / "shared"
        mount.mkdir()
        meta = stack.enter_context(shared_mount.volume(folder))
        for host in hosts:
            client = shared_mount.client(meta, mount, prefix=host.command())
            stack.enter_context(client)
        yield f"A folder on JuiceFS, mounted on each host: {mount}"
    else:
        yield "No shared folder: /dev/fuse is missing."
    variables = stack.enter_context(made.s3(of_s3, folder / "s3"))
    words = shlex.join(f"{name}={value}" for name, value in variables.items())
    yield f"S3 on {of_s3.name}, for s3://{s3_server.BUCKET}/...: export {words}"
    if hdfs_server.is_installed():
        name_node = stack.enter_context(made.hdfs(of_hdfs, folder / "hdfs"))
        yield f"HDFS on {of_hdfs.name}: hdfs://{name_node}/"
    else:
        yield "No HDFS: Java, HADOOP_JARS or hdfs-native is missing, see BUILD.md."


def main() -> None:
    """Keeps hosts until Ctrl-C, SIGTERM or SIGHUP, and says how to use them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, default=2, help="number of hosts")
    parser.add_argument("--link", help="rate of each link, such as 10gbit")
    options = parser.parse_args()
    if (reason := why_not()) is not None:
        parser.error(reason)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        made = stack.enter_context(
            cluster(folder, num_hosts=options.hosts + 2, link=options.link)
        )
        print("A shell on each host; between them, ssh takes their names:")
        hosts = made.hosts[:-2]
        for host in hosts:
            print(f"  {shlex.join(host.command('bash'))}    # {host.name}", flush=True)
        for sentence in _servers(made, folder, stack):
            print(sentence, flush=True)
        print("A training of one rank a host (--data_dir is any folder of records):")
        arguments = ("-m", "benchmarks.train", "--data_dir=demo/records")
        words = made.horovodrun(1, *arguments, "--model=tiny", num_hosts=len(hosts))
        print(
            f"  {shlex.join(words)}\n{_LIMITS}\nThe hosts end with Ctrl-C.", flush=True
        )
        signal.pause()


if __name__ == "__main__":
    main()
