"""`vinery devices`: the devices of this machine on which models can run.

Needs no Django, no home folder and no running Vinery: a short process asks OpenVINO.
"""

import argparse
import asyncio
import os
from contextlib import suppress
from typing import Any, Final

from vinery_platform.cli.shape import Failure, add_json, print_rows
from vinery_platform.config.home import Home
from vinery_serving.catalog import devices
from vinery_serving.catalog.devices import Device
from vinery_serving.node import device_probe

_HEADS: Final = ("device", "name", "memory", "driver")


def add_to(parser: argparse.ArgumentParser) -> None:
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """List the devices. Raises `Failure` if they cannot be found, and `SettingError`."""
    run_dir = Home.from_env().run
    try:
        found = asyncio.run(device_probe.find())
    except device_probe.ProbeFailed as error:
        raise Failure(str(error)) from error
    with suppress(OSError):  # there is no home yet, or it is full
        # A file of another user could not be read by Vinery.
        if run_dir.stat().st_uid == os.getuid():
            devices.write(run_dir, found)
    print_rows(
        [_row(each, as_json=arguments.json) for each in found], _HEADS, as_json=arguments.json
    )
    return 0


def _row(device: Device, *, as_json: bool) -> dict[str, Any]:
    row = {"device": device.name, "name": device.full_name, "driver": device.driver}
    if as_json:
        return row | {
            "memory_bytes": device.memory_bytes,
            "properties": list(device.properties),
        }
    return row | {"memory": _in_gib(device.memory_bytes)}


def _in_gib(num_bytes: int | None) -> str | None:
    return None if num_bytes is None else f"{num_bytes / 2**30:.1f} GiB"
