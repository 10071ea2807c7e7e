"""converters.engines.ray_cluster: what is refused before a cluster is asked."""

import contextlib
import importlib.util
import socket
from typing import Any

import pytest

from converters.engines import ray_cluster
from converters.options import shared


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(ValueError, match=r"pip install 'tfpipe\[ray\]'"):
        shared.WritingOptions(output_dir="out", engine="ray")
    shared.WritingOptions(output_dir="out", engine="processes")


def test_an_address_needs_the_engine() -> None:
    with pytest.raises(ValueError, match="--ray_address needs --engine=ray"):
        shared.WritingOptions(output_dir="out", ray_address="h:1")


@pytest.mark.parametrize(
    "address", ["host", ":6379", "host:", "host:port", "host:0", "host:65536", "s3://b"]
)
def test_what_is_not_an_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match=f"HOST:PORT.*got {address}"):
        ray_cluster.require_reachable(address)


@pytest.mark.parametrize(
    ("address", "asked"),
    [
        ("head:6379", ("head", 6379)),
        ("ray://head:10001", ("head", 10001)),
        ("[::1]:6379", ("::1", 6379)),
    ],
)
def test_a_cluster_that_does_not_answer_is_named_in_time(
    address: str, asked: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def refuse(place: tuple[str, int], timeout: float) -> Any:
        calls.append((place, timeout))
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", refuse)

    with pytest.raises(ConnectionError) as caught:
        ray_cluster.require_reachable(address)
    assert calls == [(asked, ray_cluster.REACH_SECONDS)]
    assert f"No Ray cluster answers at {address} within 10 s: timed out" in str(
        caught.value
    )


class _Server(contextlib.closing[Any]):
    """A connection to a server that answers with some bytes."""

    def __init__(self, answer: bytes) -> None:
        super().__init__(self)
        self.answer, self.sent = answer, b""

    def settimeout(self, seconds: float) -> None:
        assert seconds == ray_cluster.REACH_SECONDS

    def sendall(self, data: bytes) -> None:
        self.sent += data

    def recv(self, num_bytes: int) -> bytes:
        return self.answer[:num_bytes]

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("answer", "is_cluster"),
    [
        (b"\0\0\x12\x04\0\0\0\0\0\0\x03", True),
        (b"HTTP/1.0 400 Bad Request", False),
        (b"", False),
    ],
)
def test_another_server_is_no_cluster(
    answer: bytes, is_cluster: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_USE_TLS", raising=False)
    server = _Server(answer)
    monkeypatch.setattr(socket, "create_connection", lambda *_: server)

    if is_cluster:
        ray_cluster.require_reachable("head:6379")
    else:
        with pytest.raises(ConnectionError, match="another server answered"):
            ray_cluster.require_reachable("head:6379")
    assert server.sent.startswith(b"PRI * HTTP/2.0")


@pytest.mark.parametrize("num_workers", [0, -1])
def test_a_cluster_needs_a_worker(num_workers: int) -> None:
    with pytest.raises(ValueError, match="num_workers must be >= 1"):
        ray_cluster.Cluster(num_workers=num_workers)
