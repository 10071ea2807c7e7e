"""Addresses of workers, and how an epoch that waits for a lost one ends."""

import pytest
from hypothesis import given, settings, strategies as st

from tfpipe.service.workers import LostWorkers, parse_workers


def _field(number: int, value: bytes) -> bytes:
    size, head = len(value), b""
    while size >= 128:
        head, size = head + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + head + bytes([size]) + value


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text("a:9/\nö猫", max_size=150), max_size=4))
def test_addresses_are_field_1_of_field_1(addresses: list[str]) -> None:
    """Other fields, such as a whole number of a later version, are passed over."""
    workers = [_field(1, each.encode()) + b"\x18\x96\x01" for each in addresses]
    message = b"".join(_field(1, worker) for worker in workers)

    assert parse_workers(message + _field(2, b"later")) == addresses


class Servers:
    """Stands for the servers of a service; a probe is done at once."""

    def __init__(self, *, alive: str, dispatcher: bool = True) -> None:
        self.now, self.alive, self.dispatcher = 0.0, set(alive), dispatcher
        self.known = ["a", "b"]
        self.lost = LostWorkers(
            address="d:1",
            limit=60.0,
            workers=self.workers,
            is_answering=lambda name: name in self.alive,
            clock=lambda: self.now,
            start=lambda work: work(),
        )

    def workers(self, address: str) -> list[str]:
        assert address == "d:1"
        if not self.dispatcher:
            raise ConnectionError
        return self.known

    def error_after(self, seconds: float) -> str:
        """Returns the error of waiting, with a check each second; else nothing."""
        for _ in range(round(seconds)):
            self.now += 1.0
            try:
                self.lost.check()
            except RuntimeError as error:
                return str(error)
        return ""


@pytest.mark.parametrize(
    ("alive", "dispatcher", "names"),
    [
        ("a", True, "came from the worker at b. Start"),
        ("", True, "came from the worker at a, the worker at b. Start"),
        ("ab", False, "came from the dispatcher at d:1. Start"),
    ],
)
def test_a_server_without_answer_ends_the_wait(
    alive: str, dispatcher: bool, names: str
) -> None:
    servers = Servers(alive=alive, dispatcher=dispatcher)

    assert servers.error_after(59) == ""
    error = servers.error_after(17)
    assert names in error
    assert "The tf.data service at d:1 has given no element for 6" in error


def test_a_service_that_never_had_a_worker_is_an_error() -> None:
    servers = Servers(alive="")
    servers.known = []

    assert "no answer came from any worker." in servers.error_after(76)


def test_who_answers_or_delivers_in_time_is_waited_for() -> None:
    slow = Servers(alive="ab")
    assert slow.error_after(1000) == "", "all answer, and the pipeline is slow"
    replaced = Servers(alive="a")
    assert replaced.error_after(50) == ""
    replaced.alive.add("b")
    assert replaced.error_after(1000) == ""
    replaced.alive.remove("b")
    assert replaced.error_after(59) == "", "it answered a moment ago"
    replaced.lost.arrived()
    assert replaced.error_after(59) == "", "the others deliver"
    assert "the worker at b" in replaced.error_after(17)


def test_all_servers_must_answer_at_the_end_of_an_epoch() -> None:
    cases = [("ab", True, True), ("a", True, False), ("ab", False, False)]

    for alive, dispatcher, expected in cases:
        servers = Servers(alive=alive, dispatcher=dispatcher)
        assert servers.lost.all_answer() == expected, (alive, dispatcher)


def test_an_answer_of_before_an_element_does_not_count() -> None:
    servers = Servers(alive="a")
    late = []
    servers.lost.start = late.append
    servers.error_after(20)
    servers.lost.arrived()

    late[0]()

    assert servers.error_after(59) == ""
