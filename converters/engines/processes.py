"""Worker processes that run tasks in parallel, show progress, and stop together.

In: a function and its tasks. Out: the results in the order of the tasks, or the first
exception, after every worker has stopped. A worker ends when its parent ends, however
the parent ends, so that no worker of a killed command goes on writing.
"""

import collections
import concurrent.futures
import contextlib
import functools
import itertools
import os
import pathlib
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from tfpipe import errors, host
from tfpipe.cli import progress

Task = TypeVar("Task")
Result = TypeVar("Result")

# About a second of work on a core. The size decides and no clock: jobs run alike.
_FEW_IMAGES, _FEW_BYTES = 400, 40_000_000

_POLL_SECONDS = 0.1
# Seconds in which a worker must finish its image when a run stops; then it is killed.
_GRACE_SECONDS = 5.0


class Span(NamedTuple):
    """The time at which a task ran, and its CPU time.

    Attributes:
        start: Seconds on the monotonic clock, which all processes of a host share.
        end: Seconds on the same clock.
        cpu_seconds: CPU time of its process, in user and system mode.
    """

    start: float
    end: float
    cpu_seconds: float


def _nothing() -> None:
    pass


def ignore(result: object) -> None:
    """Does nothing with a result."""


# The function that `image_done` calls: `run` sets it here, `_start` in a worker.
_on_image: Callable[[], object] = _nothing
# The function of a worker, sent to the worker once and not with every task.
_function: Callable[[Any], Any] = ignore


def default_workers(num_images: int, num_bytes: int, *, encodes: bool = False) -> int:
    """Returns how many processes suit a job: the cores, or 1 below a second of work.

    Args:
        num_images: Number of its images.
        num_bytes: Bytes of its images; 0 if they are unknown, as at a URL.
        encodes: Whether all images are encoded again.
    """
    is_small = num_images <= _FEW_IMAGES and 0 < num_bytes <= _FEW_BYTES and not encodes
    return 1 if is_small else host.num_cores()


def run(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    num_workers: int,
    num_images: int,
    unit: str = "image",
    on_result: Callable[[Result], object] = ignore,
    on_span: Callable[[Span], object] = ignore,
    note: str = "",
) -> list[Result]:
    """Calls `function` on every task, in up to `num_workers` processes.

    Args:
        function: Can be pickled, and calls `image_done` after an image.
        tasks: The arguments of the function.
        num_workers: Number of processes, >= 1. With 1, and a single task, tasks run in
            this process.
        num_images: Number of images in all tasks, for the progress bar on stderr.
        unit: Name of the things to count, if not images.
        on_result: Called in this process with the result of a task when the task
            ends. An exception of `on_result` ends the run.
        on_span: Called in this process with the span of a task without an exception.
        note: Text behind the bar; {} is the number of tasks at their end.

    Raises:
        OSError: If a worker process dies.
        Exception: The first exception of `function` or `on_result`.
    """

    timed = functools.partial(_timed, function)
    with progress.bar(num_images, unit) as bar:
        num_ended = itertools.count(1)

        def on_end(ended: tuple[Result, Span]) -> None:
            result, span = ended
            on_span(span)
            on_result(result)
            bar.set_postfix_str(note.format(next(num_ended)), refresh=False)

        num_workers = min(num_workers, len(tasks))
        if num_workers <= 1:
            ended = _run_here(timed, tasks, on_end, bar)
        else:
            ended = _run_in_workers(timed, tasks, on_end, num_workers, bar)
    return [result for result, _ in ended]


@contextlib.contextmanager
def counting(on_image: Callable[[], object]) -> Iterator[None]:
    """Makes `image_done` call a function until the end of the block."""
    global _on_image
    _on_image = on_image
    try:
        yield
    finally:
        _on_image = _nothing


def _timed(function: Callable[[Task], Result], task: Task) -> tuple[Result, Span]:
    start, cpu_start = time.monotonic(), time.process_time()
    result = function(task)
    span = Span(start, time.monotonic(), time.process_time() - cpu_start)
    return result, span


def _run_here(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    on_result: Callable[[Result], object],
    bar: progress.Bar,
) -> list[Result]:
    results = []
    with counting(bar.update):
        for task in tasks:
            results.append(function(task))
            on_result(results[-1])
    return results


def _make_pool(
    function: Callable[[Any], Any], num_workers: int
) -> "tuple[concurrent.futures.ProcessPoolExecutor, Any, Any]":
    """Returns worker processes, their shared count of images, and their stop event."""
    import multiprocessing  # of no use to a small job

    context = multiprocessing.get_context("fork" if _is_alone() else "spawn")
    num_done, stop = context.Value("q", 0), context.Event()
    pool = concurrent.futures.ProcessPoolExecutor(
        num_workers,
        mp_context=context,
        initializer=_start,
        initargs=(function, num_done, stop),
    )
    return pool, num_done, stop


def _is_alone() -> bool:
    """Checks whether this process has one thread, with those of native libraries.

    A fork takes a hundredth of the time of a new interpreter with its imports. A forked
    child would inherit the locks that other threads hold, and would wait for them.
    """
    threads = pathlib.Path("/proc/self/task")  # on Linux; unknown elsewhere
    return threads.is_dir() and len(os.listdir(threads)) == 1


def _run_in_workers(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    on_result: Callable[[Result], object],
    num_workers: int,
    bar: progress.Bar,
) -> list[Result]:
    pool, num_done, stop = _make_pool(function, num_workers)
    with pool, _ended(pool, stop):
        futures = [pool.submit(_call, task) for task in tasks]
        try:
            _wait(futures, on_result, lambda: bar.update(num_done.value - bar.n))
        except concurrent.futures.BrokenExecutor as error:
            raise _worker_died() from error
        bar.update((bar.total or 0) - bar.n)  # images that workers had not reported
        return [future.result() for future in futures]


@contextlib.contextmanager
def _ended(pool: "concurrent.futures.ProcessPoolExecutor", stop: Any) -> Iterator[None]:
    """Ends the workers within a few seconds if the block raises an exception.

    A worker that was stopped by SIGSTOP, or that hangs in a read, is killed.
    """
    import multiprocessing

    others = set(multiprocessing.active_children())
    try:
        yield
    except BaseException:
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
        deadline = time.monotonic() + _GRACE_SECONDS
        workers = set(multiprocessing.active_children()) - others
        for process in workers:
            process.join(max(0.0, deadline - time.monotonic()))
        for process in workers:
            process.kill()
        raise


def _wait(
    futures: Sequence[concurrent.futures.Future[Result]],
    on_result: Callable[[Result], object],
    on_poll: Callable[[], object],
) -> None:
    """Waits for all futures; raises the exception of the first one that fails."""
    pending = set(futures)
    while pending:
        done, pending = concurrent.futures.wait(
            pending, _POLL_SECONDS, concurrent.futures.FIRST_COMPLETED
        )
        on_poll()
        for future in done:
            on_result(future.result())


def stream(
    function: Callable[[Task], Result], tasks: Iterable[Task], *, num_workers: int
) -> Iterator[Result]:
    """Calls `function` on tasks that are made one by one, such as parts of a file.

    At most four tasks and results for each worker are in memory at once. A single task,
    or all tasks with one worker, run in this process.

    Args:
        function: Can be pickled.
        tasks: The arguments that it is called with.
        num_workers: Number of processes, >= 1.

    Yields:
        The results in the order of the tasks.

    Raises:
        OSError: If a worker process dies.
        Exception: The first exception of `function` or `tasks`.
    """
    remaining = iter(tasks)
    first = list(itertools.islice(remaining, 2))
    remaining = itertools.chain(first, remaining)
    if num_workers == 1 or len(first) < 2:
        yield from map(function, remaining)
        return
    pool, _, stop = _make_pool(function, num_workers)
    with pool, _ended(pool, stop):
        pending: collections.deque[concurrent.futures.Future[Result]]
        pending = collections.deque()
        try:
            for task in remaining:
                pending.append(pool.submit(_call, task))
                if len(pending) >= 4 * num_workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except concurrent.futures.BrokenExecutor as error:
            raise _worker_died() from error


def _worker_died() -> OSError:
    return OSError(
        "A worker process died, perhaps for lack of memory. Try fewer --num_workers."
    )


def image_done() -> None:
    """Counts an image, and ends the task of a worker whose run has to stop.

    Raises:
        InterruptedError: If the run has to stop.
    """
    _on_image()


def _call(task: Any) -> Any:
    try:
        return _function(task)
    except OSError as error:
        errors.name_file(error)  # tracebacks stay in the worker
        raise


def _start(function: Callable[[Any], Any], num_done: Any, stop: Any) -> None:
    """Starts a worker: sets its function, its count of images, and its end.

    The worker ignores Ctrl-C, because its parent handles it.
    """
    global _function, _on_image

    own, last = 0, time.monotonic()

    def count() -> None:
        # Shared state costs more time than a small image, so that it is used rarely.
        nonlocal own, last
        own += 1
        if time.monotonic() - last < _POLL_SECONDS:
            return
        if stop.is_set():
            raise InterruptedError("The run was stopped.")
        with num_done.get_lock():
            num_done.value += own
        own, last = 0, time.monotonic()

    _function, _on_image = function, count
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    import multiprocessing

    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
