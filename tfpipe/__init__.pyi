"""The public names of tfpipe and their homes.

`__init__.py` reads this file and imports a name when the name is first used.
"""

from . import (
    errors as errors,
    host as host,
    recipes as recipes,
    view as view,
)
from .cache.stage import (
    Cache as Cache,
)
from .location.files import (
    Files as Files,
)
from .location.location import (
    Location as Location,
)
from .mixture import (
    Mixture as Mixture,
)
from .ops.augment import (
    ColorJitter as ColorJitter,
    Cutout as Cutout,
    DistortColor as DistortColor,
    RandAugment as RandAugment,
    RandomErasing as RandomErasing,
)
from .ops.basic import (
    Cast as Cast,
    Flip as Flip,
    Normalize as Normalize,
    OneHot as OneHot,
    Reseed as Reseed,
    Select as Select,
    ToNCHW as ToNCHW,
)
from .ops.boxes import (
    ParseBoxes as ParseBoxes,
)
from .ops.crop import (
    CenterCrop as CenterCrop,
    RandomCrop as RandomCrop,
    RandomScaleCrop as RandomScaleCrop,
    Resize as Resize,
)
from .ops.mix import (
    CutMix as CutMix,
    MixUp as MixUp,
)
from .ops.parse import (
    EntryPoints as EntryPoints,
    Parse as Parse,
)
from .pipeline import (
    Pipeline as Pipeline,
)
from .presets import (
    ImageOptions as ImageOptions,
    imagenet_eval as imagenet_eval,
    imagenet_train as imagenet_train,
)
from .profiling.measure import (
    profile as profile,
    throughput as throughput,
)
from .reading.sampling import (
    Sampling as Sampling,
)
from .reading.source import (
    SyntheticSource as SyntheticSource,
    TFRecordSource as TFRecordSource,
)
from .reading.state import (
    CheckpointState as CheckpointState,
    State as State,
)
from .service.paying import (
    ServicePayoff as ServicePayoff,
)
from .service.stage import (
    Service as Service,
)
from .shard_cache.settings import (
    ShardCache as ShardCache,
)
from .shards.subset import (
    Subset as Subset,
)
from .stages.basic import (
    AssertCardinality as AssertCardinality,
    Batch as Batch,
    Prefetch as Prefetch,
    Take as Take,
)
from .stages.faults import (
    FaultLog as FaultLog,
)
from .stages.interleave import (
    Interleave as Interleave,
)
from .stages.map import (
    EachExample as EachExample,
    Map as Map,
)
from .stages.shuffle import (
    Shuffle as Shuffle,
)
from .training.callbacks import (
    LogInput as LogInput,
    StateCallback as StateCallback,
)
from .training.headspace import (
    headspace as headspace,
)
from .training.preflight import (
    preflight as preflight,
)
from .training.step_timer import (
    StepTimer as StepTimer,
)
from .training.sum_metrics import (
    sum_metrics as sum_metrics,
)
from .tuner.result import (
    Search as Search,
    load_tuned as load_tuned,
)
from .tuner.search import (
    search_tuning as search_tuning,
    tune as tune,
)
from .tuning import (
    Tuning as Tuning,
)

__version__: str
