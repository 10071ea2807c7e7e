"""benchmarks.results.gates: what a run must reach."""

import dataclasses
import json
import math

import pytest

from benchmarks.results import gates, tree
from benchmarks.results.gates import Gate
from benchmarks.results.train_result import TrainResult

_SLOW = {"slowest": {"over_others": 2}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("stall<=3%", Gate("stall", "<=", 0.03)),
        ("stall<=0.03", Gate("stall", "<=", 0.03)),
        ("au>=0.90", Gate("au", ">=", 0.9)),
        (" au > 90 % ", Gate("au", ">", 0.9)),
        ("real/synthetic>=0.97", Gate("real/synthetic", ">=", 0.97)),
        ("real/synthetic>=102%", Gate("real/synthetic", ">=", 1.02)),
        ("examples_per_second>=1000", Gate("examples_per_second", ">=", 1000.0)),
        ("p99_step_ms<=50", Gate("p99_step_ms", "<=", 50.0)),
        ("first_batch_seconds<.5", Gate("first_batch_seconds", "<", 0.5)),
    ],
)
def test_parse(text, expected):
    assert Gate.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must be a metric, one of <= >= < >, and a number"),
        ("stall", "such as stall<=3%"),
        ("stall==3%", "The metrics are stall, "),
        ("stall<=nan", "got 'stall<=nan'"),
        ("stall<=-1%", "got 'stall<=-1%'"),
        ("stalls<=3%", "must be one of stall, .*got 'stalls'"),
        ("stall==0.1", "got 'stall==0.1'"),
        ("stall<=1.1", r"limit must be 0 to 1, or 0% to 100%; got 1\.1"),
        ("stall<=3", r"limit must be 0 to 1, or 0% to 100%; got 3\."),
        ("p99_step_ms<=50%", "p99_step_ms is no ratio"),
    ],
)
def test_what_is_no_gate_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        Gate.parse(text)


def _typed(result):
    return tree.decode(TrainResult, result)[0]


def _checked(gates_, result):
    found = [dataclasses.asdict(gate.check(_typed(result))) for gate in gates_]
    return json.loads(json.dumps(found))


UNSTEADY = {"reached": False, "text": "Not in a steady state: too short."}


@pytest.mark.parametrize(
    ("text", "result", "passed", "words"),
    [
        ("stall<=3%", {"stall_fraction": 0.03}, True, "stall<=3% is met: got 3%."),
        ("stall<3%", {"stall_fraction": 0.03}, False, "is not met: got 3%."),
        ("stall<=3%", {"stall_fraction": 0.041}, False, "is not met: got 4.1%."),
        ("au>=0.9", {"accelerator_utilization": 0.95}, True, "got 95%."),
        ("p99_step_ms<=50", {"step_seconds_p99": 0.05}, True, "got 50."),
        ("p99_step_ms<=50", {"step_seconds_p99": 0.06}, False, "got 60."),
        ("slowest/median<=1.1", {"critical_path": _SLOW}, False, "2"),
        ("slowest/others<=2", {"critical_path": _SLOW}, True, "2"),
        ("au_mlperf_storage>=90%", {}, False, "has no such figure"),
        (
            "au_mlperf_storage>=90%",
            {"accelerator_utilization_mlperf_storage": None},
            False,
            "the result has no such figure",
        ),
        ("slowest/median<=1.1", {"critical_path": None}, False, "has no such figure"),
        (
            "drift<=110%",
            {"steady_state": {"reached": True, "drift": 1.2}},
            False,
            "1.2",
        ),
        (
            "stall<=3%",
            {"stall_fraction": 0.0, "steady_state": UNSTEADY},
            False,
            "stall<=3% is not met: got 0%, not in a steady state: too short.",
        ),
        ("accuracy>=50%", {"accuracy": 0.5, "steady_state": UNSTEADY}, True, "is met"),
        (
            "first_batch_seconds<=9",
            {"time_to_first_batch_seconds": 1.0, "steady_state": UNSTEADY},
            True,
            "is met",
        ),
        ("stall<=100%", {"stall_fraction": math.nan}, False, "was not finite"),
        ("stall<=100%", {"stall_fraction": True}, False, "the result has no"),
    ],
)
def test_check(text, result, passed, words):
    verdict = Gate.parse(text).check(_typed(result))

    assert verdict.passed is passed
    assert words in verdict.text


def test_verdicts_are_for_json_and_in_order():
    wanted = [Gate.parse("stall<=3%"), Gate.parse("examples_per_second>=1000")]

    found = _checked(wanted, {"stall_fraction": 0.0, "examples_per_second": 1.5})

    assert found == [
        {
            "gate": "stall<=3%",
            "passed": True,
            "text": "stall<=3% is met: got 0%.",
            "measured": 0.0,
            "limit": 0.03,
            "margin": 0.03,
        },
        {
            "gate": "examples_per_second>=1000",
            "passed": False,
            "text": "examples_per_second>=1000 is not met: got 1.5.",
            "measured": 1.5,
            "limit": 1000.0,
            "margin": -998.5,
        },
    ]


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_no_number_has_no_margin(value):
    (found,) = _checked([Gate.parse("p99_step_ms<=50")], {"step_seconds_p99": value})

    assert (found["measured"], found["margin"]) == (None, None)
    assert not found["passed"]


def test_timed_metrics_of_a_run_without_steady_state_do_not_pass():
    steady = {"reached": False, "text": "Timing began too early."}
    result = {"stall_fraction": 0.0, "accuracy": 0.9, "steady_state": steady}

    stall, accuracy = (
        gate.check(_typed(result))
        for gate in (Gate.parse("stall<=3%"), Gate.parse("accuracy>=0.8"))
    )

    assert not stall.passed
    assert stall.text == "stall<=3% is not met: got 0%, timing began too early."
    assert accuracy.passed


@pytest.mark.parametrize("metric", gates.METRICS)
def test_every_metric_has_a_gate_that_says_what_it_is(metric):
    gate = Gate(metric, "<=", 0.5)

    assert Gate.parse(str(gate)) == gate
    assert "is not met: the result has no such figure" in gate.check(_typed({})).text


def test_a_quiet_host_can_be_required():
    load = {"others_cpu_fraction": 0.06, "stolen_fraction": 0.01}
    result = {"host_load": load | {"run_queue_wait_fraction": None}}
    texts = ["others_cpu<=5%", "stolen<=1%", "run_queue<=5%"]

    found = _checked([Gate.parse(text) for text in texts], result)

    assert [one["passed"] for one in found] == [False, True, False]
    assert "the result has no such figure" in found[2]["text"]


def test_a_run_whose_loss_was_not_finite_meets_no_gate():
    result = {"stall_fraction": 0.0, "not_finite_loss": {"text": "It was NaN."}}

    (found,) = _checked([Gate.parse("stall<=3%")], result)

    assert found == {
        "gate": "stall<=3%",
        "passed": False,
        "text": "stall<=3% is not met: It was NaN.",
        "measured": 0.0,
        "limit": 0.03,
        "margin": 0.03,
    }


@pytest.mark.parametrize(
    ("text", "needs", "words"),
    [
        ("real/synthetic>=0.97", "bars", "it needs --bars"),
        ("spread<=5%", "repeats", "it needs --repeat=2 or more"),
        ("accuracy>=50%", "learning", "--mode=train or eval"),
        ("consumed_mb_per_second>=1", "records", "it needs --data_dir"),
        ("network<=90%", "link", "it needs --link_gbps"),
        ("gpu>=90%", "gpu", "it needs GPUs on every host"),
    ],
)
def test_gate_that_a_run_cannot_measure_is_refused(text, needs, words):
    gate = Gate.parse(text)

    with pytest.raises(ValueError, match=f"cannot be measured in this run: .*{words}"):
        gates.refuse_unmeasured([gate], set(gates.NEEDS) - {needs})
    gates.refuse_unmeasured([gate], {needs})


def test_gates_of_the_critical_path_of_the_network_and_of_gpus():
    result = {
        "critical_path": {"shares": {"late": 0.02, "communication": 0.1}},
        "network_utilization": 0.5,
        "gpu_utilization": 0.95,
    }
    texts = ["late<=1%", "communication<=20%", "network<=90%", "gpu>=90%"]

    found = _checked([Gate.parse(text) for text in texts], result)

    assert [verdict["passed"] for verdict in found] == [False, True, True, True]
