"""`vinery agent` and `vinery ray-node`: the processes of a host where Ray places models.

By default Ray runs the code of anyone who reaches its ports. So Ray asks for a token, which is
derived from the secret key of the installation, unless RAY_AUTH_MODE says otherwise.
"""

import argparse
import hmac
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Final

from vinery_platform.cli.shape import Failure, add_switch, importing, start_django
from vinery_platform.config import secret_files
from vinery_platform.config.home import Home
from vinery_platform.processes import heartbeats

_MIB: Final = 1 << 20
# Of a device without a limit whose memory is not known.
_UNLIMITED_BYTES: Final = 1 << 40
# The node looks for devices at its start.
_DEVICES_WITHIN_S: Final = 60.0
# Ray counts memory, and runs nothing.
_IDLE: Final = "--num-cpus 0 --num-gpus 0 --disable-usage-stats --object-store-memory 83886080"
# What Ray gets of the environment: no secret of Vinery.
_PASSED: Final = ("PATH", "HOME", "LANG", "TMPDIR", "RAY_")


def run_agent(_: argparse.Namespace) -> int:
    """Let Ray place models on hosts, with VINERY_PLACEMENT=ray. Of the agents of all hosts one
    acts, the others wait for its end."""
    start_django()
    with importing():
        from vinery_serving.cluster import ray_agent
    os.environ.update(_authentication())
    heartbeats.begin_in_thread((threading.main_thread(),))
    ray_agent.run()
    return 0


def add_ray_node(parser: argparse.ArgumentParser) -> None:
    add_switch(parser, "--head", "be the head at RAY_ADDRESS instead, without devices")


def run_ray_node(arguments: argparse.Namespace) -> int:
    """Run Ray on this host, with the memory that models may use on each device. Ray ends a minute
    after its head is gone, and has to be started again."""
    start_django()
    from django.conf import settings

    if not (address := settings.VINERY_RAY_ADDRESS):
        raise Failure("Set VINERY_PLACEMENT=ray, and RAY_ADDRESS to the host:port of Ray's head.")
    program = Path(sys.executable).with_name("ray")
    if not program.exists():
        raise Failure("Ray is not installed here: pip install 'vinery-platform[cluster]'")
    port = address.rpartition(":")[2]
    head = ("--head", "--port", port, "--include-dashboard", "false")
    own = head if arguments.head else ("--address", address, *_offer())
    kept = {name: value for name, value in os.environ.items() if name.startswith(_PASSED)}
    argv = [str(program), "start", "--block", *own, *_IDLE.split()]
    os.execve(program, argv, kept | _authentication())


def _authentication() -> dict[str, str]:
    if "RAY_AUTH_MODE" in os.environ:
        return {}
    key = secret_files.django_key(Home.from_env()).encode()
    token = hmac.digest(key, b"vinery ray", "sha256").hex()
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}


def _offer() -> tuple[str, ...]:
    """The memory for models in MiB, by the name of Ray's resource, and the label of this host."""
    from django.conf import settings

    from vinery_serving.cluster.lease import host_id
    from vinery_serving.cluster.ray_agent import HOST_LABEL, resource_of
    from vinery_serving.models import devices

    until_s = time.monotonic() + _DEVICES_WITHIN_S
    while (known := devices.read(Path(settings.VINERY_RUN_DIR))) is None:
        if time.monotonic() > until_s:
            raise Failure("The node of this host has not found its devices: see `vinery logs`.")
        time.sleep(1.0)
    memory = {devices.first_device(each.name): each.memory_bytes for each in known.devices}
    limits = memory | settings.VINERY_MODEL_MEMORY
    offered = {resource_of(name): (limits[name] or _UNLIMITED_BYTES) // _MIB for name in memory}
    return "--resources", json.dumps(offered), "--labels", f"{HOST_LABEL}={host_id()}"
