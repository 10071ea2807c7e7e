"""benchmarks.config: what excludes what."""

import json

import pytest

from benchmarks.config import Config


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "One of --data_dir and --synthetic must be given"),
        ({"data_dir": "x", "synthetic": True}, "and not both"),
        ({"data_dir": "x", "num_steps": 1, "num_epochs": 1}, "exclude each other"),
        ({"synthetic": True, "num_epochs": 1}, "--synthetic has no epochs"),
        ({"data_dir": "x", "mode": "eval"}, "--mode=eval must have .*--checkpoint_dir"),
        ({"synthetic": True, "mode": "eval"}, "--mode=eval must have --data_dir"),
    ],
)
def test_contradictions_are_errors(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Config(**fields)


def test_config_is_json() -> None:
    config = Config(data_dir="x", num_steps=3)

    assert Config(**json.loads(json.dumps(config.as_json()))) == config
