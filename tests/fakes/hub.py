"""A hub on this machine that speaks the protocol of `huggingface_hub`, and errs where a test wants.

    with FakeHub() as hub:
        hub.add("acme/tiny", {"config.json": b"{}"})
        hub.fault("openvino_model.bin", Fault(cut_after=1000))

Large files are redirected to another host name, as the public hub does. Every request is kept in
`requests`, so that a test sees which bytes were fetched again.
"""

import hashlib
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import parse_qs, unquote, urlsplit

# From this size on a file is large (LFS), and listed with its SHA-256.
LARGE_BYTES: Final = 50_000
_RANGE: Final = re.compile(r"bytes=(\d+)-(\d*)")


@dataclass(frozen=True)
class Fault:
    """A fault of one request of a file."""

    status: int = 0  # answered in the stead of the file
    error_code: str = ""  # the header X-Error-Code
    retry_after_s: int | None = None
    cut_after: int | None = None  # bytes of the body, before the connection is cut
    stall_after: int | None = None  # bytes, before no more are sent
    body: bytes | None = None  # another content
    ignores_range: bool = False


@dataclass(frozen=True)
class Request:
    """A request that the hub got."""

    path: str
    headers: Mapping[str, str]
    is_storage: bool  # whether it went to the host of large files

    @property
    def file(self) -> str:
        """The name of the file in a request of one."""
        return unquote(self.path).partition("?")[0].rpartition("/")[2]

    @property
    def first_byte(self) -> int:
        found = _RANGE.match(self.headers.get("range", ""))
        return int(found[1]) if found else 0


@dataclass
class Stored:
    """A repository: files by path at each commit, and the commits of its branches."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
    gate: str = ""  # "gated": with a token only; "private": hidden without one
    listed: dict[str, dict[str, Any]] = field(default_factory=dict)  # what the list reports wrongly


class FakeHub:
    """The server on 127.0.0.1; `localhost` is the host of large files."""

    token: Final = "hf_testtokenoftests"

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.repositories: dict[str, Stored] = {}
        self._faults: dict[str, list[Fault]] = {}
        self._lock = threading.Lock()
        self.ended = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.hub = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def storage(self) -> str:
        return f"http://localhost:{self._server.server_address[1]}"

    def add(self, name: str, files: Mapping[str, bytes], branch: str = "main", **info: Any) -> str:
        """Commit the files, and return the commit."""
        stored = self.repositories.setdefault(name, Stored())
        digest = hashlib.sha1(json.dumps([name, len(stored.commits)]).encode())
        for path, content in sorted(files.items()):
            digest.update(path.encode() + content)
        commit = digest.hexdigest()
        stored.commits[commit] = dict(files)
        stored.branches[branch] = commit
        stored.info |= info
        return commit

    def add_folder(self, name: str, folder: Path, **info: Any) -> str:
        """Commit the files of a folder, and return the commit."""
        files = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }
        return self.add(name, files, **info)

    def fault(self, file: str, *faults: Fault) -> None:
        """Let the next requests of a file, or of `api`, go wrong: each fault once."""
        with self._lock:
            self._faults.setdefault(file, []).extend(faults)

    def next_fault(self, file: str) -> Fault:
        with self._lock:
            waiting = self._faults.get(file, [])
            return waiting.pop(0) if waiting else Fault()

    def fetches(self, file: str) -> list[Request]:
        """Return the requests of a file's bytes."""
        return [each for each in self.requests if each.file == file and "/api/" not in each.path]


class _Server(ThreadingHTTPServer):
    hub: FakeHub
    daemon_threads = True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    timeout = 20
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        """Write nothing to standard error."""

    def do_GET(self) -> None:
        is_storage = self.headers.get("host", "").startswith("localhost")
        asked = Request(self.path, _lower(self.headers), is_storage)
        self.server.hub.requests.append(asked)
        path = unquote(urlsplit(self.path).path)
        if is_storage:
            self._send_large(path)
        elif path == "/api/models":
            self._send_found(parse_qs(urlsplit(self.path).query))
        elif found := re.fullmatch(r"/api/models/(.+?)(?:/revision/(.+))?", path):
            self._send_info(found[1], found[2] or "main")
        elif found := re.fullmatch(r"/(.+?)/resolve/([^/]+)/(.+)", path):
            self._resolve(found[1], found[2], found[3])
        else:
            self._refuse("RepoNotFound", 404)

    def _send_found(self, asked: Mapping[str, list[str]]) -> None:
        """Answer a search, in the order in which the repositories were added."""
        fault = self.server.hub.next_fault("api")
        if fault.status or fault.body is not None:
            self._send(fault.status or 200, fault.body or b"{}", {})
            return
        text, tags = asked.get("search", [""])[0].lower(), set(asked.get("filter", []))
        found = [
            {"id": name, **stored.info}
            for name, stored in self.server.hub.repositories.items()
            if text in name.lower() and tags <= set(stored.info.get("tags", []))
        ]
        self._send_json(found[: int(asked["limit"][0])])

    def _stored(self, name: str, *, is_read: bool = False) -> Stored | None:
        """Return a repository that this token may list or read; None after an answer that
        refuses."""
        stored = self.server.hub.repositories.get(name)
        has_token = self.headers.get("authorization") == f"Bearer {self.server.hub.token}"
        if stored is None or (stored.gate == "private" and not has_token):
            self._refuse("RepoNotFound", 401)
            return None
        if is_read and stored.gate and not has_token:
            self._refuse("GatedRepo", 401)
            return None
        return stored

    def _refuse(self, code: str, status: int) -> None:
        self._send(status, b"{}", {"X-Error-Code": code})

    def _send_info(self, name: str, revision: str) -> None:
        fault = self.server.hub.next_fault("api")
        if fault.status:
            self._send_fault(fault)
        elif (stored := self._stored(name)) is not None:
            commit = stored.branches.get(revision, revision)
            if commit not in stored.commits:
                self._refuse("RevisionNotFound", 404)
                return
            siblings = [
                {**_sibling(path, content), **stored.listed.get(path, {})}
                for path, content in sorted(stored.commits[commit].items())
            ]
            self._send_json({"id": name, "sha": commit, "siblings": siblings, **stored.info})

    def _resolve(self, name: str, revision: str, path: str) -> None:
        stored = self._stored(name, is_read=True)
        if stored is None:
            return
        commit = stored.branches.get(revision, revision)
        content = stored.commits.get(commit, {}).get(path)
        if content is None:
            code = "EntryNotFound" if commit in stored.commits else "RevisionNotFound"
            self._refuse(code, 404)
        elif len(content) < LARGE_BYTES:
            self._send_content(path, content, {"ETag": f'"{_git_sha1(content)}"'})
        else:
            target = f"{self.server.hub.storage}/{name}/{commit}/{path}?signature=of-the-hub"
            self._send(302, b"", {"Location": target})

    def _send_large(self, path: str) -> None:
        """Answer as the storage does, which takes no token of the hub."""
        if self.headers.get("authorization"):
            self._send(400, b"Only one authentication method is allowed", {})
            return
        found = re.fullmatch(r"/(.+)/([0-9a-f]{40})/(.+)", path)
        assert found
        content = self.server.hub.repositories[found[1]].commits[found[2]][found[3]]
        self._send_content(found[3], content, {"ETag": f'"{hashlib.sha256(content).hexdigest()}"'})

    def _send_content(self, path: str, content: bytes, headers: Mapping[str, str]) -> None:
        fault = self.server.hub.next_fault(path)
        if fault.status:
            self._send_fault(fault)
            return
        content = content if fault.body is None else fault.body
        is_other = self.headers.get("if-range", headers["ETag"]) != headers["ETag"]
        start = 0
        if not (fault.ignores_range or is_other):
            start = Request("", _lower(self.headers), False).first_byte
        if start and start >= len(content):
            self._send(416, b"", {"Content-Range": f"bytes */{len(content)}"})
            return
        if start:
            where = f"bytes {start}-{len(content) - 1}/{len(content)}"
            headers = {**headers, "Content-Range": where}
        self._send(206 if start else 200, content[start:], headers, fault)

    def _send_fault(self, fault: Fault) -> None:
        headers = {"X-Error-Code": fault.error_code} if fault.error_code else {}
        if fault.retry_after_s is not None:
            headers["Retry-After"] = str(fault.retry_after_s)
        self._send(fault.status, b"{}", headers)

    def _send_json(self, answer: object) -> None:
        self._send(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _send(
        self, status: int, body: bytes, headers: Mapping[str, str], fault: Fault = Fault()
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        ends = [each for each in (fault.cut_after, fault.stall_after) if each is not None]
        self.wfile.write(body[: min(ends)] if ends else body)
        self.wfile.flush()
        if fault.stall_after is not None:
            self.server.hub.ended.wait()
        if ends:
            self.close_connection = True
            self.connection.close()


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _git_sha1(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _sibling(path: str, content: bytes) -> dict[str, Any]:
    size = len(content)
    entry: dict[str, Any] = {"rfilename": path, "size": size, "blobId": _git_sha1(content)}
    if size >= LARGE_BYTES:
        digest = hashlib.sha256(content).hexdigest()
        entry["lfs"] = {"sha256": digest, "size": size, "pointerSize": 134}
    return entry
