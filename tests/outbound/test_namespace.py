"""Not one connection reaches a forbidden address, counted where each of them has a server."""

import json
import subprocess
import sys

from tests.conftest import REPOSITORY

# These lead to this machine even where a test gets no network of its own.
_ALWAYS = {"127.0.0.1", "127.1.2.3", "0.0.0.0"}


def test_no_attack_connects_in_a_network_where_every_address_has_a_server() -> None:
    words = [sys.executable, "-m", "tests.outbound.namespace_process"]
    result = json.loads(subprocess.check_output(words, cwd=REPOSITORY))
    assert set(result["reachable"]) >= _ALWAYS
    assert result["num_noticed"] == len(result["reachable"])
    if result["is_own"]:
        assert set(result["reachable"]) >= _ALWAYS | {"10.0.0.1", "169.254.169.254", "192.168.1.1"}
    assert result["num_refused"] == result["num_attacks"] >= 300
    assert result["num_connections"] == 0
    assert result["tried"] == []
