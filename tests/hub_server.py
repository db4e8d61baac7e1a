"""A local stand-in for the hub's HTTP API, as far as huggingface_hub's upload of a folder asks for it."""

import base64
import json
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.local_server import LocalServer, QuietHandler


class HubServer(LocalServer):
    """Context manager. files: by (revision, path), what was committed; asked: every (method, path), in order.

    repos: by name, (type, visibility) as it was made. token: the only one that it takes.
    """

    def __init__(self, token: str = "hf_right"):
        self.token = token
        self.asked: list[tuple[str, str]] = []
        self.repos: dict[str, tuple[str, str | None]] = {}
        self.files: dict[tuple[str, str], bytes] = {}
        self._stored: dict[str, bytes] = {}
        super().__init__()

    def _answer(self, path: str, body: bytes) -> Any:
        """What a POST is answered with."""
        if path == "/api/repos/create":
            asked = json.loads(body)
            repo = "/".join(filter(None, [asked.get("organization"), asked["name"]]))
            visibility = {True: "private", False: "public", None: None}[asked.get("private")]
            self.repos[repo] = asked.get("type", "model"), asked.get("visibility", visibility)  # by the client's age
            return {"url": f"{self.address}/{repo}", "name": repo, "id": repo}
        if path == "/api/validate-yaml":
            return {"errors": [], "warnings": []}
        if path.endswith("/info/lfs/objects/batch"):
            objects = json.loads(body)["objects"]
            uploads = [{**one, "actions": {"upload": {"href": f"{self.address}/lfs/{one['oid']}"}}} for one in objects]
            return {"transfer": "basic", "objects": uploads}
        _, _, _, user, repo, verb, revision = path.split("/", 6)
        assert f"{user}/{repo}" in self.repos
        if verb == "preupload":
            names = [file["path"] for file in json.loads(body)["files"]]
            modes = {name: "lfs" if name.endswith(".safetensors") else "regular" for name in names}
            return {"files": [{"path": name, "uploadMode": modes[name], "shouldIgnore": False} for name in names]}
        if verb == "commit":
            for line in map(json.loads, body.splitlines()):
                value = line["value"]
                if line["key"] == "file":
                    self.files[revision, value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    self.files[revision, value["path"]] = self._stored[value["oid"]]
            return {"commitUrl": f"{self.address}/{user}/{repo}/commit/{'0' * 40}", "commitOid": "0" * 40}
        assert verb == "branch"
        return {}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(QuietHandler):
            def do_POST(self) -> None:
                path, body = self.path.partition("?")[0], self._body()
                hub.asked.append(("POST", path))
                if self.headers.get("authorization") != f"Bearer {hub.token}":
                    self._send(401, {"error": "Invalid username or password."})
                    return
                self._send(200, hub._answer(path, body))

            def do_PUT(self) -> None:
                hub.asked.append(("PUT", self.path))
                hub._stored[self.path.rpartition("/")[2]] = self._body()
                self._send(200, {})

            def _body(self) -> bytes:
                if self.headers.get("transfer-encoding") != "chunked":
                    return self.rfile.read(int(self.headers.get("content-length") or 0))
                parts = []
                while size := int(self.rfile.readline(), 16):
                    parts.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(parts)

            def _send(self, status: int, answer: Any) -> None:
                payload = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

        return Handler
