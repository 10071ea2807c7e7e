"""benchmarks.system.telemetry: the load of the hosts by others, on made-up figures."""

import pytest

from benchmarks.system import telemetry


def _rank(
    machine="one",
    tree=30.0,
    running=20.0,
    queued=5.0,
    processes=90.0,
    stolen=4.0,
):
    return {
        "machine_id": machine,
        "host_capacity_seconds": 200.0,
        "host_processes_seconds": processes,
        "host_stolen_seconds": stolen,
        "process_tree_cpu_seconds": tree,
        "process_running_seconds": running,
        "process_run_queue_seconds": queued,
    }


def test_load_of_the_worst_host():
    # Ranks of two hosts in turn; on the second host its two ranks did all the work.
    ranks = [_rank(), _rank("two", 44.0, stolen=0.0), _rank(), _rank("two", 46.0)]

    found = telemetry.host_load(ranks)

    assert found["others_cpu_fraction_per_host"] == [0.15, 0.0]
    assert found["others_cpu_fraction"] == 0.15
    assert found["stolen_fraction_per_host"] == [0.02, 0.0]
    assert found["stolen_fraction"] == 0.02
    assert found["run_queue_wait_fraction"] == 0.2
    assert found["wanted_cpu_fraction"] == 0.25
    assert found["text"] == (
        "The host was busy: Other processes took 15.0% of the cores, the hypervisor "
        "took 2.0%, and the run's threads waited for a core in 20.0% of their time. "
        "Repeat the run on a quiet host."
    )


def test_two_hosts_of_one_machine_share_its_cores():
    ranks = [_rank(tree=44.0), _rank(tree=46.0)]

    found = telemetry.host_load(ranks)

    assert found["others_cpu_fraction_per_host"] == [0.0]


@pytest.mark.parametrize(
    ("missing", "unknown"),
    [
        ("process_tree_cpu_seconds", {"others_cpu_fraction"}),
        (
            "process_run_queue_seconds",
            {"run_queue_wait_fraction", "wanted_cpu_fraction"},
        ),
        (
            "host_capacity_seconds",
            {"others_cpu_fraction", "stolen_fraction", "wanted_cpu_fraction"},
        ),
    ],
)
def test_a_counter_that_one_rank_lacks_is_unknown(missing, unknown):
    ranks = [_rank(), _rank("two")]
    del ranks[1][missing]

    found = telemetry.host_load(ranks)

    shares = ("others_cpu_fraction", "stolen_fraction", "run_queue_wait_fraction")
    shares += ("wanted_cpu_fraction",)
    assert {name for name in shares if found[name] is None} == unknown
    for name in unknown:
        assert found[f"{name}_per_host"][0] is not None
        assert found[f"{name}_per_host"][1] is None


def test_a_host_without_times_is_unknown():
    ranks = [_rank() | {"host_capacity_seconds": 0.0}]

    assert telemetry.host_load(ranks)["others_cpu_fraction"] is None


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ((0.05, 0.01, 0.05), "The host was quiet: "),
        ((0.06, 0.0, 0.0), "The host was busy: "),
        ((0.0, 0.02, 0.0), "The host was busy: "),
        ((0.06, None, None), "The host was busy: "),
        ((0.0, 0.0, 0.5), "The host was quiet, but the run had too few cores: "),
        ((0.0, None, 0.0), "Whether the host was quiet is unknown: "),
    ],
)
def test_the_sentence_says_who_took_the_cores(shares, words):
    assert telemetry.load_text(*shares).startswith(words)
