"""The part of the files in the page cache, as a gauge of `telemetry.Sampler`."""

from collections.abc import Callable, Sequence

from benchmarks.page_cache.files import OpenFiles
from benchmarks.system.probes import Probe, Reading

_MAX_BYTES = 16e9  # measured in 0.24 s, so every 24 s


def resident_probe(files: Sequence[str], num_bytes: float) -> Callable[[object], Probe]:
    """Returns a function for `Sampler` that opens the files and makes the probe.

    1 GB takes 15 ms of CPU time (mincore on all pages), so a large data set is measured
    by an even sample of the files. The files stay mapped: a file server that does not
    answer blocks no measurement.
    """

    def make(_: object) -> Probe:
        opened = OpenFiles(even_sample(files, num_bytes))
        if opened.remark:
            raise OSError(opened.remark)

        def probe() -> Reading:
            resident = opened.resident_bytes() or 0
            share = resident / max(1, opened.num_bytes)
            return Reading(gauges={"resident_fraction": share})

        return probe

    return make


def even_sample(files: Sequence[str], num_bytes: float) -> list[str]:
    """Returns files at even distances that have about 16 GB; all files if these do."""
    step = max(1, round(num_bytes / _MAX_BYTES))
    return list(files[::step])
