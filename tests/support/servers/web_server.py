"""A plain web server for a folder, which sends ranges of bytes, or none.

In: a folder. Out: its URL while the server runs, in threads of this process.
"""

import contextlib
import http.server
import pathlib
import re
import threading
from collections.abc import Iterator
from typing import Any


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder: pathlib.Path
    has_ranges: bool

    def do_GET(self) -> None:
        path = self.folder / self.path.lstrip("/")
        content = path.read_bytes() if path.is_file() else None
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        status, extra = (200, {}) if content is not None else (404, {})
        if content is not None and wanted and self.has_ranges:
            start, last = int(wanted[1]), min(int(wanted[2]), len(content) - 1)
            extra = {"Content-Range": f"bytes {start}-{last}/{len(content)}"}
            status, content = 206, content[start : last + 1]
        self._send(status, content or b"", extra)

    do_HEAD = do_GET  # noqa: N815

    def _send(self, status: int, content: bytes, extra: dict[str, Any]) -> None:
        self.send_response(status)
        dated = {"Last-Modified": self.date_time_string(0)}
        for name, value in ({"Content-Length": len(content)} | dated | extra).items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        pass


@contextlib.contextmanager
def serve(folder: pathlib.Path, *, has_ranges: bool = True) -> Iterator[str]:
    """Serves the files of a folder and yields the URL of the folder."""
    own = {"folder": folder, "has_ranges": has_ranges}
    handler = type("Handler", (_Handler,), own)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
