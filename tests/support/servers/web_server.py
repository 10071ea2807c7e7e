"""A plain web server for a folder, which sends ranges of bytes, or none.

In: a folder. Out: its URL while the server runs, in threads of this process.
"""

import contextlib
import http.server
import pathlib
import re
import ssl
import subprocess
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
def serve(
    folder: pathlib.Path,
    *,
    has_ranges: bool = True,
    certificates: pathlib.Path | None = None,
) -> Iterator[str]:
    """Serves the files of a folder and yields the URL of the folder.

    Args:
        folder: The folder.
        has_ranges: Whether the server sends ranges of bytes.
        certificates: Folder of `certificates`, for https; None is http.
    """
    own = {"folder": folder, "has_ranges": has_ranges}
    handler = type("Handler", (_Handler,), own)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        if certificates is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(
                *(certificates / f"server.{e}" for e in ("crt", "key"))
            )
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            scheme = "http" if certificates is None else "https"
            yield f"{scheme}://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def certificates(folder: pathlib.Path) -> pathlib.Path:
    """Makes an authority, and a certificate of 127.0.0.1 that it has signed.

    Returns:
        A folder with ca.crt, server.crt and server.key.
    """
    made = folder / "certificates"
    made.mkdir()
    (made / "of_server").write_text("subjectAltName=IP:127.0.0.1\n")
    key = "-newkey rsa:2048 -nodes -keyout {0}.key"
    for command in (
        f"req -x509 {key} -out ca.crt -days 30 -subj /CN=authority "
        "-addext basicConstraints=critical,CA:TRUE",
        f"req {key} -out server.csr -subj /CN=127.0.0.1",
        "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial "
        "-out server.crt -days 30 -extfile of_server",
    ):
        name = "ca" if "-x509" in command else "server"
        arguments = command.format(name).split()
        subprocess.run(
            ["openssl", *arguments], cwd=made, check=True, capture_output=True
        )
    return made
