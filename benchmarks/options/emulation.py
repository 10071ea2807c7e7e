"""The accelerator that a config names, with its published or scaled figure.

In: a `Config`. Out: an `Emulation`. The file of --accelerators_file is read here.
"""

from benchmarks.models import accelerators, catalog, published
from benchmarks.models.accelerators import Emulation
from benchmarks.options import settings_file
from benchmarks.options.config import Config


def of_config(config: Config) -> Emulation | None:
    """Returns the emulation of --emulate; None if no accelerator is named.

    Raises:
        ValueError: If the accelerator is not known, or has no figure for the model, or
            the file of --accelerators_file is not valid.
        OSError: If that file cannot be read.
    """
    if config.emulate is None:
        return None
    known = published.ACCELERATORS
    if path := config.accelerators_file:
        found = settings_file.read("accelerators_file", path)
        known = known | accelerators.parse(
            found, path, taken=known, models=catalog.MODELS
        )
    return accelerators.find(known, config.emulate, config.model, config.mode)
