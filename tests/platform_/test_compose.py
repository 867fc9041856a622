"""The containers of `docker/compose.yaml`: passwords from secrets, images that can be pinned, and
limits."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import REPOSITORY

FOLDER = REPOSITORY / "docker"
DOCKERFILE = (FOLDER / "Dockerfile").read_text()
WITH_GPU: dict[str, Any] = yaml.safe_load((FOLDER / "compose.gpu.yaml").read_text())
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]


def test_every_secret_is_a_file_and_every_used_one_exists() -> None:
    used = {secret for service in SERVICES.values() for secret in service.get("secrets", ())}

    assert used == set(COMPOSE["secrets"])
    assert all(set(each) == {"file"} for each in COMPOSE["secrets"].values())


def test_every_container_has_limits_and_gains_no_privileges() -> None:
    for service in SERVICES.values():
        assert service["mem_limit"]
        assert service["pids_limit"]
        assert "no-new-privileges:true" in service["security_opt"]
    mounts = [mount for service in SERVICES.values() for mount in service.get("tmpfs", ())]
    assert mounts
    assert all("size=" in mount for mount in mounts), "folders in memory"
    assert "${MODELS:-./models}:/models:ro" in SERVICES["vinery"]["volumes"]


def test_every_image_can_be_pinned_by_a_variable() -> None:
    images = [service["image"] for service in SERVICES.values() if "image" in service]
    images += SERVICES["vinery"]["build"]["args"].values()

    assert len(images) == len(SERVICES)
    for image in images:
        assert re.fullmatch(r"\$\{[A-Z]+_IMAGE:-[a-z]+:\d[\w.-]+\}", image), image


def test_both_files_build_a_target_that_the_dockerfile_has() -> None:
    targets = [each["services"]["vinery"]["build"]["target"] for each in (COMPOSE, WITH_GPU)]

    assert targets == ["cpu", "gpu"]
    assert all(re.search(rf"^FROM \w+ AS {target}$", DOCKERFILE, re.M) for target in targets)
    assert DOCKERFILE.rstrip().endswith("AS cpu")
    # A GPU is opened by the group of the host.
    vinery = WITH_GPU["services"]["vinery"]
    assert vinery["devices"] == ["/dev/dri:/dev/dri"]
    assert vinery["group_add"][0].startswith("${RENDER_GROUP:?")


def test_the_databases_are_reached_from_the_inside_only() -> None:
    inside = [name for name, service in SERVICES.items() if service["networks"] == ["inside"]]

    assert inside == ["postgres", "redis"]
    assert COMPOSE["networks"]["inside"] == {"internal": True}
    assert not any("ports" in SERVICES[name] for name in inside)
    assert SERVICES["vinery"]["ports"] == ["127.0.0.1:8000:8000"]


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs redis-server")
def test_redis_needs_its_password_which_no_argument_shows(tmp_path: Path) -> None:
    secret = tmp_path / "redis_password"
    secret.write_text("hunter2\n")
    shell, option, script = SERVICES["redis"]["command"]
    here = f"--port 0 --unixsocket {tmp_path}/socket -"
    script = _inside(script.replace(" - <<", f" {here} <<"), secret)
    server = subprocess.Popen([shell, option, script], cwd=tmp_path, stdout=subprocess.DEVNULL)
    try:
        ping = f"redis-cli -s {tmp_path}/socket ping"
        wait = f"until {ping} 2>/dev/null; do sleep 0.05; done"
        subprocess.run(["sh", "-c", wait], timeout=30, check=True, capture_output=True)
        refused = subprocess.run(["sh", "-c", ping], capture_output=True, text=True, check=False)
        arguments = Path(f"/proc/{server.pid}/cmdline").read_bytes()
        kind, health = SERVICES["redis"]["healthcheck"]["test"]
        check = _inside(health, secret).replace("redis-cli", f"redis-cli -s {tmp_path}/socket")
        is_healthy = _succeeds(check)
        secret.write_text("wrong\n")
        is_healthy_with_another = _succeeds(check)
    finally:
        server.terminate()
        server.wait(10)

    assert kind == "CMD-SHELL"
    assert "NOAUTH" in refused.stdout + refused.stderr
    assert b"hunter2" not in arguments
    assert (is_healthy, is_healthy_with_another) == (True, False)


def _succeeds(command: str) -> bool:
    return subprocess.run(["sh", "-c", command], capture_output=True, check=False).returncode == 0


def _inside(script: str, secret: Path) -> str:
    """The shell's text as Compose passes it on, with another path of the secret."""
    return script.replace("$$", "$").replace("/run/secrets/redis_password", str(secret))
