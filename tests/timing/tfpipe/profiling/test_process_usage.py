"""tfpipe.profiling.process_usage by real clocks."""

import threading
import time

from tfpipe.profiling.process_usage import ProcessMeter


def test_threads_that_are_never_idle_are_known_and_not_waited_for():
    end = threading.Event()

    def poll():
        while not end.wait(0.001):
            sum(range(10_000))

    meter = ProcessMeter()
    thread = threading.Thread(target=poll)
    thread.start()
    try:
        found = meter.busy_threads()
        start = time.perf_counter()
        since = meter.wait_until_idle(ignored=found)
    finally:
        end.set()
        thread.join()

    assert str(thread.native_id) in found
    assert str(threading.get_native_id()) not in found
    assert since - start < 5  # of 10 that it waits at most
