"""benchmarks.options.train_flags: runs that benchmarks.train would refuse."""

import pathlib

import pytest
from absl import flags

from benchmarks.options import train_flags
from tests.support.processes import commands


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--num_step=3"], "flag 'num_step'. Did you mean: num_steps"),
        (["--model=resnet5"], "--model=resnet5: value should be one of <.*resnet50"),
        (["--mode=trian"], "--mode=trian: value should be one of <train"),
        (["--num_steps=many"], "--num_steps=many"),
        (["--num_steps=0"], "--num_steps=0"),
        (["--num_steps=3", "--num_epochs=2"], "exclude each other, got 3 and 2"),
        (["--num_steps=3", "words"], "must be --name=value, got 'words'"),
        (["--dry_run"], "--dry_run is no flag of benchmarks.train: .* before --"),
        (["--require=ua>=0.9"], "A gate's metric must be one of .*; got 'ua'"),
        (["--require=au=0.9"], "--require must be a metric, one of"),
        (["--emulate=h100_mlperf", "--model=vgg16"], "h100_mlperf .*--model=vgg16"),
        (["--nosynthetic", "--data_dir=/nowhere"], "/nowhere/index.json is not"),
        (["--tuning=/nowhere.json"], "--tuning must be there, and /nowhere.json"),
        (
            ["--mode=infer", "--checkpoint_dir=/nowhere"],
            "--checkpoint_dir must be there, and /nowhere is not",
        ),
    ],
)
def test_run_that_would_be_refused(arguments: list[str], message: str) -> None:
    import benchmarks.sweep  # noqa: F401  # defines --dry_run

    with pytest.raises(ValueError, match=message):
        train_flags.check(["--synthetic", *arguments])


def test_run_that_would_start(data_dir: pathlib.Path) -> None:
    arguments = ["--require=au>=0.9,stall<=5%", "--num_steps", "3", "--verbosity=-1"]

    train_flags.check([f"--data_dir={data_dir}", "--model=tiny", *arguments])
    config = train_flags.parse(["--synthetic", *arguments])

    assert (config.num_steps, config.require) == (3, ("au>=0.9", "stall<=5%"))
    # The flags of this process are not touched.
    assert flags.FLAGS["num_steps"].default is None
    assert flags.FLAGS["num_steps"].value is None
    assert not train_flags.names_present()


def test_the_shard_cache_of_a_sweep_is_not_that_of_its_runs() -> None:
    with commands.flags_set(shard_cache_dir="of the sweep"):
        config = train_flags.parse(["--data_dir=x"])

    assert config.shard_cache_dir is None
