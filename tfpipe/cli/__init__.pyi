"""The public names of `tfpipe.cli` and their homes."""

from .command import (
    Command as Command,
    call as call,
    run as run,
)
from .fields import (
    Unused as Unused,
    argument as argument,
    changed as changed,
    flag as flag,
    gigabytes as gigabytes,
    group as group,
    nested as nested,
    refuse as refuse,
    refuse_unused as refuse_unused,
    required as required,
)
from .flags import (
    from_flags as from_flags,
    options as options,
    parse as parse,
)
from .signals import (
    terminated_as_interrupted as terminated_as_interrupted,
)
from .stores import StoreOptions as StoreOptions
