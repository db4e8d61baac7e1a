"""A local server that speaks as much of the hub as `datasets.load_dataset` asks for: data sets of JSONL files."""

import json
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.local_server import LocalServer, QuietHandler

COMMIT = "a" * 40
Rows = list[dict[str, Any]]


class HubStandIn(LocalServer):
    """Context manager. data_sets: by name, rows by split. class_labels: by name, the names of its column `label`."""

    def __init__(self, data_sets: dict[str, dict[str, Rows]], class_labels: dict[str, list[str]] | None = None):
        self.files: dict[str, dict[str, bytes]] = {}
        for name, splits in data_sets.items():
            own = {f"{split}.jsonl": "".join(json.dumps(row) + "\n" for row in rows) for split, rows in splits.items()}
            card: dict[str, Any] = {
                "configs": [
                    {
                        "config_name": "default",
                        "data_files": [{"split": split, "path": f"{split}.jsonl"} for split in splits],
                    }
                ]
            }
            if labels := (class_labels or {}).get(name):
                names = {"class_label": {"names": {str(number): label for number, label in enumerate(labels)}}}
                columns = next(iter(splits.values()))[0]
                features = [{"name": c, "dtype": names if c == "label" else "string"} for c in columns]
                card["dataset_info"] = {"features": features}
            own["README.md"] = f"---\n{json.dumps(card)}\n---\n"  # JSON is YAML
            self.files[name] = {file: text.encode() for file, text in own.items()}
        self.revisions: set[str] = set()
        super().__init__()

    def _reply(self, path: str) -> tuple[int, bytes, dict[str, str]]:
        parts = path.partition("?")[0].removeprefix("/api").strip("/").split("/")
        files = self.files.get("/".join(parts[1:3])) if parts[0] == "datasets" else None
        if files is None:
            return 404, b'{"error": "Repository not found"}', {"X-Error-Code": "RepoNotFound"}
        action, rest = (*parts[3:4], "")[0], parts[4:]
        if action == "resolve":
            self.revisions.add(rest[0])
            if (file := "/".join(rest[1:])) in files:
                return 200, files[file], {"ETag": f'"{file}-{len(files[file])}"', "X-Repo-Commit": COMMIT}
            return 404, b'{"error": "Entry not found"}', {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}
        if action == "tree":
            tree = [{"type": "file", "path": f, "size": len(c), "oid": "b" * 40} for f, c in files.items()]
            return 200, json.dumps(tree).encode(), {}
        facts = {"id": "/".join(parts[1:3]), "sha": COMMIT, "siblings": [{"rfilename": file} for file in files]}
        facts |= {"private": False, "gated": False, "disabled": False, "downloads": 0, "likes": 0, "tags": []}
        return 200, json.dumps(facts).encode(), {}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(QuietHandler):
            def do_GET(self) -> None:
                status, body, headers = hub._reply(self.path)
                self.send_response(status)
                for name, value in (headers | {"Content-Length": str(len(body))}).items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            do_HEAD = do_GET

        return Handler
