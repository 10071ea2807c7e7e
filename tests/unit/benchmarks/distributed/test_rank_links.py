"""benchmarks.distributed.rank_links: messages between two ends of a socket."""

from benchmarks.distributed import rank_links


def test_messages_come_through_whole() -> None:
    one, other = rank_links.socket.socketpair()
    link = rank_links.Link(other, 0)

    one.sendall(b'{"a": 1}\n{"b"')
    first = link.receive()
    one.sendall(b": 2}\n")

    assert first == [{"a": 1}]
    assert link.receive() == [{"b": 2}]
    assert link.receive() == []
    one.close()
    assert link.receive() is None
