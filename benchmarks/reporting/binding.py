"""The resource that held a run back, from the result of the run."""

from collections.abc import Mapping
from typing import Any

# Shares of the time, of the cores and of the bytes from which a resource binds.
_MOST_STALL, _FULL, _MANY = 0.05, 0.85, 0.05


def of_run(result: Mapping[str, Any]) -> str:
    """Returns the resource that held a run back.

    A run whose input kept up waited for the model, or for the accelerator in its place.
    Otherwise busy cores bind, or else the server or the disk. If all bytes were in
    memory, the stages of the pipeline waited for other stages.

    Args:
        result: The result of benchmarks.train.
    """
    if result["stall_fraction"] <= _MOST_STALL:
        return "accelerator" if result.get("kind") == "emulated" else "model"
    if ((result.get("telemetry") or {}).get("host_cpu_fraction") or 0.0) >= _FULL:
        return "cores"
    section: Mapping[str, Any] = result.get("storage") or {}
    server, disk = (section.get(f"bytes_from_{name}") or 0 for name in _READ)
    if max(server, disk) > _MANY * section.get("consumed_bytes", 0):
        return "server" if server >= disk else "disk"
    return "pipeline"


_READ = ("server", "disk")
