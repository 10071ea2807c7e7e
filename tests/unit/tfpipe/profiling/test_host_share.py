"""tfpipe.profiling.host_share: what others took, on a simulated host."""

import math

import pytest

from tests.support.faults.clock import SimulatedHost
from tfpipe.profiling import host_share
from tfpipe.profiling.host_share import HostShare, HostWatch
from tfpipe.profiling.process_usage import ProcessMeter


@pytest.mark.parametrize(
    ("own", "others", "stolen", "taken", "said"),
    [
        (20.0, 0.0, 0.0, 0.0, ""),
        (0.0, 1.0, 0.0, 0.05, ""),
        (10.0, 8.0, 0.0, 0.4, "other processes took 0.8 of 2 cores. Rates"),
        (5.0, 0.0, 6.0, 0.3, "0.6 of 2 cores, 0.6 of them through the hypervisor"),
        (0.0, 90.0, 0.0, 1.0, "other processes took 9.0 of 2 cores"),
    ],
)
def test_what_others_took_is_told(own, others, stolen, taken, said):
    host = SimulatedHost()
    watch = HostWatch(meter=host)
    host.now, host.own = host.now + 10, host.own + own
    host.others, host.stolen = others, stolen

    share = watch.share()

    assert share.taken == pytest.approx(taken)
    assert share.is_quiet is (said == "")
    assert said in share.sentence


@pytest.mark.parametrize(("others", "taken"), [(9.0, 0.0), (10.4, 0.04), (15.0, 0.5)])
def test_another_rank_may_have_its_own_cores(others, taken):
    host = SimulatedHost()
    watch = HostWatch(own_cores=1, meter=host)
    host.now, host.own, host.others = host.now + 10, host.own + 5, others

    assert watch.share().taken == pytest.approx(taken)
    assert watch.share().is_quiet is (taken < 0.1)


def test_the_wait_for_quiet_ends_with_quiet_or_with_the_time():
    class Noisy(SimulatedHost):
        until = 1003.0

        def sleep(self, seconds):
            super().sleep(seconds)
            self.others += 2 * seconds if self.now < self.until else 0.0

    host = Noisy()
    assert host_share.wait_until_quiet(10.0, meter=host)
    assert 1003 <= host.now < 1004

    host = Noisy()
    assert not host_share.wait_until_quiet(1.0, meter=host)
    assert host.now <= 1001
    assert not host_share.wait_until_quiet(-1.0, meter=host)


def test_no_time_is_no_share():
    share = HostShare(
        seconds=0.0,
        num_cores=2,
        own_cores=2,
        others_cpu_seconds=0.0,
        stolen_seconds=0.0,
    )

    assert share.is_quiet


def test_the_clock_of_others_runs_while_they_take_the_last_core():
    host = SimulatedHost()
    begun = host.others_seconds()
    host.now, host.own, host.others, host.stolen = host.now + 10, 7.0, 11.0, 2.0

    # 13 core-seconds of others and the hypervisor, beyond 10 seconds of one core.
    assert host.others_seconds() - begun == pytest.approx(3.0)


def test_this_host_is_read():
    share = HostWatch().share()

    assert share.num_cores >= 1
    assert share.seconds >= 0
    assert math.isfinite(ProcessMeter().others_seconds())
