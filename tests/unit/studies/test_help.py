"""studies: the help of each study is the text of its module."""

import re
from types import ModuleType

import pytest

from studies import (
    affinity,
    cache_faults,
    conversion,
    cores,
    decode,
    fill,
    object_store,
    placements,
    scale,
    service,
    storage,
    tables,
    tuning,
    two_hosts,
)
from studies.loaders import __main__ as loaders
from studies.shard_cache import __main__ as shard_cache
from tfpipe.cli import fields

STUDIES = [
    *(
        affinity,
        cache_faults,
        conversion,
        cores,
        decode,
        fill,
        loaders,
        object_store,
        placements,
        scale,
        service,
        shard_cache,
        storage,
    ),
    *(tables, tuning, two_hosts),
]


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.__name__)
def test_help_shows_an_example_and_its_flags(study: ModuleType) -> None:
    text = study.__doc__ or ""
    commands = [line for line in text.splitlines() if line.startswith("  ")]

    shown = {option.name for option in fields.options_of(study.COMMANDS[0].options)}

    name = study.__name__.removesuffix(".__main__")
    assert commands[0].startswith(f"  python -m {name} ")
    assert set(re.findall(r"--(\w+)", " ".join(commands))) <= shown
    assert "JSON object" in " ".join(text.split())
    assert {"num_rounds", "save_result"} <= shown
