"""Worker processes: run tasks side by side, show progress, and stop together.

In: a function and its tasks. Out: the results in the order of the tasks, or the first
exception, after every worker has stopped. A worker ends when its parent does, however
the parent ends, so that nothing writes on behind a killed command.
"""

import collections
import concurrent.futures
import contextlib
import functools
import itertools
import multiprocessing
import os
import pathlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any, NamedTuple, TypeVar

import tqdm

Task = TypeVar("Task")
Result = TypeVar("Result")

_POLL_SECONDS = 0.1
# How long a worker may take to end its image when a run is to stop; then it is killed.
_GRACE_SECONDS = 5.0


class Span(NamedTuple):
    """When a task ran, and what it took.

    Attributes:
        start: Seconds on the clock that all processes of this machine share.
        end: Likewise.
        cpu_seconds: CPU time of its process, in user and system mode.
    """

    start: float
    end: float
    cpu_seconds: float


def _nothing() -> None:
    pass


def _ignore(result: object) -> None:
    pass


# What `image_done` calls; set by `run` in this process, by `_start` in a worker.
_on_image: Callable[[], object] = _nothing
# What a worker does with its tasks; it gets it once, not with each of them.
_function: Callable[[Any], Any] = _ignore


def run(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    num_workers: int,
    num_images: int,
    on_result: Callable[[Result], object] = _ignore,
    on_span: Callable[[Span], object] = _ignore,
) -> list[Result]:
    """Calls `function` on every task, in up to `num_workers` processes.

    Args:
        function: Picklable; calls `image_done` after each image.
        tasks: What it is called with.
        num_workers: Processes, >= 1; one is this process.
        num_images: Images in all tasks, for the progress bar on stderr.
        on_result: Called in this process with each result as it comes; what it raises
            ends the run.
        on_span: Called in this process with the span of each task that ends well.

    Raises:
        OSError: If a worker process dies.
        Exception: The first that `function` or `on_result` raises.
    """

    def on_end(ended: tuple[Result, Span]) -> None:
        result, span = ended
        on_span(span)
        on_result(result)

    timed = functools.partial(_timed, function)
    # The bar is fed all the time; a thread to watch it would rule out forks.
    tqdm.tqdm.monitor_interval = 0
    # disable=None shows the bar only where stderr is a terminal.
    with tqdm.tqdm(
        total=num_images, unit="image", file=sys.stderr, disable=None
    ) as bar:
        if num_workers == 1:
            ended = _run_here(timed, tasks, on_end, bar)
        else:
            num_workers = min(num_workers, len(tasks))
            ended = _run_in_workers(timed, tasks, on_end, num_workers, bar)
    return [result for result, _ in ended]


def _timed(function: Callable[[Task], Result], task: Task) -> tuple[Result, Span]:
    start, cpu_start = time.monotonic(), time.process_time()
    result = function(task)
    span = Span(start, time.monotonic(), time.process_time() - cpu_start)
    return result, span


def _run_here(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    on_result: Callable[[Result], object],
    bar: "tqdm.tqdm[Any]",
) -> list[Result]:
    global _on_image
    _on_image = bar.update
    results = []
    try:
        for task in tasks:
            results.append(function(task))
            on_result(results[-1])
    finally:
        _on_image = _nothing
    return results


def _make_pool(
    function: Callable[[Any], Any], num_workers: int
) -> tuple[concurrent.futures.ProcessPoolExecutor, Any, Any]:
    """Worker processes for `_call`, the count that they share, what stops them."""
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
    """Whether this process has one thread, those of native libraries counted.

    To fork takes a hundredth of the time of an interpreter with its imports. But a
    child would inherit the locks that other threads hold.
    """
    threads = pathlib.Path("/proc/self/task")  # of Linux; elsewhere it is not known
    return threads.is_dir() and len(os.listdir(threads)) == 1


def _run_in_workers(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    on_result: Callable[[Result], object],
    num_workers: int,
    bar: "tqdm.tqdm[Any]",
) -> list[Result]:
    pool, num_done, stop = _make_pool(function, num_workers)
    with pool, _ended(pool, stop):
        futures = [pool.submit(_call, task) for task in tasks]
        try:
            _wait(futures, on_result, lambda: bar.update(num_done.value - bar.n))
        except BrokenProcessPool as error:
            raise _worker_died() from error
        bar.update((bar.total or 0) - bar.n)  # what the workers had not told yet
        return [future.result() for future in futures]


@contextlib.contextmanager
def _ended(pool: concurrent.futures.ProcessPoolExecutor, stop: Any) -> Iterator[None]:
    """Ends the workers if the block is left by an exception, within a few seconds.

    A worker that was stopped by SIGSTOP, or hangs in a read, would never end by itself.
    """
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
    """Waits for all; raises what the first that fails raises."""
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
    """Calls `function` on tasks that are made as they are needed, as by reading a file.

    At most four tasks and results a worker are in memory at once. A single task, or
    all of them for one worker, run in this process.

    Args:
        function: Picklable.
        tasks: What it is called with.
        num_workers: Processes, >= 1.

    Yields:
        The results in the order of the tasks.

    Raises:
        OSError: If a worker process dies.
        Exception: The first that `function` or `tasks` raises.
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
        except BrokenProcessPool as error:
            raise _worker_died() from error


def _worker_died() -> OSError:
    return OSError(
        "A worker process died, perhaps for lack of memory. Try fewer --num_workers."
    )


def image_done() -> None:
    """Counts an image; in a worker whose run is to stop, ends the task.

    Raises:
        InterruptedError: If the run is to stop.
    """
    _on_image()


def _call(task: Any) -> Any:
    return _function(task)


def _start(function: Callable[[Any], Any], num_done: Any, stop: Any) -> None:
    """Worker start-up: what it does, the shared count, its end with its parent's.

    Ctrl-C is left to the parent.
    """
    global _function, _on_image

    own, last = 0, time.monotonic()

    def count() -> None:
        # The shared state costs more than a small image does: look at it now and then.
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
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextlib.contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """Lets SIGTERM clean up as Ctrl-C does: it raises KeyboardInterrupt."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signal handlers exist in the main thread only
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
