"""The commands of docs/guides/management-api.md, run as they are against a running platform."""

import json
import re
import shutil
import subprocess
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.accounts.webhook_receiver import Receiver, receiving
from tests.conftest import Running, run_platform, until
from tests.system.clients import chat, http_of, new_key

pytestmark = pytest.mark.skipif(
    not (shutil.which("curl") and shutil.which("bash")), reason="there is no curl or no bash"
)

GUIDE = Path(__file__).parents[2] / "docs/guides/management-api.md"
_END = "this section has ended"


class Shell:
    """A shell that runs one section after the other. Each command must succeed, and curl fails for
    a status of 400 or more."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["bash", "-euo", "pipefail"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.run('curl() { command curl --fail-with-body --show-error --max-time 60 "$@"; }')

    def run(self, commands: str) -> list[Any]:
        """Return the JSON bodies that the commands have printed."""
        self._process.stdin.write(f"{commands}\necho; echo '{_END}'\n")
        self._process.stdin.flush()
        printed = ""
        for line in self._process.stdout:
            if line.strip() == _END:
                return bodies(printed)
            printed += line
        pytest.fail(f"a command failed:\n{commands}\n{printed}")

    def close(self) -> None:
        self._process.communicate(timeout=10)


def bodies(printed: str) -> list[Any]:
    """Return the JSON objects in a text, one after the other."""
    found, decoder, at = [], json.JSONDecoder(), printed.find("{")
    while at >= 0:
        body, end = decoder.raw_decode(printed, at)
        found.append(body)
        at = printed.find("{", end)
    return found


def sections() -> dict[str, str]:
    """Return the commands of each section, by number; 0 for the commands before the first task."""
    parts = re.split(r"^## ", GUIDE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {
        (re.match(r"\d+", part) or ["0"])[0]: "\n".join(
            re.findall(r"^```bash\n(.*?)^```", part, flags=re.MULTILINE | re.DOTALL)
        )
        for part in parts
    }


@dataclass
class Cookbook:
    """The guide on a platform of its own."""

    platform: Running
    admin_key: str
    receiver: Receiver
    shell: Shell

    def run(self, number: int) -> list[Any]:
        """Run a section with the addresses and the key of this platform."""
        return self.shell.run(
            sections()[str(number)]
            .replace("http://127.0.0.1:8000", self.platform.base_url)
            .replace("vny_admin_...", self.admin_key)
            .replace("https://hooks.acme.example/vinery", self.receiver.url)
        )

    def get(self, path: str) -> Any:
        """Return what the management API has now."""
        with http_of(self.platform, self.admin_key) as http:
            return http.get(f"/api/{path}").raise_for_status().json()

    def one(self, path: str) -> Any:
        """Return the only row of a list."""
        (row,) = self.get(path)["data"]
        return row

    def ask(self, key: str, model: str) -> int:
        """Return the status of a chat completion."""
        return chat(self.platform, model=model, key=key, max_completion_tokens=2).status_code

    def variable(self, name: str) -> str:
        """Return the value of a variable of the shell."""
        return str(self.shell.run(f'printf \'{{"value": "%s"}}\' "${name}"')[0]["value"])


def test_the_ten_tasks_do_what_the_guide_promises(tmp_path: Path) -> None:
    """Each task continues with the results of the earlier tasks."""
    found = sections()
    assert list(found) == [str(number) for number in range(11)]
    assert all("curl" in commands for number, commands in found.items() if number != "0")

    settings = {"VINERY_WEBHOOK_NETWORKS": "127.0.0.0/8"}
    with receiving() as receiver, run_platform(tmp_path / "home", settings) as platform:
        key = new_key(platform, "automation", "--scope", "admin")
        with closing(Shell()) as shell:
            cookbook = Cookbook(platform, key, receiver, shell)
            cookbook.run(0)
            project_id = create_a_project_with_its_users(cookbook)
            key_id, secret = create_rotate_and_revoke_a_key(cookbook)
            raise_a_quota_and_report_usage(cookbook, project_id)
            serve_another_model(cookbook, secret)
            send_a_test_and_read_the_log(cookbook, key_id)


def create_a_project_with_its_users(cookbook: Cookbook) -> int:
    cookbook.run(1)
    project = cookbook.one("projects/?name=search")
    assert project["organization_name"] == "acme"

    cookbook.run(2)
    members = cookbook.get(f"users/?project={project['id']}")["data"]
    assert [row["username"] for row in members] == ["crawler"]
    assert cookbook.one("users/?username=alice")["email"] == "alice@acme.example"
    return int(project["id"])


def create_rotate_and_revoke_a_key(cookbook: Cookbook) -> tuple[int, str]:
    """Return the id of the first key, and the secret of the one that replaced it."""
    limit, answer = cookbook.run(3)
    old = cookbook.one("keys/?name=nightly")
    assert (limit["scope_id"], old["owner_name"]) == (old["id"], "crawler")
    assert answer["choices"][0]["message"]["role"] == "assistant"
    old_secret = cookbook.variable("KEY")

    cookbook.run(4)
    new_secret = cookbook.variable("KEY")
    assert new_secret != old_secret
    until(lambda: cookbook.ask(new_secret, "tiny-chat") == 200)
    assert cookbook.ask(old_secret, "tiny-chat") == 200

    (revoked,) = cookbook.run(5)
    assert (revoked["id"], revoked["state"]) == (old["id"], "revoked")
    until(lambda: cookbook.ask(old_secret, "tiny-chat") == 401)
    return old["id"], new_secret


def raise_a_quota_and_report_usage(cookbook: Cookbook, project_id: int) -> None:
    changed, quotas = cookbook.run(6)
    assert (changed["amount"], changed["alert_at"]) == (2_000_000, [50, 80, 100])
    assert [quota["scope_id"] for quota in quotas["data"]] == [project_id]

    last_month, this_month = cookbook.run(7)
    first = datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    assert datetime.fromisoformat(last_month["until"]) == first
    assert datetime.fromisoformat(last_month["since"]).day == 1
    assert last_month["groups"] == []
    assert {each["values"]["project"] for each in this_month["groups"]} == {project_id}
    assert this_month["totals"]["num_requests"] >= 3


def serve_another_model(cookbook: Cookbook, secret: str) -> None:
    cookbook.run(8)
    model = cookbook.one("models/?name=assistant")
    assert (model["state"], model["options"]) == ("ready", {"max_running": 8})
    until(lambda: cookbook.ask(secret, "assistant") == 200)
    assert cookbook.ask(secret, "tiny-chat") in (403, 404)


def send_a_test_and_read_the_log(cookbook: Cookbook, key_id: int) -> None:
    tested, alerts = cookbook.run(9)
    assert tested == {"is_delivered": True, "error": ""}
    assert len(cookbook.receiver.requests) == 1
    assert alerts["data"] == []

    entries, verdict = cookbook.run(10)
    assert [entry["target_id"] for entry in entries["data"]] == [str(key_id)]
    assert entries["data"][0]["actor"].startswith("admin, admin key automation (vny_admin_")
    assert verdict["is_whole"] is True
