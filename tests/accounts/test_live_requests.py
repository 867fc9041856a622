"""Who sees and stops the requests that run now. The socket of a web process has its real server."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from pages import signed_in, text_of
from row_builders import logged
from usage_builders import admission

from vinery_accounts.access import changes
from vinery_accounts.access.changes import first_project, set_role
from vinery_accounts.keys.lifecycle import create_key
from vinery_accounts.models import ApiKey, AuditEntry, Organization, Project, Role, User
from vinery_accounts.usage.entries import Admission
from vinery_platform.cli import main
from vinery_serving.core.errors import RequestStopped
from vinery_serving.core.events import TokenCounts
from vinery_serving.gateway.engines.meter import Meter
from vinery_serving.gateway.state.drain import LiveRequest, LiveRequests
from vinery_serving.models.live_socket import LiveServer
from vinery_serving.transport.handshake import NUM_BYTES
from vinery_serving.transport.sockets import web_sockets

pytestmark = pytest.mark.django_db

LIVE = "/console/live/"


class WebProcess:
    """The loop of a web process, with requests that run until they are stopped."""

    def __init__(self, run_dir: Path) -> None:
        self.endings: dict[str, Future[str]] = {}
        self._live = LiveRequests()
        self._loop = asyncio.new_event_loop()
        self._socket = LiveServer(
            run_dir, settings.VINERY_SOCKET_SECRET, self._live.rows, self._live.stop
        )
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._socket.start(), self._loop).result(10)

    def begin(self, asked: Admission) -> None:
        asyncio.run_coroutine_threadsafe(self._begin(asked), self._loop).result(10)

    async def _begin(self, asked: Admission) -> None:
        meter = Meter(tokens=TokenCounts(9, num_output_tokens=41), first_token_s=0.0)
        live = LiveRequest(asked.request_id, asked.key_id, meter, None, asked)
        live.task = asyncio.create_task(self._run(live))
        self._live.add(live)
        self.endings[asked.request_id] = Future()
        await asyncio.sleep(0)

    async def _run(self, live: LiveRequest) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if isinstance(live.ending, RequestStopped):  # not the end of the test
                self._live.discard(live)
                self.endings[live.request_id].set_result(live.ending.message)

    def end(self) -> None:
        async def cancel() -> None:
            self._socket.close()
            for each in asyncio.all_tasks() - {asyncio.current_task()}:
                each.cancel()

        asyncio.run_coroutine_threadsafe(cancel(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def web(tmp_path: Path, settings: Any) -> Iterator[WebProcess]:
    settings.VINERY_RUN_DIR = tmp_path
    process = WebProcess(tmp_path)
    yield process
    process.end()


def key_of(owner: User, project: Project) -> ApiKey:
    return create_key(owner=owner, project=project, name=f"laptop of {owner}").key


def run(web: WebProcess, request_id: str, key: ApiKey) -> None:
    owners = {"user_id": key.owner_id, "username": key.owner.username}
    where = {"project_id": key.project_id, "organization_id": key.project.organization_id}
    web.begin(admission(request_id, key_id=key.pk, key_name=key.name, **owners, **where))


def member(name: str, role: Role) -> User:
    user = User.objects.create_user(name)
    set_role(user, first_project().organization, role)
    return user


def test_a_request_is_seen_by_whom_its_usage_and_stopped_by_who_may_revoke_its_key(
    web: WebProcess,
) -> None:
    project = first_project()
    other = changes.add(Project(organization=changes.add(Organization(name="b")), name="b"))
    roles = {"mia": Role.MEMBER, "adam": Role.ADMIN, "vera": Role.VIEWER}
    people = {name: member(name, role) for name, role in roles.items()}
    people |= {
        "root": User.objects.create_superuser("root"),
        "nina": User.objects.create_user("nina"),
    }
    run(web, "req_mia", key_of(people["mia"], project))
    run(web, "req_b", key_of(people["root"], other))
    web.begin(admission("req_open", user_id=None, username=""))

    # Name: the requests that are seen, and those that may be stopped.
    expected = {
        "mia": ("req_mia", "req_mia"),
        "adam": ("req_mia", "req_mia"),
        "vera": ("req_mia", ""),
        "nina": ("", ""),
        "root": ("req_b req_mia req_open", "req_b req_mia req_open"),
    }
    found = {}
    for name, user in people.items():
        client = signed_in(user)
        text = text_of(client.get(LIVE))
        seen = [each["request_id"] for each in client.get("/api/live/").json()["data"]]
        offered = [each for each in web.endings if f'id="stop-{each}"' in text]
        found[name] = (" ".join(sorted(seen)), " ".join(sorted(offered)))
        for each in web.endings:
            status = client.get(f"{LIVE}{each}/stop/").status_code
            assert status == (200 if each in offered else 403 if each in seen else 404)
            if each not in offered:
                assert client.post(f"{LIVE}{each}/stop/").status_code == status
    assert found == expected
    assert not any(each.done() for each in web.endings.values())
    assert logged(action="request.stop") == []


def test_the_client_and_the_audit_log_get_the_reason(root: User, web: WebProcess) -> None:
    key = key_of(root, first_project())
    for request_id in ("req_page", "req_api", "req_command"):
        run(web, request_id, key)
    client = signed_in(root)
    text = text_of(client.get(LIVE))
    assert "laptop of root" in text and "41" in text and "Generating" in text

    long = {"reason": "x" * 201}
    assert "at most 200 characters" in text_of(client.post(f"{LIVE}req_page/stop/", long))
    as_json = {"content_type": "application/json"}
    assert client.post("/api/live/req_api/stop/", long, **as_json).status_code == 400
    page = client.post(f"{LIVE}req_page/stop/", {"reason": "it\nloops"}, follow=True)
    assert "The request is stopped." in text_of(page)
    assert client.post("/api/live/req_api/stop/", {}, **as_json).status_code == 200
    assert main(["requests", "stop", "req_command", "--reason", "night"]) == 0

    sentence = "This request was stopped by an administrator"
    assert {name: each.result(10) for name, each in web.endings.items()} == {
        "req_page": f"{sentence}: it loops",
        "req_api": f"{sentence}.",
        "req_command": f"{sentence}: night",
    }
    entries = AuditEntry.objects.filter(action="request.stop").order_by("number")
    assert [(each.target_id, (each.after or {})["reason"]) for each in entries] == [
        ("req_page", "it loops"),
        ("req_api", ""),
        ("req_command", "night"),
    ]
    assert client.post("/api/live/req_api/stop/", {}, **as_json).status_code == 404
    assert "No request runs now." in text_of(client.get(LIVE))


def test_a_killed_process_leaves_no_requests_and_strangers_stop_none(
    root: User, web: WebProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(web, "req_1", key_of(root, first_project()))
    (path,) = web_sockets(tmp_path)
    dead = tmp_path / "web-1.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(dead))  # the name stays, as after a kill
    assert main(["requests", "live"]) == 0
    assert capsys.readouterr().out.count("req_") == 1
    assert web_sockets(tmp_path) == [path]

    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(path))
        # In place of a random number and a proof.
        stranger.sendall(bytes(2 * NUM_BYTES) + b'["req_1", "mine"]\n')
        received = b"".join(iter(lambda: stranger.recv(100), b""))
    assert received[2 * NUM_BYTES :] == b"", "no answer follows the handshake"
    assert not web.endings["req_1"].done()
