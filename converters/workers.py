"""Worker processes: run tasks side by side, show progress, and stop together.

In: a function and its tasks. Out: the results in the order of the tasks, or the first
exception, after every worker has stopped. A worker ends when its parent does, however
the parent ends, so that nothing writes on behind a killed command.
"""

import concurrent.futures
import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

import tqdm

Task = TypeVar("Task")
Result = TypeVar("Result")

_POLL_SECONDS = 0.1


def _nothing() -> None:
    pass


def _ignore(result: object) -> None:
    pass


# What `image_done` calls; set by `run` in this process, by `_start` in a worker.
_on_image: Callable[[], object] = _nothing


def num_available() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def run(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    num_workers: int,
    num_images: int,
    on_result: Callable[[Result], object] = _ignore,
) -> list[Result]:
    """Calls `function` on every task, in up to `num_workers` processes.

    Args:
        function: Picklable; calls `image_done` after each image.
        tasks: What it is called with.
        num_workers: Processes, >= 1; one is this process.
        num_images: Images in all tasks, for the progress bar on stderr.
        on_result: Called in this process with each result as it comes; what it raises
            ends the run.

    Raises:
        OSError: If a worker process dies.
        Exception: The first that `function` or `on_result` raises.
    """
    # disable=None shows the bar only where stderr is a terminal.
    with tqdm.tqdm(
        total=num_images, unit="image", file=sys.stderr, disable=None
    ) as bar:
        if num_workers == 1:
            return _run_here(function, tasks, on_result, bar)
        num_workers = min(num_workers, len(tasks))
        return _run_in_workers(function, tasks, on_result, num_workers, bar)


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


def _run_in_workers(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    on_result: Callable[[Result], object],
    num_workers: int,
    bar: "tqdm.tqdm[Any]",
) -> list[Result]:
    # A forked child would inherit locks that threads of the parent hold.
    context = multiprocessing.get_context("spawn")
    num_done, stop = context.Value("q", 0), context.Event()
    with concurrent.futures.ProcessPoolExecutor(
        num_workers, mp_context=context, initializer=_start, initargs=(num_done, stop)
    ) as pool:
        futures = [pool.submit(function, task) for task in tasks]
        try:
            _wait(futures, on_result, lambda: bar.update(num_done.value - bar.n))
        except BaseException as error:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            if isinstance(error, BrokenProcessPool):
                raise OSError(
                    "A worker process died, perhaps for lack of memory. "
                    "Try fewer --num_workers."
                ) from error
            raise
        bar.update((bar.total or 0) - bar.n)  # what the workers had not told yet
        return [future.result() for future in futures]


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


def image_done() -> None:
    """Counts an image; in a worker whose run is to stop, ends the task.

    Raises:
        InterruptedError: If the run is to stop.
    """
    _on_image()


def _start(num_done: Any, stop: Any) -> None:
    """Worker start-up: the shared count, Ctrl-C left to the parent, and its end."""
    global _on_image

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

    _on_image = count
    signal.signal(signal.SIGINT, signal.SIG_IGN)
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
