"""converters.options.start: the flags that every command refuses."""

import pytest
from absl import flags

from converters import (
    folder,
    imagenet,
    replicate,
    synthesize,
    tfrecord,
    verify,
    webdataset,
)
from converters.options import shared, start
from tests.support.data.url_flags import check_url_is_refused, takes_text

COMMANDS = (folder, imagenet, replicate, synthesize, tfrecord, verify, webdataset)


@pytest.mark.parametrize(
    "flag",
    {
        flag.name: flag
        for module in COMMANDS
        for flag in flags.FLAGS.get_key_flags_for_module(module)
        if takes_text(flag) and flag.name not in shared.TAKE_URLS
    }.values(),
    ids=lambda flag: flag.name,
)
def test_few_flags_take_a_url(flag: flags.Flag) -> None:
    """A new flag of a command is tried too."""
    check_url_is_refused(flag, start.refuse_urls)
