"""tfpipe.profiling.process_usage: what the process uses, in simulated time."""

import threading

import pytest
import tensorflow as tf

from tests.support.faults.clock import SimulatedMeter
from tfpipe.profiling.process_usage import ProcessMeter, Spent
from tfpipe.profiling.timed_reader import TimedReader


class Machine(SimulatedMeter):
    """Does what `happens` says, a function of the seconds since the begin."""

    def __init__(self, happens):
        super().__init__()
        self.used = {"1": 0.0, "2": 0.0}
        self.happens = happens
        self.start = self.now

    def work(self, seconds):
        super().work(seconds)
        self.happens(self, self.now - self.start, seconds)


def test_figures_are_multiplied_together():
    assert Spent(1.0, 2.0, 3.0, 4.0, 5.0).times(2) == Spent(2.0, 4.0, 6.0, 8.0, 10.0)


@pytest.mark.parametrize(
    ("spent", "wait"),
    [
        (Spent(cpu=1.0, wall=3.0), 2.0),
        (Spent(cpu=1.0, wall=3.0, delay=0.5), 1.5),
        (Spent(cpu=1.0, wall=3.0, delay=-9.0), 2.0),  # threads have ended
        (Spent(cpu=3.0, wall=1.0), 0.0),  # of several threads
        (Spent(cpu=1.0, wall=3.0, delay=0.5, others=1.8), 0.2),  # may be no wait
    ],
)
def test_wait_is_the_time_without_work_and_without_delay(spent, wait):
    assert spent.wait == pytest.approx(wait)


def test_what_work_spends_is_measured():
    def happens(machine, now, seconds):
        machine.used["1"] += 0.5 * seconds
        machine.num_bytes = (700, 200)

    machine = Machine(happens)

    spent = machine.spent_by(lambda: machine.work(2.0))

    assert spent == Spent(1.0, 2.0, 0.0, 700, 200)


def test_busy_threads_are_those_that_use_a_hundredth_of_a_core():
    def happens(machine, now, seconds):
        machine.used["1"] += 0.02 * seconds
        machine.used["2"] += 0.005 * seconds

    machine = Machine(happens)
    machine.used[str(threading.get_native_id())] = 0.0

    assert machine.busy_threads() == ["1"]


def compute(machine, now, seconds):
    if now < 0.5:
        machine.used["1"] += seconds


def starve(machine, now, seconds):
    """Another process has the cores: threads are ready, but get no CPU time."""
    machine.runnable = {"1"} if now < 0.5 else set()


def read(machine, now, seconds):
    if now < 0.5:
        machine.num_bytes = (machine.num_bytes[0] + 10_000, 0)


@pytest.mark.parametrize("happens", [compute, starve, read])
def test_a_process_is_idle_since_its_last_work(happens):
    machine = Machine(happens)

    since = machine.wait_until_idle(idle_seconds=0.1)

    assert since - machine.start == pytest.approx(0.5, abs=0.02)
    assert machine.now - since == pytest.approx(0.1, abs=0.02)


def test_threads_that_are_never_idle_are_not_waited_for():
    def poll(machine, now, seconds):
        machine.used["2"] += seconds
        machine.runnable = {"2"}

    machine = Machine(poll)

    assert machine.wait_until_idle(ignored=["2"]) == machine.start
    assert machine.now - machine.start < 0.1


def test_looking_at_the_threads_is_no_work_of_the_process():
    class Watched(Machine):
        def is_runnable(self, thread):
            self.num_bytes = (self.num_bytes[0] + 10_000, 0)
            return False

    machine = Watched(lambda *_: None)

    assert machine.wait_until_idle() == machine.start


def test_a_process_that_is_never_idle_is_waited_for_10_seconds():
    def work(machine, now, seconds):
        machine.used["1"] += seconds

    machine = Machine(work)

    machine.wait_until_idle()

    assert machine.now - machine.start == pytest.approx(10, abs=0.1)


def test_figures_of_this_process_are_read():
    meter = ProcessMeter()
    own = str(threading.get_native_id())
    before = meter.clock(), meter.cpu(), meter.own_cpu()

    sum(range(100_000))

    assert own in meter.threads()
    assert meter.is_runnable(own)
    assert not meter.is_runnable("0")
    assert meter.thread_cpu("0") == 0.0
    assert meter.delay() >= 0.0
    assert meter.clock() > before[0]
    assert meter.cpu() > before[1]
    assert meter.own_cpu() > before[2]


def test_a_thread_that_waits_is_not_runnable():
    end, begun = threading.Event(), threading.Event()

    def wait():
        begun.set()
        end.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        begun.wait()
        meter = ProcessMeter()
        thread_id = str(thread.native_id)
        # The thread may need a while to begin to wait on a busy host.
        is_waiting = any(not meter.is_runnable(thread_id) for _ in range(100_000))
    finally:
        end.set()
        thread.join()

    assert is_waiting


def test_bytes_of_a_file_are_counted(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100_000)

    spent = ProcessMeter().spent_by(path.read_bytes)

    assert spent.bytes_read >= 100_000


@pytest.mark.parametrize(("others", "counted"), [(0.02, 0.0), (0.5, 0.5)])
def test_what_others_have_counts_where_it_is_much(others, counted):
    class Shared(Machine):
        taken = 7.0

        def others_seconds(self):
            return self.taken

    def happens(machine, now, seconds):
        machine.taken += others * seconds

    machine = Shared(happens)

    assert machine.spent_by(lambda: machine.work(1.0)).others == pytest.approx(counted)


def test_a_measurement_ends_with_its_time():
    meter = ProcessMeter(end=ProcessMeter().clock() - 1)

    with pytest.raises(TimeoutError, match="did not end within its time_limit"):
        meter.check_time()
    with pytest.raises(TimeoutError):
        TimedReader(tf.data.Dataset.range(9), 2, meter=meter).pull()
    ProcessMeter().check_time()
