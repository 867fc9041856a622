"""Ray on this machine for a test: the head and nodes, without what serves tasks and dashboards.

Ray's own helper for tests starts six Python programs. The node processes wait 15 s for two of them,
which a busy machine does not meet. Placement groups need none of them.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

# Read by Ray at its import. A dead node is noticed in seconds; a busy machine gets its time.
os.environ |= {
    "RAY_health_check_initial_delay_ms": "3000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "10000",
    "RAY_USAGE_STATS_ENABLED": "0",
}

import ray._private.node
import ray._private.services
from ray.cluster_utils import Cluster

_STORE_BYTES = 80 << 20
_AGENTS = ("--dashboard_agent_command=", "--runtime_env_agent_command=")
_PORTS = ("dashboard_agent_listen", "metrics_agent", "runtime_env_agent", "metrics_export")
_start: Any = ray._private.services.start_ray_process


def _start_without_agents(command: list[str], *args: Any, **kwargs: Any) -> Any:
    words = dict(each[2:].split("=", 1) for each in command if each[:2] == "--" and "=" in each)
    if "dashboard_agent_command" in words:
        for name in _PORTS:
            path = Path(words["session_dir"], f"{name}_port_{words['node_id']}")
            path.write_text(str(free_port()), encoding="ascii")
    kept = [
        f"{each.partition('=')[0]}=sleep 1000" if each.startswith(_AGENTS) else each
        for each in command
    ]
    return _start(kept, *args, **kwargs)


ray._private.services.start_ray_process = _start_without_agents
ray._private.node.Node.start_api_server = lambda *_, **__: None
ray._private.node.Node.start_log_monitor = lambda *_: None


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


_RELAY = """
import sys
from tests.relay import Relay

relay = Relay(sys.argv[1], "127.0.0.2")  # of 127.0.0.1 Ray makes the address of the machine
print(relay.url, flush=True)
for line in sys.stdin:
    getattr(relay, line.strip())()
    print(flush=True)
"""


class Way:
    """A relay, in a process of its own: Ray holds the interpreter's lock while it waits."""

    def __init__(self, port: int) -> None:
        self._relay = subprocess.Popen(
            [sys.executable, "-c", _RELAY, f"ray://{ray.util.get_node_ip_address()}:{port}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.address = self._answer().removeprefix("ray://")

    def cut(self) -> None:
        """Connections break, and new ones are refused."""
        self._do("cut")

    def join(self) -> None:
        """New connections get through again."""
        self._do("join")

    def end(self) -> None:
        self._relay.kill()
        self._relay.communicate()

    def _do(self, what: str) -> None:
        print(what, file=self._relay.stdin, flush=True)
        self._answer()

    def _answer(self) -> str:
        assert self._relay.stdout is not None
        return self._relay.stdout.readline().strip()


class OwnRay:
    """A head, and a Ray node for each host, which reaches the head on a way of its own."""

    def __init__(self, hosts: Mapping[str, int]) -> None:
        """`hosts`: the MiB of the CPU by the id of the host."""
        self._clusters: list[Any] = []
        self._hosts = hosts
        self._port = free_port()
        self.ways = {host: Way(self._port) for host in hosts}
        self.start_again()

    def start_again(self) -> None:
        """Start the head at its address, and nodes: they have ended without the head."""
        if self._clusters:
            self._clusters.pop().shutdown()
        head = {"include_dashboard": False, "no_monitor": True, "gcs_server_port": self._port}
        head |= {"num_cpus": 0, "object_store_memory": _STORE_BYTES}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        self._clusters.append(cluster)
        self._nodes: dict[str, Any] = {}
        for host in self._hosts:
            self.start_node(host)
        self.address: str = cluster.address

    def start_node(self, host: str) -> None:
        self._nodes[host] = self._clusters[0].add_node(
            num_cpus=0,
            object_store_memory=_STORE_BYTES,
            resources={"vinery-CPU": self._hosts[host]},
            labels={"vinery-host": host},
            gcs_address=self.ways[host].address,
        )

    def has_node(self, host: str) -> bool:
        """Whether the Ray node of the host runs."""
        return "raylet" in dict(self._nodes[host].live_processes())

    def kill_node(self, host: str) -> None:
        self._nodes.pop(host).kill_raylet(check_alive=False)

    def kill_head(self) -> None:
        self._clusters[0].head_node.kill_gcs_server(check_alive=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._clusters[0].shutdown()
        for way in self.ways.values():
            way.end()
