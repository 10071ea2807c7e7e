"""The public names of tfpipe and their homes.

`__init__.py` reads this file and imports a name when the name is first used.
"""

from . import (
    recipes as recipes,
)
from .cache.stage import (
    Cache as Cache,
)
from .errors import (
    BadIndexError as BadIndexError,
    BadRecordError as BadRecordError,
    BadSubsetError as BadSubsetError,
    MissingFileError as MissingFileError,
    RemoteError as RemoteError,
    TfpipeError as TfpipeError,
)
from .host import (
    cpu_model as cpu_model,
    cpu_quota as cpu_quota,
    git_revision as git_revision,
    keep_freed_memory as keep_freed_memory,
    ram_bytes as ram_bytes,
    ram_left as ram_left,
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
    imagenet_eval as imagenet_eval,
    imagenet_train as imagenet_train,
)
from .profiling.bottleneck import (
    Bottleneck as Bottleneck,
)
from .profiling.dataset_nodes import (
    chosen_parallelism as chosen_parallelism,
)
from .profiling.limits import (
    StageCost as StageCost,
)
from .profiling.measure import (
    Throughput as Throughput,
    profile as profile,
    throughput as throughput,
)
from .profiling.profile import (
    Profile as Profile,
)
from .reading.sampling import (
    Sampling as Sampling,
)
from .reading.source import (
    SyntheticSource as SyntheticSource,
    TFRecordSource as TFRecordSource,
)
from .reading.state import (
    SavedState as SavedState,
    State as State,
)
from .recipes import (
    Recipe as Recipe,
    inception as inception,
    resnet as resnet,
    vgg as vgg,
)
from .service.paying import (
    ServicePayoff as ServicePayoff,
)
from .service.stage import (
    Service as Service,
)
from .service.workers import (
    service_worker_answers as service_worker_answers,
    service_workers as service_workers,
)
from .shard_cache.open_cache import (
    CacheStatistics as CacheStatistics,
)
from .shard_cache.settings import (
    Filled as Filled,
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
    Fault as Fault,
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
    SaveState as SaveState,
)
from .training.headspace import (
    Headspace as Headspace,
    headspace as headspace,
)
from .training.preflight import (
    preflight as preflight,
)
from .training.step_timer import (
    StepFigures as StepFigures,
    StepTime as StepTime,
    StepTimer as StepTimer,
)
from .training.sum_metrics import (
    sum_metrics as sum_metrics,
)
from .tuner.race import (
    Turns as Turns,
    compare as compare,
)
from .tuner.result import (
    Search as Search,
    load_tuned as load_tuned,
)
from .tuner.search import (
    search_tuning as search_tuning,
    tune as tune,
)
from .tuner.space import (
    Budget as Budget,
    Setting as Setting,
    opened as opened,
)
from .tuning import (
    Tuning as Tuning,
)
from .view import (
    before_and_after as before_and_after,
    contact_sheet as contact_sheet,
)

__version__: str
