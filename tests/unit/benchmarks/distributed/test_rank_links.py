"""benchmarks.distributed.rank_links: messages between two ends of a socket."""

from benchmarks.distributed import rank_links


def test_messages_come_through_whole() -> None:
    one, other = rank_links.socket.socketpair()
    links = rank_links.Links({3: other})

    one.sendall(b'{"a": 1}\n{"b"')
    first = links.receive(0)
    one.sendall(b": 2}\n")

    assert first == [(3, [{"a": 1}])]
    assert links.receive(0) == [(3, [{"b": 2}])]
    assert links.receive(0) == []
    one.close()
    assert links.receive(0) == [(3, None)]
    assert links.receive(0) == []
    assert not links.unreachable
