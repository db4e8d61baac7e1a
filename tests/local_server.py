"""What the stand-ins for endpoints and hubs share: a server on a free local port that lives as long as a block."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class LocalServer:
    """Context manager. address: as http://127.0.0.1:PORT."""

    def __init__(self, server: type[ThreadingHTTPServer] = ThreadingHTTPServer) -> None:
        self._server = server(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        raise NotImplementedError


class QuietHandler(BaseHTTPRequestHandler):
    """HTTP/1.1 without a line a request."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass
