"""Workers of a service that do not answer are named, once."""

import pytest
from hypothesis import given, strategies as st

from benchmarks.distributed import service_workers
from benchmarks.distributed.service_workers import SilentWorkers

ADDRESS = "host:5051"


def test_a_silent_worker_is_named_once_and_again_when_it_is_back() -> None:
    alive, now = {"a:1", "b:2"}, [0.0]
    silent = SilentWorkers(10, alive.__contains__, lambda: now[0])

    def look(seconds: float) -> list[str]:
        now[0] += seconds
        return silent.look(["a:1", "b:2"])

    assert [look(5), look(60)] == [[], []]
    alive.remove("b:2")
    assert look(9) == []
    (sentence,) = look(1)
    assert sentence.startswith("The worker at b:2 has not answered for 10 seconds.")
    assert "--address=b:2" in sentence
    assert look(100) == []
    alive.add("b:2")
    assert look(1) == ["The worker at b:2 answers again."]
    assert look(9) == []


def test_a_worker_that_never_answered_is_named_after_the_limit() -> None:
    now = [0.0]
    silent = SilentWorkers(10, lambda _: False, lambda: now[0])

    assert silent.look([ADDRESS]) == []
    now[0] = 10.0
    assert len(silent.look([ADDRESS])) == 1


def _field(number: int, value: bytes) -> bytes:
    size, head = len(value), b""
    while size >= 128:
        head, size = head + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + head + bytes([size]) + value


@given(st.lists(st.text(max_size=300)))
def test_addresses_are_field_1_of_field_1(addresses: list[str]) -> None:
    """Other fields, such as a whole number of a later version, are passed over."""
    workers = [_field(1, each.encode()) + b"\x18\x96\x01" for each in addresses]
    message = b"".join(_field(1, worker) for worker in workers)

    assert service_workers.parse_workers(message + _field(2, b"later")) == addresses


def test_nobody_answers_at_a_port_that_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise ConnectionRefusedError

    monkeypatch.setattr(service_workers.socket, "create_connection", refuse)

    assert not service_workers.answers(ADDRESS)
