"""A real HTTP server that speaks the chat completions format and answers as badly as it is told to.

A behaviour is a function of the request's JSON body and of how many tries that query has had (1 = the first).
"""

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prewrite.engine.task_probe import PROBE_WORD
from tests.local_server import LocalServer, QuietHandler


@dataclass(frozen=True)
class Reply:
    """What goes over the wire. cut: send only that many bytes of the body, then close the connection.

    delay: seconds before the status line; pace: seconds before each byte of the body (a server that dribbles).
    """

    status: int = 200
    body: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    delay: float = 0.0
    pace: float = 0.0


Behaviour = Callable[[dict[str, Any], int], Reply]


def completion(content: str | None, **message_fields: Any) -> str:
    """The body of a good reply; keyword arguments replace fields of its one choice."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
    return json.dumps({"id": "x", "object": "chat.completion", "choices": [choice | message_fields], "usage": usage})


def query_of(body: dict[str, Any]) -> str:
    return body["messages"][-1]["content"]


def echo(body: dict[str, Any], tried: int) -> Reply:
    """Answers every query with itself."""
    return Reply(body=completion(query_of(body)))


def forced_texts(body: dict[str, Any]) -> dict[str, str]:
    """By dialect, the content that an endpoint which knows it is forced to: the first choice."""
    texts = {}
    if choices := body.get("structured_outputs"):
        texts["structured_outputs"] = choices["choice"][0]
    if regex := body.get("regex"):
        texts["regex"] = regex.strip("()").split("|")[0].replace("\\", "")
    if response_format := body.get("response_format"):
        ((name, rule),) = response_format["json_schema"]["schema"]["properties"].items()
        texts["json_schema"] = json.dumps({name: rule["enum"][0]})
    return texts


class _Server(ThreadingHTTPServer):
    request_queue_size = 256  # past the default 5 the kernel drops connections, and their clients wait

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a client that was killed
            super().handle_error(request, client_address)


class FaultServer(LocalServer):
    """Context manager; `bodies` holds every chat request in the order of arrival, `keys` their Authorization.

    dialects: in which it obeys the forced choice of a probe; all else is the behaviour's.
    """

    def __init__(
        self,
        behaviour: Behaviour = echo,
        served: tuple[str, ...] = ("task",),
        dialects: tuple[str, ...] = ("structured_outputs",),
    ):
        self.behaviour, self.served, self.dialects = behaviour, served, dialects
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.arrivals: list[float] = []
        self.most_at_once = 0
        self._at_once = 0
        self._tries: Counter[str] = Counter()
        self._lock = threading.Lock()
        super().__init__(_Server)
        self.base_url = f"{self.address}/v1"

    def _reply_to(self, body: dict[str, Any], key: str | None) -> Reply:
        with self._lock:
            self.bodies.append(body)
            self.keys.append(key)
            self.arrivals.append(time.monotonic())
            self._tries[query_of(body)] += 1
            tried = self._tries[query_of(body)]
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        for dialect, text in forced_texts(body).items():
            if dialect in self.dialects and PROBE_WORD in text:
                return Reply(body=completion(text))
        return self.behaviour(body, tried)

    def _left(self) -> None:
        with self._lock:
            self._at_once -= 1

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fault_server = self

        class Handler(QuietHandler):
            def do_GET(self) -> None:
                models = [{"id": name, "object": "model"} for name in fault_server.served]
                self._send(Reply(body=json.dumps({"object": "list", "data": models})))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                try:
                    reply = fault_server._reply_to(body, self.headers.get("authorization"))
                    time.sleep(reply.delay)
                finally:
                    fault_server._left()
                self._send(reply)

            def _send(self, reply: Reply) -> None:
                payload = reply.body.encode()
                try:
                    self.send_response(reply.status)
                    for name, value in {"content-type": "application/json", **reply.headers}.items():
                        self.send_header(name, value)
                    self.send_header("content-length", str(len(payload)))
                    self.end_headers()
                    for byte in payload[: reply.cut] if reply.pace else ():
                        self.wfile.write(bytes([byte]))
                        time.sleep(reply.pace)
                    if not reply.pace:
                        self.wfile.write(payload[: reply.cut])
                    self.close_connection = reply.cut is not None or self.close_connection
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True  # the client gave up

        return Handler
