"""Slurm on the hosts of a cluster: a controller on the first host, a daemon on each.

In: a cluster and an empty folder. Out: the variables with which commands of Slurm find
the controller. The programs are those of Debian's slurm-wlm.
"""

import contextlib
import pathlib
import shutil
import subprocess
import time
from collections.abc import Iterator

from tests.support.servers.cluster import Cluster, Host
from tests.support.servers.s3_server import die_with_parent

START_SECONDS = 30.0

# No authentication, no control groups: a test machine has neither munge nor cgroups.
# A job that is put back into the queue waits as long as a credential lasts.
_SETTINGS = """ClusterName=box
SlurmctldHost={first}
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
SlurmUser=root
SlurmdUser=root
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str | None:
    """Returns why Slurm cannot run here, or None if it can."""
    programs = ("slurmctld", "slurmd", "sbatch")
    missing = [name for name in programs if shutil.which(name) is None]
    return f"Programs are missing: {', '.join(missing)}." if missing else None


@contextlib.contextmanager
def slurm(cluster: Cluster, folder: pathlib.Path) -> Iterator[dict[str, str]]:
    """Runs Slurm on all hosts of a cluster while the context lasts."""
    settings = folder / "slurm.conf"
    (folder / "state").mkdir()
    nodes = "".join(
        f"NodeName={host.name} NodeAddr={host.address} CPUs=2\n"
        for host in cluster.hosts
    )
    first = cluster.hosts[0]
    settings.write_text(_SETTINGS.format(first=first.name, folder=folder) + nodes)
    variables = {"SLURM_CONF": str(settings)}
    with contextlib.ExitStack() as stack:
        command = ("slurmctld", "-D", "-f", settings)
        stack.enter_context(_daemon(first, command, folder / "slurmctld.log"))
        for host in cluster.hosts:
            command = ("slurmd", "-D", "-N", host.name, "-f", settings)
            stack.enter_context(_daemon(host, command, folder / f"{host.name}.log"))
        _wait(first, variables, len(cluster.hosts))
        yield variables


@contextlib.contextmanager
def _daemon(
    host: Host, command: tuple[object, ...], log: pathlib.Path
) -> Iterator[None]:
    with log.open("wb") as file:
        process = subprocess.Popen(
            host.command(*command),
            stdout=file,
            stderr=file,
            preexec_fn=die_with_parent,
        )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _wait(host: Host, variables: dict[str, str], num_hosts: int) -> None:
    """Waits until all hosts are idle."""
    words = [f"{name}={value}" for name, value in variables.items()]
    idle = ("env", *words, "sinfo", "--noheader", "--states=idle", "--format=%D")
    end = time.monotonic() + START_SECONDS
    while host.run(*idle, check=False).strip() != str(num_hosts):
        if time.monotonic() > end:
            raise RuntimeError("Slurm did not start.")
        time.sleep(0.2)
