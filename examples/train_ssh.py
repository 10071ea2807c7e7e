"""Trains on several hosts by plain ssh, without horovodrun.

python examples/train_ssh.py host1:8,host2:8 eth0 --data_dir=s3://bucket/imagenet \
    --model=resnet50 --checkpoint_dir=/shared/run

The command runs on a host that reaches all others by ssh, with the same Python and
folders everywhere. Ranks find each other by a server of Horovod in this process. Other
launchers can do the same: the server, and seven variables for every rank. eth0 is the
network interface of all hosts. The exit code is the code of rank 0, and SIGTERM or
Ctrl-C ends the ranks with a checkpoint.
"""

import os
import shlex
import signal
import socket
import subprocess
import sys
import uuid

from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
from horovod.runner.gloo_run import create_slot_env_vars
from horovod.runner.http.http_server import RendezvousServer

# What the ranks get of the environment of this process.
PASSED = ("PATH", "PYTHONPATH", "AWS_", "TF_", "TFPIPE_", "HOROVOD_")
SSH = ("ssh", "-o", "BatchMode=yes")


def command_of(slot, variables: dict[str, str], pid_file: str, flags: list[str]) -> str:
    """Returns the shell command of a rank, whose process id goes to a file."""
    variables = variables | create_slot_env_vars(slot)
    words = ["env", *(f"{name}={value}" for name, value in variables.items())]
    words += [sys.executable, "-m", "benchmarks.train", *flags]
    return (
        f"cd {shlex.quote(os.getcwd())}; echo $$ > {pid_file}; exec {shlex.join(words)}"
    )


def main(hosts: str, interface: str, *flags: str) -> int:
    hosts = parse_hosts(hosts)
    slots = get_host_assignments(hosts, sum(host.slots for host in hosts))
    server = RendezvousServer()
    variables = {n: v for n, v in os.environ.items() if n.startswith(PASSED)} | {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": socket.gethostname(),
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(server.start()),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_IFACE": interface,
        "NCCL_SOCKET_IFNAME": interface,
    }
    server.init(slots)
    pid_file = f"/tmp/tfpipe-{uuid.uuid4().hex}"
    ranks = [
        subprocess.Popen(
            [
                *(*SSH, slot.hostname),
                command_of(slot, variables, f"{pid_file}-{slot.rank}", list(flags)),
            ],
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches this process alone
        )
        for slot in slots
    ]

    def stop(*_: object) -> None:  # all ranks end after the same step
        first = f"kill -TERM $(cat {pid_file}-0)"
        subprocess.run([*SSH, slots[0].hostname, first], check=False)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    codes = [rank.wait() for rank in ranks]
    for slot in slots:
        remove = f"rm -f {pid_file}-{slot.rank}"
        subprocess.run([*SSH, slot.hostname, remove], check=False)
    server.stop()
    return codes[0] or max(codes)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
