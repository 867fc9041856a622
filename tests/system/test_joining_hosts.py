"""`vinery host join` makes the home of a host that reads what the first host has sealed."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import stores
from tests.conftest import clean_environment, until

COMMAND = (sys.executable, "-m", "vinery_platform.cli")
WITHIN_S = 240.0


def run(environment: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (*COMMAND, *words),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def is_reached(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, 5).close()
    except OSError:
        return False
    return True


def test_a_host_joins_once_by_each_token(tmp_path: Path) -> None:
    if not os.environ.get("VINERY_TEST_POSTGRES_URL"):
        pytest.skip("VINERY_TEST_POSTGRES_URL is not set, so there is no PostgreSQL")
    with socket.create_server(("127.0.0.2", 0)) as free:
        address = free.getsockname()
    database = stores.new_postgres_database()
    clean = {**clean_environment(), "VINERY_PORT": "0"}
    own = {"DATABASE_URL": database, "VINERY_HOST_ADDRESS": "{}:{}".format(*address)}
    first = {**clean, **own, "VINERY_HOME": str(tmp_path / "first")}
    second = {**clean, "VINERY_HOME": str(tmp_path / "second"), "VINERY_HOST_NAME": "mars"}
    assert run(first, "prepare").returncode == 0
    relay = subprocess.Popen((*COMMAND, "relay"), env=first)
    try:
        until(lambda: is_reached(address), timeout_s=WITHIN_S)
        join = run(first, "host", "token").stdout.split()[1:]
        file = tmp_path / "second" / "vinery.toml"
        file.parent.mkdir()
        file.touch()
        refused = run(second, *join)
        assert refused.returncode != 0
        assert "vinery.toml already" in refused.stderr
        file.unlink()
        joined = run(second, *join)  # so the token was not used
        assert joined.returncode == 0, joined.stderr
        for name in ("django_secret_key", "key_pepper_1"):
            copies = [(tmp_path / each / "secrets" / name) for each in ("first", "second")]
            assert copies[0].read_text() == copies[1].read_text()
        # The new home alone says where the database is.
        assert database in file.read_text()
        assert "host.join" in run(second, "audit", "list").stdout
        again = run({**second, "VINERY_HOME": str(tmp_path / "third")}, *join)
        assert again.returncode == 1
        assert "has been used" in again.stderr
        assert not list((tmp_path / "third" / "secrets").iterdir())
    finally:
        relay.terminate()
        assert relay.wait(60) == 0
