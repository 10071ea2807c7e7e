"""studies.decode: choice of the variants and their comparison."""

import pytest

from studies import decode, decode_variants, figures, harness
from studies.decode_variants import FOLDERS, VARIANTS, Job
from tests.support.processes import commands


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Starts no process: each run of a variant takes as many seconds as its number."""
    names: list[str] = []

    def run(
        module: str, name: str, job: Job, *, time_limit: float | None
    ) -> figures.Run:
        assert module == decode_variants.__name__
        names.append(name)
        seconds = 1.0 + list(VARIANTS).index(name)
        return {"cpu_seconds": seconds, "seconds": seconds, "num_images": 1000}

    monkeypatch.setattr(harness, "run", run)
    return names


def test_variants_run_in_turns_with_the_base(started: list[str]) -> None:
    rows = decode.compare(Job(data_dir="d"), ["garden_float32"], 2)

    assert started == ["garden_float32", "hand_uint8"] * 2
    assert rows["garden_float32"]["cpu_ratio"] == pytest.approx(1 / 3)
    assert rows["hand_uint8"]["cpu_seconds_per_1000_images"] == 3.0


def _main(**values: object) -> commands.Ended:
    flags = {"data_dir": "folder/data", "num_rounds": 1, **values}
    return commands.answer(decode.COMMANDS, **flags)


def test_variants_on_other_data_run_only_with_their_folder(
    started: list[str],
) -> None:
    on_other = {kind: {n for n in VARIANTS if n.startswith(kind)} for kind in FOLDERS}
    rewritten, entries = on_other.values()
    assert rewritten
    assert entries

    assert _main().returncode == 0
    assert set(started) == VARIANTS.keys() - rewritten - entries
    started.clear()
    assert _main(entries_data_dir="other/entries").returncode == 0
    assert set(started) == VARIANTS.keys() - rewritten
    folders = {"entries_data_dir": "b/c", "rewritten_data_dir": "other/rewritten"}
    done = _main(**folders)

    assert done.returncode == 0
    result = done.result
    assert result["config"]["data_dir"] == "data"
    assert result["config"]["rewritten_data_dir"] == "rewritten"
    assert result["config"]["entries_data_dir"] == "c"
    assert result["config"]["num_rounds"] == 1
    assert set(result["ways"]) == set(VARIANTS)


def test_an_unknown_variant_is_an_error(started: list[str]) -> None:
    done = _main(ways="nonsense")

    assert done.returncode == 1
    assert "--ways must be of garden_float32" in done.stderr
    assert not started
