"""A server with the part of the Hugging Face hub's interface that a download uses, for one model."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class HubServer:
    """Serves a folder as the model ORG/MODEL; a context.

    Args:
        folder: with the model's files.
        model: its name.

    Attributes:
        requests: "METHOD path" of each request, in order.
    """

    def __init__(self, folder: Path, model: str) -> None:
        self.requests: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(True)

            def do_HEAD(self) -> None:
                self._answer(False)

            def log_message(self, *arguments: object) -> None:
                pass

            def _answer(self, with_body: bool) -> None:
                path = urlsplit(self.path).path
                server.requests.append(f"{self.command} {path}")
                found = server.content(path)
                headers = {"X-Repo-Commit": COMMIT}
                if found is None:
                    headers["X-Error-Code"] = "EntryNotFound" if model in path else "RepoNotFound"
                else:
                    headers["ETag"] = f'"{hashlib.sha256(found).hexdigest()}"'
                body = found or b""
                self.send_response(200 if found is not None else 404)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if with_body:
                    self.wfile.write(body)

        self._folder, self._model = folder, model
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def content(self, path: str) -> bytes | None:
        """What is at a path; None where there is nothing."""
        files = sorted(one.relative_to(self._folder) for one in self._folder.rglob("*") if one.is_file())
        api = f"/api/models/{self._model}"
        if path == api or path.startswith(f"{api}/revision/"):
            siblings = [{"rfilename": str(name)} for name in files]
            return json.dumps({"id": self._model, "sha": COMMIT, "siblings": siblings}).encode()
        if path.startswith(f"{api}/tree/"):
            entries = [self._entry(name) for name in files]
            return json.dumps(entries).encode()
        for name in files:
            if path.startswith(f"/{self._model}/resolve/") and path.endswith(f"/{name}"):
                return (self._folder / name).read_bytes()
        return None

    def _entry(self, name: Path) -> dict[str, object]:
        content = (self._folder / name).read_bytes()
        digest = hashlib.sha1(content, usedforsecurity=False).hexdigest()
        return {"type": "file", "path": str(name), "size": len(content), "oid": digest}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *arguments: object) -> None:
        self._server.shutdown()
        self._server.server_close()
