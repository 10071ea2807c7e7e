"""Leases of two hosts with injected clocks: a live owner keeps a lease, no dead one."""

import threading

import pytest

from tfpipe.shard_cache import leases as leases_module
from tfpipe.shard_cache.leases import RAISE_SECONDS, STALE_SECONDS, Leases


class Host:
    """A host with its own clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ended = threading.Event()
        self.leases = Leases(clock=lambda: self.now, ended=self.ended)


@pytest.fixture
def hosts():
    both = Host(), Host()
    both[1].now = 1e6  # no host compares clocks
    yield both
    for host in both:
        host.ended.set()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "7.lease"


def test_a_lease_has_one_owner_until_its_release(hosts, path):
    first, second = (host.leases for host in hosts)
    lease = first.take(path)

    assert lease.is_held()
    assert second.take(path) is None
    assert first.take(path) is None
    first.release(lease)
    first.release(lease)
    assert second.take(path).is_held()


def test_a_live_owner_keeps_its_lease_for_ever(hosts, path):
    first, second = hosts
    lease = first.leases.take(path)

    for _ in range(100):
        first.leases.raise_counters()
        assert second.leases.take(path) is None
        second.now += STALE_SECONDS - 0.1
    assert lease.is_held()


def test_a_dead_owner_loses_its_lease_after_the_stated_time(hosts, path):
    first, second = hosts
    first.leases.take(path)

    assert second.leases.take(path) is None
    second.now += STALE_SECONDS - 0.1
    assert second.leases.take(path) is None
    second.now += 0.2
    assert second.leases.take(path).is_held()


def test_an_owner_that_returns_notices_and_harms_nothing(hosts, path):
    first, second = hosts
    paused = first.leases.take(path)
    paused.part.write_text("unfinished")
    assert second.leases.take(path) is None
    second.now += STALE_SECONDS
    lease = second.leases.take(path)

    first.leases.raise_counters()
    assert not paused.is_held()
    assert not paused.part.exists()
    first.leases.release(paused)

    assert lease.is_held()
    second.leases.release(lease)
    assert list(path.parent.iterdir()) == []


def test_only_one_of_two_hosts_takes_a_stale_lease_over(hosts, path):
    """The second host decides, and acts after the first host took the lease over."""
    first, second = hosts
    Leases(ended=threading.Event()).take(path)
    content = path.read_bytes()
    for host in hosts:
        assert host.leases.take(path) is None
        host.now += STALE_SECONDS
    lease = first.leases.take(path)

    assert not leases_module._remove(path, lambda found: found == content)
    assert second.leases.take(path) is None
    assert lease.is_held()


def test_a_lease_of_a_killed_creator_is_empty_and_ends_too(hosts, path):
    path.touch()
    host = hosts[0]

    assert host.leases.take(path) is None
    host.now += STALE_SECONDS
    assert host.leases.take(path).is_held()


@pytest.mark.parametrize("harm", ["folder", "file"])
def test_a_removed_lease_is_no_error(hosts, tmp_path, harm):
    path = tmp_path / "shard" / "7.lease"
    path.parent.mkdir()
    lease = hosts[0].leases.take(path)
    path.unlink()
    if harm == "folder":
        path.parent.rmdir()

    hosts[0].leases.raise_counters()
    assert not lease.is_held()
    hosts[0].leases.release(lease)


def test_the_end_of_a_process_ends_its_leases(hosts, tmp_path):
    paths = [tmp_path / f"{i}.lease" for i in range(3)]
    for path in paths:
        hosts[0].leases.take(path)
    hosts[0].leases.close()

    assert all(hosts[1].leases.take(path) for path in paths)
    assert RAISE_SECONDS * 3 < STALE_SECONDS
