"""tfpipe.host: what the kernel says of this machine."""

import os

import pytest

from tfpipe import host
from tfpipe.host import Limits


@pytest.mark.parametrize(
    ("limits", "cores", "quota"),
    [
        (Limits(), lambda own: own, None),
        (Limits(cores=1.0), lambda _: 1, 1),
        (Limits(cores=0.5), lambda _: 1, 1),  # never none
        (Limits(cores=1.9), lambda _: 1, 1),
        (Limits(cores=999.0), lambda own: own, 999),
    ],
)
def test_cores_are_those_of_the_affinity_and_the_quota(
    monkeypatch, limits, cores, quota
):
    monkeypatch.setattr(host, "limits", lambda: limits)

    assert host.num_cores() == cores(len(os.sched_getaffinity(0)))
    assert host.cpu_quota() == quota


def test_memory_is_the_least_of_the_host_and_the_groups(monkeypatch):
    whole, left = host.ram_bytes(), host.ram_left()
    small = Limits(memory_bytes=1 << 20, memory_left=1 << 10)
    monkeypatch.setattr(host, "limits", lambda: small)

    assert (host.ram_bytes(), host.ram_left()) == (1 << 20, 1 << 10)
    assert whole > 1 << 20
    assert left > 1 << 10


def test_the_processor_and_the_memory_are_known():
    assert host.cpu_model()
    assert host.ram_bytes() > 1 << 28
