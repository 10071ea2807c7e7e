"""benchmarks.system.machine: who shares memory, and who shares a network."""

import os

import pytest

from benchmarks.system import machine
from benchmarks.system.machine import Host, Machine


@pytest.mark.parametrize(
    ("first", "second", "is_same_machine", "is_same_host"),
    [
        (("boot1", "node", 1), ("boot1", "node", 1), True, True),
        (("boot1", "node", 1), ("boot1", "other", 1), True, True),
        (("boot1", "node", 1), ("boot1", "node", 2), True, False),
        (("boot1", "node", 1), ("boot2", "node", 1), False, False),
    ],
)
def test_names_decide_nothing(first, second, is_same_machine, is_same_host):
    one, two = (Host(Machine(b, name), net) for b, name, net in (first, second))

    assert (one.machine == two.machine) is is_same_machine
    assert (one == two) is is_same_host
    assert (len({one, two}) == 1) is is_same_host
    assert str(one.machine) == "node"


def test_this_process(monkeypatch):
    here = Host.here()

    assert here == Host.here()
    assert here.machine == Machine.here()
    assert here.network == os.stat("/proc/self/ns/net").st_ino

    monkeypatch.setattr(machine.tfpipe.host, "boot_id", lambda: "")
    monkeypatch.setattr(machine, "_NETWORK_NAMESPACE", "/proc/none")
    nameless = Host.here()

    assert nameless.machine.boot_id == nameless.machine.name == str(nameless.machine)
    assert nameless.network == 0
