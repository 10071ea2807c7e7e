"""A proxy in front of a server that fails as a test wants, and counts what it serves.

In: the URL of an HTTP server, and faults. Out: the server's answers, truncated,
altered, delayed, stalled, reset or refused; and each request with the bytes that were
sent for it. The proxy is in threads of the test's process; other processes connect.
"""

import contextlib
import dataclasses
import fnmatch
import http.client
import http.server
import socket
import struct
import threading
import urllib.parse
from typing import Any, Literal

_PIECE = 1 << 16
_OWN = {"connection", "transfer-encoding", "keep-alive", "content-length"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault of some answers.

    Attributes:
        kind: `truncate` ends the connection after `after` bytes of the body; `alter`
            flips all bits of the byte at `after`; `delay` waits `seconds` before the
            answer; `stall` sends `after` bytes and then nothing; `trickle` sends 1 KiB
            each `seconds`; `reset` resets the connection; `status` answers with
            `status`, such as 503; `redirect` answers with `status` and `location`.
        names: Pattern of the names of the objects, without the bucket.
        methods: Methods of the requests.
        times: Number of requests that it hits; None is all of them.
        code: Code of the error in the body of an answer with `status`, as S3 has it.
    """

    kind: Literal[
        "truncate", "alter", "delay", "stall", "trickle", "reset", "status", "redirect"
    ]
    names: str = "*"
    methods: tuple[str, ...] = ("GET",)
    times: int | None = None
    after: int = 0
    seconds: float = 0.0
    status: int = 503
    code: str = ""
    location: str = ""


@dataclasses.dataclass(kw_only=True)
class Request:
    """A request and the bytes of the body that were sent for it until now.

    Attributes:
        name: Name of the object without the bucket; "" for a listing.
        byte_range: First byte and the byte after the last; None for a whole object.
    """

    method: str
    name: str
    byte_range: tuple[int, int] | None
    num_bytes: int = 0
    status: int = 0


class BadProxy:
    """The proxy; use it in a `with` statement.

    Attributes:
        address: Its URL. SeaweedFS accepts what was signed for this address.
        faults: Faults from now on; the first one that fits a request hits it.
        requests: All requests. Each is in the list before the client has its answer.
    """

    def __init__(self, upstream: str) -> None:
        self._upstream = urllib.parse.urlsplit(upstream).netloc
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._hits: list[Fault] = []
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "BadProxy":
        threading.Thread(target=self._server.serve_forever, args=(0.05,)).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()

    def num_requests(self, names: str = "*", method: str = "GET") -> int:
        """Returns the number of requests for objects with such names."""
        return len(self._found(names, method))

    def num_bytes(self, names: str = "*", method: str = "GET") -> int:
        """Returns the bytes that were sent of objects with such names."""
        return sum(request.num_bytes for request in self._found(names, method))

    def _found(self, names: str, method: str) -> list[Request]:
        return [
            request
            for request in list(self.requests)
            if request.method == method and fnmatch.fnmatch(request.name, names)
        ]

    def _fault(self, method: str, name: str) -> Fault | None:
        with self._lock:
            for fault in self.faults:
                hits = sum(hit is fault for hit in self._hits)
                fits = method in fault.methods and fnmatch.fnmatch(name, fault.names)
                if fits and (fault.times is None or hits < fault.times):
                    self._hits.append(fault)
                    return fault
        return None


class _Handler(http.server.BaseHTTPRequestHandler):
    """One connection of a client."""

    proxy: BadProxy
    protocol_version = "HTTP/1.1"

    def handle_one_request(self) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            super().handle_one_request()
            return
        self.close_connection = True

    def answer(self) -> None:
        name = _object_name(self.path)
        byte_range = _byte_range(self.headers.get("Range"))
        request = Request(method=self.command, name=name, byte_range=byte_range)
        self.proxy.requests.append(request)
        fault = self.proxy._fault(self.command, name)
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if fault and fault.kind == "delay":
            self.proxy._ended.wait(fault.seconds)
        if fault and fault.kind == "status":
            request.status = fault.status
            body = f"<Error><Code>{fault.code}</Code></Error>" if fault.code else ""
            self._head(fault.status, [("Content-Length", len(body))])
            self.wfile.write(b"" if self.command == "HEAD" else body.encode())
        elif fault and fault.kind == "redirect":
            request.status = fault.status
            to = ("Location", fault.location + self.path)
            self._head(fault.status, [to, ("Content-Length", 0)])
        elif fault and fault.kind == "reset":
            self._reset()
        else:
            with contextlib.closing(self._ask(content)) as upstream:
                self._pass_on(upstream, fault, request)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer  # noqa: N815

    def _ask(self, content: bytes) -> http.client.HTTPResponse:
        upstream = http.client.HTTPConnection(self.proxy._upstream, timeout=60)
        upstream.putrequest(
            self.command, self.path, skip_host=True, skip_accept_encoding=True
        )
        for name, value in self.headers.items():
            if name.lower() not in ("connection", "expect"):
                upstream.putheader(name, value)
        upstream.putheader("Connection", "close")
        upstream.endheaders(content or None)
        return upstream.getresponse()

    def _pass_on(
        self,
        upstream: http.client.HTTPResponse,
        fault: Fault | None,
        request: Request,
    ) -> None:
        kept = [(n, v) for n, v in upstream.getheaders() if n.lower() not in _OWN]
        length = upstream.getheader("Content-Length")
        # An answer in chunks is a listing, which fits the memory.
        content = upstream.read() if length is None else b""
        request.status = upstream.status
        self._head(upstream.status, [*kept, ("Content-Length", length or len(content))])
        if self.command == "HEAD":
            return
        place = 0
        is_slow = fault is not None and fault.kind == "trickle"
        while piece := content or upstream.read(1024 if is_slow else _PIECE):
            content = b""
            if fault and is_slow and self.proxy._ended.wait(fault.seconds):
                return
            piece, is_cut = _spoiled(piece, fault, place)
            request.num_bytes += len(piece)
            self.wfile.write(piece)
            place += len(piece)
            if is_cut:
                if fault and fault.kind == "stall":
                    self.proxy._ended.wait()
                self.close_connection = True
                return

    def _head(self, status: int, headers: list[tuple[str, Any]]) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, str(value))
        self.end_headers()

    def _reset(self) -> None:
        """Ends the connection with a reset, as a server that dies does."""
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.wfile.flush()
        self.close_connection = True
        self.connection.close()

    def log_message(self, *arguments: object) -> None:
        pass


def _spoiled(piece: bytes, fault: Fault | None, place: int) -> tuple[bytes, bool]:
    """Returns a piece of a body with its fault, and whether the body is cut there."""
    after = fault.after - place if fault else -1
    if fault is None or not 0 <= after < len(piece):
        return piece, False
    if fault.kind == "alter":
        return piece[:after] + bytes([piece[after] ^ 0xFF]) + piece[after + 1 :], False
    is_cut = fault.kind in ("truncate", "stall")
    return (piece[:after] if is_cut else piece), is_cut


def _object_name(path: str) -> str:
    """Returns the name of an object in the path of a request, without its bucket."""
    plain = urllib.parse.unquote(urllib.parse.urlsplit(path).path)
    return plain.lstrip("/").partition("/")[2]


def _byte_range(header: str | None) -> tuple[int, int] | None:
    if header is None:
        return None
    first, _, last = header.removeprefix("bytes=").partition("-")
    return int(first), int(last) + 1
