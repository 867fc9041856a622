"""`vinery status`: the processes of this home, its models and its stores.

The command reads the home's files, the process table and the database, and works also while the web
process does not answer. Only the web process knows its Redis, and how old its keys are.
"""

import argparse
import platform
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from importlib import metadata
from typing import Any, Final

from vinery_platform import __version__
from vinery_platform.cli import shape
from vinery_platform.cli.ready import health
from vinery_platform.config import env
from vinery_platform.config.env import SettingError
from vinery_platform.config.home import Home, RunningServer
from vinery_serving.processes import confine

_PACKAGES: Final = ("openvino", "openvino-genai", "openvino-tokenizers")
# The exit status.
READY: Final = 0
NOT_READY: Final = 1  # runs, but no model has generated a token lately, or without an answer
NOT_RUNNING: Final = 3

_CPU_INTERVAL_S: Final = 0.1
# The words of a command line that show a process's role, and the role.
_ROLES: Final = {
    "vinery_serving.engine": "engine",
    "vinery_platform.cli.warm": "warm",
    **{name: name for name in ("web", "node", "jobs", "relay", "agent", "prepare", "wait")},
}

Row = dict[str, Any]
add_status = shape.add_json


def run_status(arguments: argparse.Namespace) -> int:
    """Show what runs with this home: addresses, versions, processes with their memory, models and
    whether their changes are followed, database, Redis and usage journals. The exit status is 0 if
    a model is ready, 1 if none is, 2 if there is no home, and 3 if Vinery does not run."""
    home = Home.from_env()
    if not home.path.exists():
        raise home.missing()
    server = RunningServer.read(home)
    found = None if server is None else health(server.base_url)
    state = "running, the web process does not answer"
    if server is None:
        state = "not running"
    elif found is not None:
        state = "ready" if found["is_ready"] else "running, no model is ready"
    report = {
        "state": state,
        "home": str(home.path),
        "server": None if server is None else _server(server),
        "versions": {
            "vinery": __version__,
            **{name: metadata.version(name) for name in _PACKAGES},
            "python": platform.python_version(),
        },
        "confinement": sorted(confine.available()),
        "processes": [] if server is None else list(_processes(server.pid)),
        **(stores := _stores(home)),
        **(_placement() if stores["database"].endswith("answers") else {}),
        # The settings of the web process may be others than those of this shell; `keys` and
        # `model_table` say how old they are in that process.
        **{name: (found or {}).get(name, "unknown") for name in ("redis", "keys", "model_table")},
    }
    print(shape.json_of(report)) if arguments.json else _print(report)
    return {"not running": NOT_RUNNING, "ready": READY}.get(state, NOT_READY)


def _server(server: RunningServer) -> Row:
    public_url = env.url("VINERY_PUBLIC_URL") or server.base_url
    return {
        "pid": server.pid,
        "version": server.version,
        "uptime_s": round(time.time() - server.started_at_s),
        "url": public_url,
        "console": f"{public_url}/console/",
        "api": f"{public_url}/v1",
        "local_url": server.base_url,
    }


def _processes(supervisor: int) -> Iterator[Row]:
    """Processes that end meanwhile, or belong to another user, have no row."""
    import psutil  # 10 ms

    found: list[Any] = []
    with suppress(psutil.Error):
        parent = psutil.Process(supervisor)
        found = [parent, *parent.children(recursive=True)]
    for process in found:
        with suppress(psutil.Error):
            process.cpu_percent()  # the first call begins the measurement
    time.sleep(_CPU_INTERVAL_S)
    for process in found:
        with suppress(psutil.Error):
            yield _process(process, supervisor)


def _process(process: Any, supervisor: int) -> Row:
    words = process.cmdline()
    role = next((role for mark, role in _ROLES.items() if mark in words), "worker")
    return {
        "process": "supervisor" if process.pid == supervisor else role,
        "pid": process.pid,
        "memory_bytes": process.memory_info().rss,
        "cpu_percent": process.cpu_percent(),
        "uptime_s": round(time.time() - process.create_time()),
    }


def _stores(home: Home) -> Row:
    """Models, database and journals. A part that cannot be read has the reason instead."""
    # Journals of running processes, and of dead ones until recovery.
    from vinery_accounts.usage.journal import journals_in

    journals = {"number": len(journals_in(home.usage)), "folder": str(home.usage)}
    try:
        shape.load_django()
        shape.require_home()
    except SettingError as error:
        return {"models": [], "hosts": [], "database": str(error), "journals": journals}
    models, hosts, database = _models_and_hosts()
    return {"models": models, "hosts": hosts, "database": database, "journals": journals}


def _models_and_hosts() -> tuple[list[Row], list[Row], str]:
    from django.db import Error as DatabaseError
    from django.db import connection

    from vinery_serving.models import registry
    from vinery_serving.models.host_resource import models_text
    from vinery_serving.models.host_rows import Host

    try:
        hosts = [
            {"host": each.name, "state": each.state, "models": models_text(each)}
            for each in Host.objects.all()
        ]
        rows = [
            {
                "model": model.name,
                "state": model.status.state,
                "device": model.device,
                "pid": model.status.pid,
                "waiting": model.waiting_text,
                "error": model.status.last_error.partition("\n")[0],
            }
            for model in registry.list_models()
        ]
    except DatabaseError as error:
        return [], [], f"unavailable: {' '.join(str(error).split())}"
    return rows, hosts, f"{connection.display_name} answers"


def _placement() -> Row:
    """Empty where Ray does not place."""
    from django.conf import settings

    from vinery_serving.cluster import lease

    if not settings.VINERY_RAY_ADDRESS:
        return {}
    agents = lease.agents()
    if any(each.acts and each.reaches_ray for each in agents):
        text = f"by Ray, whose head is at {settings.VINERY_RAY_ADDRESS}"
    elif following := [each.host for each in agents if each.reaches_ray]:
        text = f"nothing new until the agent on {' or '.join(following)} takes over"
    elif agents:
        hosts = ", ".join(each.host for each in agents)
        text = f"nothing new: agents run on {hosts}, but none reaches Ray: see their logs"
    else:
        text = "nothing new: no agent runs on any host"
    return {"placement": text}


def _print(report: Row) -> None:
    names = ("placement", "database", "redis", "keys", "model_table")
    lines = {
        "state": report["state"],
        "home": report["home"],
        **(report["server"] or {}),
        **{name: report[name] for name in names if name in report},
        "journals": "{number} in {folder}".format(**report["journals"]),
        "versions": ", ".join(f"{name} {version}" for name, version in report["versions"].items()),
        "confined": ", ".join(report["confinement"]) + confine.OF_ENGINES,
    }
    for name, value in lines.items():
        if name == "uptime_s":
            name, value = "uptime", timedelta(seconds=value)
        shape.print_line(f"{name.ljust(12)}{value}")
    processes = [
        {
            **row,
            "memory": f"{row['memory_bytes'] >> 20} MB",
            "cpu": f"{row['cpu_percent']:.0f} %",
            "uptime": timedelta(seconds=row["uptime_s"]),
        }
        for row in report["processes"]
    ]
    for heads, rows in (
        (("process", "pid", "memory", "cpu", "uptime"), processes),
        (("host", "state", "models"), report["hosts"] if len(report["hosts"]) > 1 else []),
        (("model", "state", "device", "pid", "waiting", "error"), report["models"]),
    ):
        if rows:
            print()
            shape.print_rows(rows, heads, as_json=False)
