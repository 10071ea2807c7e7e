"""benchmarks.results.environment: hosts, and what identifies the data."""

import dataclasses
import types

from benchmarks.distributed.ranks import Ranks
from benchmarks.results import environment
from benchmarks.system.machine import Host, Machine
from tfpipe.shards import index

_INDEX = index.Index(
    name="imagenet",
    label_base=1,
    classes=(("n01", "one"),),
    splits={
        "train": (
            index.Shard(name="train-0", num_records=3, num_bytes=30, digest="a"),
            index.Shard(name="train-1", num_records=2, num_bytes=20, digest="b"),
        ),
        "validation": (
            index.Shard(name="validation-0", num_records=1, num_bytes=9, digest="c"),
        ),
    },
    made_by={"version": "0.1.0", "git_revision": "12ab"},
)
DATA = types.SimpleNamespace(index=_INDEX, index_digest="12", tags="34")


def test_ranks_are_put_to_their_hosts(monkeypatch):
    here = {"name": "node", "cpu": "fast", "num_cpus": 8, "ram_bytes": 64}
    machine, same_name = Machine("boot1", "node"), Machine("boot2", "node")
    hosts = [Host(machine, 1), Host(same_name, 1), Host(machine, 1), Host(machine, 2)]
    everyone = [(host, here) for host in hosts]
    monkeypatch.setattr(Ranks, "gather", lambda self, value: everyone)

    found = environment.hosts(Ranks())

    assert [host["ranks"] for host in found] == [[0, 2], [1], [3]]
    assert found[0] == {**here, "ranks": [0, 2]}


def test_this_host():
    (host,) = environment.hosts(Ranks())

    assert host["name"] == Machine.here().name
    assert host["ranks"] == [0]
    assert min(host["num_cpus"], host["ram_bytes"]) > 0


def test_a_machine_stays_the_same_after_a_reboot(
    monkeypatch,
):
    before = environment.machine_id()
    monkeypatch.setattr(environment.tfpipe.host, "boot_id", lambda: "the next boot")
    after = environment.machine_id()
    monkeypatch.setattr(environment.tfpipe.host, "ram_bytes", lambda: 7 << 40)

    assert before == after != environment.machine_id()


def test_data_is_told_by_its_shards_and_not_by_its_converter():
    found = environment.data(DATA)

    assert found == {
        "name": "imagenet",
        "converter": {"version": "0.1.0", "git_revision": "12ab"},
        "num_records": 6,
        "num_bytes": 59,
        "digest": found["digest"],
        "index_digest": "12",
        "tags": "34",
    }
    old = environment.data(_with(made_by={}))
    assert old["converter"] == {"version": None, "git_revision": None}
    assert old["digest"] == found["digest"]
    shard = dataclasses.replace(_INDEX.splits["train"][0], digest="d")
    changed = _with(splits={"train": (shard,)})
    assert environment.data(changed)["digest"] != found["digest"]


def _with(**changes):
    changed = dataclasses.replace(_INDEX, **changes)
    return types.SimpleNamespace(**vars(DATA) | {"index": changed})
