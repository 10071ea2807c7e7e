"""Files that are written on a cluster, as if this host had written them.

In: a function that writes the files of a task into a folder, and where it runs. Out:
the files in that folder. Every node sees the folder at the same path, or, if the
function uploads its large files itself, uses a folder of its own and sends back the
small ones.
"""

import functools
import pathlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from converters.engines import processes, ray_cluster

Task = TypeVar("Task")
Result = TypeVar("Result")


class Nodes(NamedTuple):
    """How nodes write the files of a run.

    Attributes:
        cluster: The cluster that this process is connected to.
        problem: Called on a node before each task: says what keeps the node from doing
            it, as the end of a sentence whose subject is the node; empty if nothing
            does. Can be pickled.
        sends: Whether nodes send files back, because they need not see the folder.
        keep: Called here with the name and the content of each file that is sent.
        last: Suffix of the file that says that the others are complete: sent last.
    """

    cluster: ray_cluster.Cluster
    problem: Callable[[], str]
    sends: bool
    keep: Callable[[str, bytes], object]
    last: str


class _Sent(NamedTuple, Generic[Result]):
    """The answer of a node: the result of a task, and files to keep, in order."""

    result: Result
    files: Mapping[str, bytes]


def run(
    write: Callable[[pathlib.Path, Task], Result],
    folder: pathlib.Path,
    tasks: Sequence[Task],
    *,
    nodes: Nodes | None,
    num_workers: int,
    num_images: int,
    on_result: Callable[[Result], object],
    on_span: Callable[[processes.Span], object],
    note: str,
) -> None:
    """Writes the files of all tasks, on a cluster or in processes of this host.

    Args:
        write: Writes the files of a task into a folder; can be pickled.
        folder: Folder for the files.
        tasks: The tasks.
        nodes: How nodes write; None writes on this host.
        num_workers: Number of processes on this host, >= 1.
        num_images: As for `processes.run`.
        on_result: As for `processes.run`; the files are in the folder by then.
        on_span: As for `processes.run`.
        note: As for `processes.run`.

    Raises:
        OSError: If a node cannot do its tasks, or workers die again and again.
        Exception: The first exception of `write` or `on_result`.
    """
    if nodes is None:
        processes.run(
            functools.partial(write, folder),
            tasks,
            num_workers=num_workers,
            num_images=num_images,
            on_result=on_result,
            on_span=on_span,
            note=note,
        )
        return

    keep, seen = nodes.keep, None if nodes.sends else folder

    def on_sent(sent: _Sent[Result]) -> None:
        for name, content in sent.files.items():
            keep(name, content)
        on_result(sent.result)

    ray_cluster.run(
        functools.partial(_write_afar, write, seen, nodes.problem, nodes.last),
        tasks,
        num_workers=nodes.cluster.num_workers,
        num_images=num_images,
        on_result=on_sent,
        on_span=on_span,
        note=note,
    )


def _write_afar(
    write: Callable[[pathlib.Path, Task], Result],
    folder: pathlib.Path | None,
    problem: Callable[[], str],
    last: str,
    task: Task,
) -> _Sent[Result]:
    """Does a task in a folder that all nodes see, or else in one of this node."""
    if found := problem():
        raise OSError(f"The node {ray_cluster.node_name()} {found}")
    if folder is not None:
        return _Sent(write(folder, task), {})
    with tempfile.TemporaryDirectory(prefix="tfpipe-convert-") as name:
        result = write(pathlib.Path(name), task)
        paths = sorted(pathlib.Path(name).iterdir(), key=lambda p: p.suffix == last)
        return _Sent(result, {path.name: path.read_bytes() for path in paths})
