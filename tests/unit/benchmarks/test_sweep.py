"""python -m benchmarks.sweep: what it plans, keeps, resumes and computes."""

import dataclasses
import json
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import IO, Any

import pytest

import tfpipe
from benchmarks import sweep
from benchmarks.planning import sweep_run
from benchmarks.planning.plan import (
    GATE,
    PRESETS,
    Run,
    Sweep,
    read_file,
    with_preset,
)
from benchmarks.reporting import output
from benchmarks.results import tree
from benchmarks.results.collection import Result
from benchmarks.sweep import estimate_seconds
from tests.support.processes import commands, stand_in_train

SYNTHETIC = ("--synthetic",)

# Runs of these models end badly; their names must be those of models.
BAD, MUTE, SLOW = "vgg16", "googlenet", "resnet152"


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Runs no process: a stand-in writes what benchmarks.train would print.

    The fixture returns the runs that were started since it was called last.
    """
    started: list[str] = []

    def run(
        command: Sequence[str], stdout: IO[bytes], stderr: IO[bytes], timeout: float
    ) -> int | None:
        words = [text.lstrip("-").partition("=") for text in command]
        given = {name: value for name, _, value in words}
        num_ranks = int(command[2]) if command[1] == "-np" else 1
        model = given["model"]
        started.append(f"{model} {num_ranks} {given.get('batch_size')}")
        if model == SLOW:
            return None
        if model == BAD:
            stderr.write(f"{stand_in_train.ERROR}\n".encode())
            return 1
        require = given.get("require", "")
        if model != MUTE:
            stdout.write(stand_in_train.printed(num_ranks, require).encode())
        code = stand_in_train.exit_code(num_ranks, require)
        if num_ranks > 1 and code:  # horovodrun ends with 1, and names the code
            stderr.write(
                f"Process name: [0, localhost]\nExit code:    {code}\n".encode()
            )
            return 1
        return code

    monkeypatch.setattr(sweep_run, "_run", run)
    monkeypatch.setattr(sweep_run, "horovodrun", lambda: "horovodrun")

    def read() -> list[str]:
        since = list(started)
        started.clear()
        return since

    return read


def test_every_combination_is_run_once_and_repeats_come_last() -> None:
    found = Sweep(
        models=("tiny", "vgg16"),
        ranks=(1, 2),
        batch_sizes=(8, 16),
        data_dirs=("x", "y"),
        repeats=3,
    ).runs()

    assert len(found) == len(set(found)) == 2 * 2 * 2 * 2 * 3
    assert [run.repeat for run in found] == sorted(run.repeat for run in found)
    assert len({run.name for run in found}) == len(found)


def test_weak_and_strong_scaling_share_the_runs_that_are_the_same() -> None:
    plan = Sweep(
        ranks=(1, 2, 4),
        batch_sizes=(8, 16),
        scaling=("weak", "strong"),
        arguments=SYNTHETIC,
    )

    batches = [(run.num_ranks, run.batch_size) for run in plan.runs()]

    assert sorted(batches) == [
        *((1, 8), (1, 16)),  # both
        *((2, 4), (2, 8), (2, 16)),  # strong of 8, weak of 8 and strong of 16, weak
        *((4, 2), (4, 4), (4, 8), (4, 16)),
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"data_dir": "a/x"}, {"data_dir": "b/x"}),
        ({"arguments": ("--num_steps=1",)}, {"arguments": ("--num_steps=2",)}),
        ({"arguments": ("--a", "--b")}, {"arguments": ("--a --b",)}),
        ({"horovodrun_arguments": ("-H", "a")}, {"horovodrun_arguments": ("-H", "b")}),
        ({"batch_size": None}, {"batch_size": 1}),
        ({"repeat": 1}, {"repeat": 2}),
        ({"mode": "train"}, {"mode": "infer"}),
        ({"cache": None}, {"cache": "cold"}),
        ({"accelerator": "none"}, {"accelerator": "h100"}),
        ({"num_hosts": 1}, {"num_hosts": 2}),
        ({"hosts": ("a:1",)}, {"hosts": ("b:1",)}),
    ],
)
def test_runs_that_differ_have_different_files(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    base = {"model": "tiny", "num_ranks": 1, "batch_size": 4}
    base |= {"data_dir": None, "repeat": 1}

    assert Run(**{**base, **first}).name != Run(**{**base, **second}).name


def test_a_result_of_an_older_sweep_keeps_its_name_and_is_read(
    tmp_path: pathlib.Path,
) -> None:
    fields: dict[str, Any] = {"model": "resnet50", "num_ranks": 2, "batch_size": 64}
    fields |= {"data_dir": "/data/imagenet", "repeat": 1}
    fields |= {"arguments": ["--num_steps=100"]}
    fields |= {"horovodrun_arguments": ["-H", "a:1,b:1"]}
    kept = stand_in_train.result(2) | {"sweep": {"run": fields, "seconds": 3.0}}
    path = tmp_path / "resnet50-x2-b64-imagenet-f290fa30-r1.json"
    path.write_text(json.dumps(kept))

    run = tree.read(Run, fields)

    assert f"{run.name}.json" == path.name
    found = sweep_run.read_result(tmp_path, run)
    assert found is not None
    assert found.document == kept
    assert not sweep_run.why_stale(found, "any digest", {})  # it holds none


def test_a_run_of_a_newer_sweep_is_read_if_all_known_settings_are_equal(
    tmp_path: pathlib.Path,
) -> None:
    run = Run(model="tiny", num_ranks=1, batch_size=4, repeat=1)
    path = tmp_path / f"{run.name}.json"

    def store(**changes: object) -> None:
        about = {"run": dataclasses.asdict(run) | changes, "seconds": 3.0}
        path.write_text(json.dumps(stand_in_train.result(1) | {"sweep": about}))

    store(setting_of_tomorrow=None)
    assert sweep_run.read_result(tmp_path, run) is not None
    store(setting_of_tomorrow=None, batch_size=8)
    with pytest.raises(ValueError, match=f"must be the result of {run.name}"):
        sweep_run.read_result(tmp_path, run)


def test_axes_are_combined_and_become_flags() -> None:
    plan = Sweep(
        models=("tiny",),
        modes=("train", "infer"),
        caches=("cold", "warm"),
        accelerators=("none", "h100"),
        placements=("1x4", "2x2"),
        hosts=("a", "b"),
        arguments=SYNTHETIC,
    )

    commands = {" ".join(run.command("HVD")[1:]) for run in plan.runs()}

    train = f"{sys.executable} -m benchmarks.train --model=tiny"
    assert len(plan.series()) == 2 * 2 * 2
    assert commands == {
        f"-np 4 -H {hosts} {train} --mode={mode} --cache={cache}{emulate} --synthetic"
        for hosts in ("a:4", "a:2,b:2")
        for mode in ("train", "infer")
        for cache in ("cold", "warm")
        for emulate in ("", " --emulate=h100")
    }


@pytest.mark.parametrize(
    ("num_ranks", "expected"),
    [
        (1, [sys.executable, "-m", "benchmarks.train"]),
        (4, ["HVD", "-np", "4", "-H", "a:4", sys.executable, "-m", "benchmarks.train"]),
    ],
)
def test_command(num_ranks: int, expected: list[str]) -> None:
    run = Run(
        model="tiny",
        num_ranks=num_ranks,
        batch_size=4,
        data_dir="d",
        repeat=1,
        arguments=("--num_steps=2",),
        horovodrun_arguments=("-H", "a:4"),
    )

    assert run.command("HVD") == [
        *expected,
        *("--model=tiny", "--batch_size=4", "--data_dir=d", "--num_steps=2"),
    ]


@pytest.mark.parametrize(
    "words", [("--network-interfaces", "e0"), ("--network-interface=e0",)]
)
@pytest.mark.parametrize("hosts", [("a:4",), ("a:2", "b:2")])
def test_an_interface_is_for_several_hosts(
    hosts: tuple[str, ...], words: tuple[str, ...]
) -> None:
    """horovodrun refuses an interface beside the loopback for ranks of one host."""
    run = Run(
        model="tiny",
        num_ranks=4,
        batch_size=4,
        data_dir="d",
        repeat=1,
        hosts=hosts,
        horovodrun_arguments=("-p", "1", *words),
    )

    expected = ["-p", "1", *(words if len(hosts) > 1 else ()), sys.executable]
    command = run.command("HVD")
    assert command[command.index("-p") :][: len(expected)] == expected


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "One of --data_dirs and, after --, --synthetic must be given"),
        ({"models": (), "arguments": SYNTHETIC}, "--models must name at least one"),
        ({"scaling": ("both",), "arguments": SYNTHETIC}, "must be one of weak, str"),
        ({"scaling": ("strong",), "arguments": SYNTHETIC}, "must have --batch_sizes"),
        (
            {
                "scaling": ("strong",),
                "ranks": (1, 3),
                "batch_sizes": (6, 8),
                "arguments": SYNTHETIC,
            },
            "divisible by each number of ranks; 8 is not by 3",
        ),
        (
            {"arguments": ("--synthetic", "--model=vgg16")},
            "--model cannot be given after --: --models sets it",
        ),
        *(
            (
                {"arguments": (*SYNTHETIC, f"--{flag}=x"), **swept},
                f"--{flag} cannot be given after --: --{next(iter(swept))} sets it",
            )
            for flag, swept in {
                "mode": {"modes": ("infer",)},
                "cache": {"caches": ("cold",)},
                "emulate": {"accelerators": ("h100",)},
                "step_time_ms": {"accelerators": ("none",)},
                "require": {"find_ranks": ("au>=0.9",), "max_ranks": 2},
            }.items()
        ),
        (
            {"ranks": (1,), "placements": ("1x2",), "arguments": SYNTHETIC},
            "A sweep with --placements does not use --ranks",
        ),
        ({"placements": ("2x2",), "arguments": SYNTHETIC}, "must have 2 --hosts"),
        (
            {
                "hosts": ("a:1",),
                "horovodrun_arguments": ("-H", "b:1"),
                "arguments": SYNTHETIC,
            },
            "--hosts and -H in --horovodrun_arguments exclude each other",
        ),
        (
            {"max_ranks": 2, "arguments": SYNTHETIC},
            "--max_ranks needs --find_ranks",
        ),
        ({"find_ranks": ("au>=1",), "arguments": SYNTHETIC}, "must have --max_ranks"),
        (
            {
                "find_ranks": ("au>=1",),
                "max_ranks": 2,
                "scaling": ("weak", "strong"),
                "batch_sizes": (4,),
                "arguments": SYNTHETIC,
            },
            "--find_ranks must have --scaling=weak",
        ),
        (
            {
                "find_ranks": ("au>=1",),
                "max_ranks": 2,
                "repeats": 2,
                "arguments": SYNTHETIC,
            },
            "A sweep with --find_ranks does not use --repeats",
        ),
        (
            {"data_dirs": ("d",), "arguments": SYNTHETIC},
            "--synthetic cannot be given after --: --data_dirs sets it",
        ),
    ],
)
def test_settings_that_cannot_be(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sweep(**values)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "s.json",
            '{"rank": [1]}',
            "must be one of arguments, .*got 'rank'. Did you mean ran",
        ),
        ("s.json", '{"ranks": 1}', "ranks must be a list, got 1"),
        ("s.json", '{"ranks": ["1"]}', "ranks must be a whole number"),
        ("s.json", '{"models": [1]}', "models must be one of .*, got 1"),
        ("s.json", '{"repeats": "3"}', "repeats must be a whole number"),
        ("s.json", '{"arguments": "-a"}', "FLAGS must be a list, got '-a'"),
        ("s.json", "[1]", "must hold an object"),
        ("s.json", "{", "cannot be read"),
        ("s.toml", "= 1", "cannot be read"),
    ],
)
def test_file_that_cannot_be(
    tmp_path: pathlib.Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text)

    with pytest.raises(ValueError, match=message):
        read_file(str(tmp_path / name))


def _parsed(*words: str, **values: object) -> Sweep:
    """Returns the sweep of a command line."""
    (command,) = sweep.COMMANDS
    options = command.parse([*commands.flags_of(sweep_dir="x", **values), *words])
    assert isinstance(options, sweep.SweepOptions)
    return options.sweep


def test_file_is_read_and_flags_count_more(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "sweep.json"
    path.write_text(
        '{"models": ["tiny"], "ranks": [1, 2], "arguments": ["--synthetic"]}'
    )

    found = _parsed(sweep_file=path, ranks=4, repeats=2)

    expected = Sweep(models=("tiny",), ranks=(4,), repeats=2, arguments=SYNTHETIC)
    assert found == expected


@pytest.mark.parametrize("name", sorted(set(PRESETS) - {"tiers"}))
def test_a_preset_is_a_sweep_and_flags_count_more(name: str) -> None:
    found = _parsed("--", *SYNTHETIC, preset=name, repeats=2)

    changed = {"repeats": 2, "arguments": (*SYNTHETIC, GATE)}
    assert found == Sweep(**{**PRESETS[name], **changed})
    sweep.check(found)  # its models and modes exist


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"ranks": (1, 2, 4, 8), "repeats": 5, "arguments": (GATE,)}),
        ({"arguments": ("--require=au>=0.5",)}, {"arguments": ("--require=au>=0.5",)}),
        ({"placements": ("1x2",)}, {"ranks": None, "arguments": (GATE,)}),
        (
            {"find_ranks": ("au>=0.9",), "max_ranks": 2},
            {"ranks": None, "repeats": None, "arguments": ()},
        ),
    ],
)
def test_a_preset_leaves_out_what_excludes_a_given_setting(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = with_preset("scaling", given)

    assert {name: found.get(name) for name in expected} == expected
    found["arguments"] += SYNTHETIC
    Sweep(**found)  # contradicts nothing


def test_the_preset_of_tiers_asks_for_their_places() -> None:
    done = commands.answer(
        sweep.COMMANDS, preset="tiers", data_dirs=["x"], sweep_dir="y"
    )

    assert (done.returncode, done.lines) == (1, [])
    assert (
        done.stderr == "Error: The tier remote must have --remote_url, its data set.\n"
    )


def test_file_of_toml(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text('ranks = [1, 2]\nrun_timeout = 60\narguments = ["--synthetic"]\n')

    found = _parsed(sweep_file=path)

    assert found == Sweep(ranks=(1, 2), run_timeout=60, arguments=SYNTHETIC)


def _details(done: commands.Ended) -> list[str]:
    """Returns the lines behind the answer, whose last line says what is next."""
    starts = [line.split()[:1] for line in done.lines]
    return done.lines[starts.index(["next"]) + 1 :]


def _sweep_values(folder: pathlib.Path, **values: object) -> dict[str, object]:
    return {"sweep_dir": str(folder), "models": ["tiny"], "ranks": ["1", "2"], **values}


def test_sweep_keeps_each_run_and_computes_the_scaling(
    tmp_path: pathlib.Path,
    starts: Callable[[], list[str]],
) -> None:
    values = _sweep_values(tmp_path / "out", batch_sizes=["4"], repeats=2)

    done = commands.answer(sweep.COMMANDS, "--", "--synthetic", **values)

    assert done.returncode == 0
    assert starts() == ["tiny 1 4", "tiny 2 4"] * 2
    files = sorted((tmp_path / "out").glob("tiny-*.json"))
    kept = [json.loads(path.read_text()) for path in files]
    assert [document["num_ranks"] for document in kept] == [1, 1, 2, 2]
    assert {document["sweep"]["run"]["batch_size"] for document in kept} == {4}
    result = done.result
    (series,) = result["series"]
    assert (series["scaling"], series["model"]) == ("weak", "tiny")
    assert [point["efficiency"] for point in series["points"]] == [1.0, 0.9]
    assert [point["stall_fraction"] for point in series["points"]] == [0.25, 0.25]
    assert (result["num_runs"], result["num_done"]) == (4, 4)
    assert _details(done)[0] == "weak scaling, tiny, batch 4 a rank"
    # ranks, runs, images/s and its interval, speed-up, efficiency and its interval
    assert _details(done)[3].split()[:6] == ["2", "2", "180", "±", "0", "1.80"]
    assert _details(done)[3].split()[6:10] == ["90.0%", "(90.0%", "to", "90.0%)"]
    assert "warm" in _details(done)[3]
    assert done.stderr.count("images/s in") == 4
    assert json.loads((tmp_path / "out" / "sweep.json").read_text()) == result
    assert sorted(result["results"]) == [path.name for path in files]


def test_sweep_again_runs_only_what_is_missing(
    tmp_path: pathlib.Path,
    starts: Callable[[], list[str]],
) -> None:
    values = _sweep_values(tmp_path / "out")
    first = commands.answer(sweep.COMMANDS, "--", "--synthetic", **values)
    assert starts() == ["tiny 1 None", "tiny 2 None"]
    next((tmp_path / "out").glob("tiny-x2-*.json")).unlink()

    again = commands.answer(sweep.COMMANDS, "--", "--synthetic", **values)

    assert starts() == ["tiny 2 None"]
    assert again.result["series"] == first.result["series"]
    assert (
        commands.answer(
            sweep.COMMANDS, "--", "--synthetic", "--num_steps=2", **values
        ).returncode
        == 0
    )
    assert starts() == ["tiny 1 None", "tiny 2 None"]  # other arguments: other runs


def test_a_gate_that_is_not_met_is_a_result(
    tmp_path: pathlib.Path,
    starts: Callable[[], list[str]],
) -> None:
    values = _sweep_values(tmp_path)
    arguments = ("--synthetic", "--require=au>=0.92")  # 0.95 on one rank, 0.90 on two

    done = commands.answer(sweep.COMMANDS, "--", *arguments, **values)
    again = commands.answer(sweep.COMMANDS, "--", *arguments, **values)

    assert (done.returncode, again.returncode) == (2, 2)
    assert starts() == ["tiny 1 None", "tiny 2 None"]  # not once more
    assert [line.split()[-1] for line in _details(done)[2:4]] == ["met", "met"]
    assert _details(done)[3].endswith("not met")
    missed = "au>=92% is not met: got 90%."
    assert f"Ranks 2: {missed}" in done.lines
    result = done.result
    (two,) = result["gates_not_met"]
    assert (two["run"][:8], two["gates"]) == ("tiny-x2-", [missed])
    assert (result["num_done"], result["failed"]) == (2, [])
    assert [p["gates_met"] for p in result["series"][0]["points"]] == [True, False]
    assert not (tmp_path / "failed").exists()


def test_results_of_data_that_changed_are_moved_aside_and_run_again(
    tmp_path: pathlib.Path,
    starts: Callable[[], list[str]],
) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    values = _sweep_values(out, data_dirs=[str(data)], ranks=["1"])
    for content in ("{}", "{ }", "{}"):
        (data / "index.json").write_text(content)
        assert commands.answer(sweep.COMMANDS, **values, dry_run=True).returncode == 0
        done = commands.answer(sweep.COMMANDS, **values)
        assert (done.returncode, starts()) == (0, ["tiny 1 None"])

    again = commands.answer(sweep.COMMANDS, **values)

    assert (again.returncode, starts()) == (0, [])
    assert (
        "its data have changed since, it is run again; its result is now" in done.stderr
    )
    (kept,) = out.glob("tiny-*.json")
    aside = sorted((out / "stale").iterdir())
    assert [path.name for path in aside] == [f"{kept.stem}.{n}.json" for n in (1, 2)]
    digests = [
        json.loads(path.read_text())["sweep"]["data_digest"] for path in (*aside, kept)
    ]
    assert digests[0] == digests[2] != digests[1]
    assert again.result["stale"] == []


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("environment", {"cpu": "Intel Xeon 2012"}, "cpu Intel Xeon 2012 is now"),
        ("environment", {"tensorflow": "1.15"}, "tensorflow 1.15 is now"),
        ("stall_fraction", 1.5, "stall_fraction is a share of the time, but 1.5"),
        ("examples_per_second", 50.0, "was altered after it was written"),
    ],
)
def test_results_of_elsewhere_are_moved_aside_and_run_again(
    tmp_path: pathlib.Path,
    starts: Callable[[], list[str]],
    key: str,
    value: Any,
    reason: str,
) -> None:
    values = _sweep_values(tmp_path, ranks=["1", "2"])
    commands.answer(sweep.COMMANDS, "--", "--synthetic", **values)
    starts()
    (path,) = tmp_path.glob("tiny-x1-*.json")
    document = json.loads(path.read_text()) | {key: value}
    if key != "examples_per_second":
        document = output.sealed(document)
    path.write_text(json.dumps(document))

    done = commands.answer(sweep.COMMANDS, "--", "--synthetic", **values)

    assert starts() == ["tiny 1 None"]
    assert reason in done.stderr
    assert (tmp_path / "stale" / f"{path.stem}.1.json").exists()
    efficiency = done.result["series"][0]["points"][1]["efficiency"]
    assert efficiency == pytest.approx(0.9)


def test_search_finds_the_ranks_that_the_storage_feeds(
    tmp_path: pathlib.Path,
    starts: Callable[[], list[str]],
) -> None:
    # The stand-in's AU is 0.75 on five ranks and 0.70 on six.
    values = _sweep_values(tmp_path, ranks=None, find_ranks=["au>=0.75"], max_ranks=16)

    dry = commands.answer(sweep.COMMANDS, "--", "--synthetic", **values, dry_run=True)
    done = commands.answer(sweep.COMMANDS, "--", "--synthetic", **values)
    ranks = [int(start.split()[1]) for start in starts()]
    again = commands.answer(sweep.COMMANDS, "--", "--synthetic", **values)

    assert dry.returncode == 0
    assert "tiny-x1-bown" in dry.stderr
    assert "this run is next, and decides about the rest" in dry.stderr
    assert (done.returncode, again.returncode) == (0, 0)
    assert ranks == [1, 2, 4, 8, 6, 5, 5, 6]
    assert starts() == []
    assert (
        "5 ranks meet au>=0.75; 6 do not (au>=75% is not met: got 70%)." in done.lines
    )
    found = done.result
    assert found == again.result
    (answer,) = found["find_ranks"]["answers"]
    assert (answer["num_ranks"], answer["num_ranks_not_met"]) == (5, 6)
    assert [probe["num_ranks"] for probe in answer["probes"]] == ranks
    assert [point["num_ranks"] for point in found["series"][0]["points"]] == [
        *(1, 2, 4, 5, 6, 8),
    ]
    assert done.stderr.count("images/s in") == len(ranks)


@pytest.mark.parametrize(
    ("gate", "max_ranks", "code", "text"),
    [
        ("au>=0.75", 4, 0, "4 ranks meet au>=0.75; more were not allowed."),
        ("au>=0.92", 1, 0, "1 rank meets au>=0.92; more were not allowed."),
        (
            *("au>=0.96", 4, 2),
            "1 rank does not meet au>=0.96 (au>=96% is not met: got 95%).",
        ),
    ],
)
def test_search_without_two_ends(
    tmp_path: pathlib.Path,
    starts: Callable[[], list[str]],
    gate: str,
    max_ranks: int,
    code: int,
    text: str,
) -> None:
    values = _sweep_values(tmp_path, ranks=None, find_ranks=[gate], max_ranks=max_ranks)

    done = commands.answer(sweep.COMMANDS, "--", "--synthetic", **values)

    assert (done.returncode, text in done.lines) == (code, True)


def test_search_with_a_run_that_failed_has_no_answer(
    tmp_path: pathlib.Path,
    starts: Callable[[], list[str]],
) -> None:
    values = _sweep_values(tmp_path, ranks=None, find_ranks=["au>=0.9"], max_ranks=4)

    done = commands.answer(
        sweep.COMMANDS,
        *("--", "--synthetic"),
        **{**values, "models": [BAD, "tiny"]},
    )

    assert done.returncode == 1
    found = done.result
    assert [answer["model"] for answer in found["find_ranks"]["answers"]] == ["tiny"]
    assert len(found["failed"]) == 1


def test_interrupted_sweep_reports_what_is_done(
    tmp_path: pathlib.Path,
    starts: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = sweep_run._run

    def interrupted(command: Sequence[str], *rest: Any) -> int | None:
        if "-np" in command:
            raise KeyboardInterrupt
        return run(command, *rest)

    monkeypatch.setattr(sweep_run, "_run", interrupted)

    done = commands.answer(
        sweep.COMMANDS, "--", "--synthetic", **_sweep_values(tmp_path)
    )

    assert done.returncode == 1
    found = done.result
    assert (found["interrupted"], found["num_done"], found["failed"]) == (True, 1, [])
    assert json.loads((tmp_path / "sweep.json").read_text()) == found
    assert "interrupted. Start again to run only what is missing" in done.stderr


def test_full_disk_costs_the_files_and_not_the_figures(
    tmp_path: pathlib.Path,
    starts: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(document: object, path: pathlib.Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(output, "write", full)

    done = commands.answer(
        sweep.COMMANDS, "--", "--synthetic", **_sweep_values(tmp_path)
    )

    assert done.returncode == 1
    assert len(done.result["series"][0]["points"]) == 2
    printed = [json.loads(line) for line in done.stderr.splitlines() if line[0] == "{"]
    assert [document["num_ranks"] for document in printed] == [1, 2]
    assert "cannot be written: [Errno 28] No space left on device" in done.stderr


def test_flag_of_train_before_the_dashes_is_refused(tmp_path: pathlib.Path) -> None:
    done = commands.answer(sweep.COMMANDS, sweep_dir=tmp_path, num_steps=3)

    assert done.returncode == 1
    assert "It is a flag of benchmarks.train. Flags of ben" in done.stderr
    assert "for each run stand after --." in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--num_step=3"], "There is no flag --num_step. Did you mean --num_steps?"),
        (
            ["--model=resnet5"],
            "--model must be one of .*resnet5. Did you mean resnet50",
        ),
        (["--mode=trian"], "--mode must be one of .*, got trian. Did you mean train?"),
        (["--num_steps=many"], "--num_steps must be a whole number"),
        (["--num_steps=0"], "--num_steps must be a whole number"),
        (["--num_steps=3", "--num_epochs=2"], "does not use --num_epochs"),
        (["--num_steps=3", "words"], "Unexpected argument: words"),
        (["--dry_run"], "After -- stand flags of ben.* There is no flag --dry_run"),
        (["--require=ua>=0.9"], "A gate's metric must be one of .*; got 'ua'"),
        (["--require=au=0.9"], "--require must be a metric, one of"),
        (["--emulate=h100_mlperf", "--model=vgg16"], "h100_mlperf .*--model=vgg16"),
        (["--nosynthetic", "--data_dir=/nowhere"], "No data set in /nowhere: index"),
        (
            [
                "--nosynthetic",
                "--data_dir=x",
                "--tuning=/nowhere.json",
                "--max_faults=3",
            ],
            "--on_error=raise does not use --max_faults",
        ),
        (["--mode=infer", "--checkpoint_dir=/nowhere"], "and /nowhere is not"),
        (["--report_dir=gs://bucket/x"], "--report_dir must be a path on this machine"),
    ],
)
def test_run_that_would_be_refused(words: list[str], message: str) -> None:
    synthetic = [] if "--nosynthetic" in words else ["--synthetic"]
    with pytest.raises((ValueError, tfpipe.errors.TfpipeError), match=message):
        sweep.check_run([*synthetic, *words])


def test_run_that_would_start(data_dir: pathlib.Path) -> None:
    words = ["--require=au>=0.9,stall<=5%", "--num_steps", "3", "--verbosity=-1"]

    sweep.check_run([f"--data_dir={data_dir}", "--model=tiny", *words])
    config = sweep.config_of(["--synthetic", *words])

    assert (config.num_steps, config.require) == (3, ("au>=0.9", "stall<=5%"))


@pytest.mark.parametrize(
    ("model", "error", "exit_code"),
    [
        (BAD, "Error: --model=bad must be good.", 1),
        (MUTE, "It printed no result of 1 rank.", 0),
        (SLOW, "It did not end within 60 s (--run_timeout).", None),
    ],
)
def test_run_that_failed_is_recorded_and_tried_again(
    tmp_path: pathlib.Path,
    starts: Callable[[], list[str]],
    model: str,
    error: str,
    exit_code: int | None,
) -> None:
    values = _sweep_values(tmp_path, ranks=["1"], models=[model, "tiny"])
    values["run_timeout"] = 60.0

    done = commands.answer(sweep.COMMANDS, "--", "--synthetic", **values)

    assert done.returncode == 1
    assert starts() == [f"{model} 1 None", "tiny 1 None"]
    (failed,) = (tmp_path / "failed").glob("*.json")
    document = json.loads(failed.read_text())
    assert (document["error"], document["exit_code"]) == (error, exit_code)
    assert done.result["failed"] == [{"run": failed.stem, "error": error}]
    assert f"{failed.stem}: {error}" in done.stderr
    assert "Error: 1 of 2 runs failed; see" in done.stderr
    commands.answer(sweep.COMMANDS, "--", "--synthetic", **values)
    assert starts() == [f"{model} 1 None"]


def test_success_removes_the_record_of_the_failure(
    tmp_path: pathlib.Path, starts: Callable[[], list[str]]
) -> None:
    (run,) = Sweep(models=("tiny",), arguments=SYNTHETIC).runs()
    (tmp_path / "failed").mkdir()
    failed = tmp_path / "failed" / f"{run.name}.json"
    failed.write_text("{}")

    result, error = sweep_run.keep_result(tmp_path, run, timeout=60, digest=None)

    assert error == ""
    stored = sweep_run.read_result(tmp_path, run)
    assert None not in (result, stored)
    assert json.loads(json.dumps(result.document)) == stored.document
    assert not failed.exists()


def test_file_that_is_no_result_of_its_run_is_an_error(
    tmp_path: pathlib.Path,
) -> None:
    (run,) = Sweep(models=("tiny",), arguments=SYNTHETIC).runs()
    (tmp_path / f"{run.name}.json").write_text('{"command": "something"}')

    done = commands.answer(
        sweep.COMMANDS, "--", "--synthetic", **_sweep_values(tmp_path)
    )

    assert done.returncode == 1
    assert (
        f"{run.name}.json must be the result of {run.name}, and is not" in done.stderr
    )


def test_dry_run_lists_the_runs_and_starts_none(
    tmp_path: pathlib.Path,
    starts: Callable[[], list[str]],
) -> None:
    values = _sweep_values(tmp_path / "out", dry_run=True)

    done = commands.answer(sweep.COMMANDS, "--", "--synthetic", **values)

    assert (done.returncode, starts()) == (0, [])
    assert not (tmp_path / "out").exists()
    names = [line.split()[-1] for line in _details(done)[:2]]
    assert [name[:8] for name in names] == ["tiny-x1-", "tiny-x2-"]
    assert [line.split()[:-1] for line in _details(done)[:2]] == [["to", "run"]] * 2
    assert _details(done)[2] == "Runs left: 2 of 2."
    assert done.result["estimated_seconds_left"] is None


def test_dry_run_tells_a_duration_where_repeats_have_finished(
    tmp_path: pathlib.Path,
) -> None:
    plan = Sweep(models=("tiny",), ranks=(1, 2), repeats=2, arguments=SYNTHETIC)
    for run, seconds in zip(plan.runs()[:2], (200.0, 50.0), strict=True):
        kept = {"run": dataclasses.asdict(run), "seconds": seconds}
        text = json.dumps(stand_in_train.result(run.num_ranks) | {"sweep": kept})
        (tmp_path / f"{run.name}.json").write_text(text)
    values = _sweep_values(tmp_path, dry_run=True, repeats=2)

    done = commands.answer(sweep.COMMANDS, "--", "--synthetic", **values)

    states = [" ".join(line.split()[:-1]) for line in _details(done)[:4]]
    assert states == ["done", "done", "3 min", "50 s"]
    assert _details(done)[4] == (
        "Runs left: 2 of 4. They take about 4 min, as their finished repeats did."
    )
    assert done.result["estimated_seconds_left"] == 250.0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"repeat": 3}, 35.0),  # the mean of both repeats
        # Runs with other settings tell nothing.
        ({"batch_size": 16}, None),
        ({"num_ranks": 2}, None),
        ({"model": "b"}, None),
        ({"arguments": ("--num_steps=9",)}, None),
    ],
)
def test_a_duration_is_that_of_finished_repeats(
    changes: dict[str, Any], expected: float | None
) -> None:
    base = {"model": "a", "num_ranks": 1, "batch_size": 8, "data_dir": "d"}
    finished = {
        Run(**base, repeat=repeat): Result("", {"sweep": {"seconds": seconds}})
        for repeat, seconds in ((1, 40.0), (2, 30.0))
    }

    run = Run(**{**base, "repeat": 1, **changes})

    assert estimate_seconds(run, finished) == expected


def test_missing_data_is_found_before_the_runs(
    tmp_path: pathlib.Path,
) -> None:
    values = _sweep_values(tmp_path / "out", data_dirs=[str(tmp_path)])

    done = commands.answer(sweep.COMMANDS, **values)

    assert done.returncode == 1
    assert f"No data set in {tmp_path}: index.json is missing." in done.stderr
    assert f"converters.folder PHOTOS {tmp_path}" in done.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"command": "benchmarks.train", "a": 1}', 1),
        ('[0]<stdout>:{"command": "benchmarks.train", "a": 1}\nlate words', 1),
        ('{"command": "benchmarks.train", "a": 1}\n{"command": "other"}\n{broken', 1),
        ('{"command": "other"}', None),
        ("", None),
    ],
)
def test_result_is_found_among_other_lines(text: str, expected: int | None) -> None:
    found = sweep_run.find_result(text)

    assert (found and found["a"]) == expected
