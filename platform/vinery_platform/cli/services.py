"""`vinery prepare`, `web`, `node`, `jobs` and `relay`: the processes of `vinery up`.

Each function imports the modules of its process. In the jobs process Celery's beat is a thread:
Celery itself would fork a process for beat, which outlives a killed worker, and keep the state in
a file. A kill may corrupt such a file on systems without gdbm.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from vinery_platform.cli.shape import Failure, importing, start_django
from vinery_platform.config import secret_files
from vinery_platform.config.env import SettingError
from vinery_platform.config.home import Credentials, Home
from vinery_platform.processes import heartbeats
from vinery_platform.processes import log_setup as logs
from vinery_platform.processes.listening import Address, listen, server_for

if TYPE_CHECKING:
    from celery.beat import Service

    from vinery_serving.transport.relayed import Join

log = logging.getLogger(__name__)

# How long the event loop waits for Python's global lock while another thread computes, such as the
# one that stores usage. Python's default, 5 ms, added 10 ms to a request in a hundred.
_SWITCH_INTERVAL_S: Final = 0.0005
# How late a periodic task may be when the machine was suspended; otherwise it is in time.
_CLOCK_INTERVAL_S: Final = 30
# Less than the grace of a web process, so the supervisor never waits for the jobs process.
_GRACE_S: Final = 4.0

# EX_TEMPFAIL of sysexits.h
PREPARED_LATER: Final = 75

# -- Preparing


def run_prepare(_: argparse.Namespace) -> int:
    """Create or upgrade the home folder and the database. `vinery up` does this itself; hosts that
    run single processes need it once after an upgrade. Exit status 75: the database is away, and
    the home serves from its copies until the command has succeeded."""
    home = Home.from_env()
    home.create()
    secret_files.create_missing(home)
    start_django()
    from django.db import Error as DatabaseError

    from vinery_accounts.base import sealed_table
    from vinery_accounts.base.errors import DATABASE_UNAVAILABLE
    from vinery_serving.models.registry import ensure_reference_model

    _refuse_bad_settings()
    try:
        _migrate()
        _create_first_credentials()
        ensure_reference_model()
    except DatabaseError as error:
        reason = f"The database cannot be used: {' '.join(str(error).split())}"
        if not isinstance(error, DATABASE_UNAVAILABLE):
            raise Failure(reason) from error
        if sealed_table.is_empty():
            raise Failure(f"{reason} This home has read nothing from it to serve.") from error
        log.warning("%s Keys, limits and models are those that were read last.", reason)
        return PREPARED_LATER
    return 0


def _refuse_bad_settings() -> None:
    """Raises `SettingError` for the first error of our system checks. Ignores warnings."""
    from django.core.checks import ERROR, run_checks

    from vinery_platform.web.apps import VINERY

    for message in run_checks(tags=[VINERY]):
        if message.level >= ERROR:
            raise SettingError(f"{message.msg} {message.hint}")


def _migrate() -> None:
    from django.core.management import call_command
    from django.db import connection
    from django.db.migrations.executor import MigrationExecutor

    from vinery_platform.operations.backup import newer_migration

    executor = MigrationExecutor(connection)
    if newer := newer_migration(executor):
        raise Failure(
            f"The database is of a newer version: {newer} is unknown here. Run the newer version "
            "of Vinery, or restore a backup of this one."
        )
    # Without migrations to apply, the command would still spend 0.5 s on permissions.
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        call_command("migrate", interactive=False, verbosity=0)
    # The cache has no model, so migrations do not create its table.
    call_command("createcachetable", verbosity=0)


def _create_first_credentials() -> None:
    """Create the first admin and key, and `bootstrap.json` with both.

    The file is written before the commit: after a crash in between, the next start creates new
    credentials and writes it again. In the other order, the credentials would be lost.
    """
    from django.conf import settings
    from django.db import transaction

    from vinery_accounts.keys.lifecycle import ensure_first_admin, ensure_first_key

    file, base_url = settings.HOME.bootstrap_file, settings.VINERY_ADDRESS.base_url
    with transaction.atomic():
        admin, password = ensure_first_admin()
        api_key = ensure_first_key(admin)
        if password is None and api_key is None:
            Credentials.update_url(file, base_url)
            return
        known = Credentials.read(file) or Credentials(base_url, "", "", "")
        api_key, password = api_key or known.api_key, password or known.admin_password
        new = Credentials(base_url, api_key, admin.get_username(), password)
        new.write(file)


# -- Web


def add_web(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fd", type=int, metavar="N", help="serve on this inherited listening socket instead"
    )


def run_web(arguments: argparse.Namespace) -> int:
    """Serve the APIs, the console and the admin site on VINERY_HOST, VINERY_PORT. After a SIGTERM
    the requests that run are answered."""
    heartbeats.drain_limit_s()  # a wrong one is reported now
    fd = arguments.fd
    try:
        sock = listen(Address.from_env()) if fd is None else socket.socket(fileno=fd)
    except OSError as error:
        raise SettingError(f"--fd {fd} is no open socket: {error.strerror}.") from error
    server = server_for(sock)
    start_django()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    with importing():
        own = import_module(f"vinery_platform.processes.{server}_server")
        application = _application()
        from vinery_serving.gateway.state.runtime import runtime
    try:
        own.serve(application, sock, runtime().drain, heartbeats.drain_limit_s)
    finally:
        heartbeats.end()
    return 0


def _application() -> Any:
    from channels.routing import get_default_application
    from django.conf import settings

    from vinery_platform.processes.memory import begin_giving_back
    from vinery_serving.gateway.state.runtime import runtime

    application = get_default_application()  # what ASGI_APPLICATION names
    # Import the pages now. The first request of one would do that in the event loop, for half a
    # second.
    import_module(settings.ROOT_URLCONF)
    begin_giving_back(is_idle=lambda: not runtime().live)
    proxies = settings.VINERY_TRUSTED_PROXIES
    return behind(application, proxies) if settings.VINERY_PUBLIC_URL else application


def behind(application: Any, proxies: Iterable[object]) -> Any:
    """The application with the client's address as the proxies of these networks report it.

    Each proxy appends the address that it sees to `X-Forwarded-For`, and clients can send any
    value. So the last address that is not one of these proxies counts, and only for requests that
    come from such a proxy. uvicorn's middleware does this, on every server.
    """
    from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

    return ProxyHeadersMiddleware(application, list(map(str, proxies)))


# -- Node and jobs


def run_jobs(_: argparse.Namespace) -> int:
    """Run background jobs and periodic tasks."""
    # Celery ignores what the checks find, and they import all pages: 1 s of each start.
    os.environ["CELERY_SKIP_CHECKS"] = "1"
    start_django()
    with importing():
        from celery import beat
        from celery.apps import worker as celery_worker
        from celery.exceptions import SecurityWarning
        from celery.signals import worker_shutting_down
        from django.conf import settings

        from vinery_platform.celery import app

    # Celery warns about root because of pickle; our workers accept JSON only.
    warnings.simplefilter("ignore", SecurityWarning)
    # Celery's worker writes its end to standard output past the logger.
    celery_worker.safe_say = lambda *_: None  # type: ignore[attr-defined]
    worker_shutting_down.connect(_end_in_time)
    scheduler = beat.Service(app, max_interval=_CLOCK_INTERVAL_S, scheduler_cls=beat.Scheduler)
    clock = threading.Thread(target=_run_beat, args=(scheduler,), name="beat", daemon=True)
    clock.start()
    worker = app.Worker(
        pool="threads",
        concurrency=2,
        loglevel=settings.VINERY_LOG_LEVEL,
        quiet=True,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    heartbeats.begin_in_thread((threading.main_thread(), clock))
    worker.start()
    scheduler.stop()
    return int(worker.exitcode or 0)


def _run_beat(scheduler: Service) -> None:
    try:
        scheduler.start()
    except Exception:
        # A worker without beat would run no periodic job: both end, and the supervisor restarts
        # them.
        log.exception("the scheduler of periodic tasks failed")
        os.kill(os.getpid(), signal.SIGTERM)


def _end_in_time(**_: Any) -> None:
    """End the process even if a job runs. Another worker takes over when its lease ends."""
    timer = threading.Timer(_GRACE_S, os._exit, args=(0,))
    timer.daemon = True
    timer.start()


def run_node(_: argparse.Namespace) -> int:
    """Watch which models should be loaded here, and run an engine for each."""
    start_django()
    with importing():
        from vinery_serving.node import reconciler

    return reconciler.run(heartbeats.begin_in_loop, logs.repeat)


# -- Relay


def run_relay(_: argparse.Namespace) -> int:
    """Let other hosts of the installation reach the engines of this host, at
    VINERY_HOST_ADDRESS."""
    home = Home.from_env()
    secret_files.require(home)
    if (address := Address.of_relay()) is None:
        raise SettingError("Set VINERY_HOST_ADDRESS to the host:port where other hosts connect.")
    if not (own := secret_files.host_key(home)):
        raise SettingError(f"{home.path} has no key of this host. Run: vinery prepare")
    with importing():
        import uvloop

        from vinery_serving.cluster.authority import Certificates, Role
        from vinery_serving.cluster.relay import Relay
    authorities = secret_files.authority_secrets(home)
    certificates = Certificates(authorities, own, Role.NODE)
    secret = secret_files.socket_secret(home)
    relay = Relay(home.run, secret, certificates, partial(_admit, authorities, asyncio.Lock()))
    setting = "VINERY_HOST_ADDRESS"
    listener = listen(address, of_host=setting, of_port=setting)

    async def serve() -> None:
        heartbeats.begin_in_loop()
        running = asyncio.ensure_future(relay.run(listener))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
        await asyncio.wait((running,))

    uvloop.run(serve())
    return 0


async def _admit(authorities: Sequence[bytes], turn: asyncio.Lock, wish: Join) -> bytes:
    """Answer a host that joins, by a process with the database. One runs at a time, and only for
    tokens that this installation has made."""
    import msgspec

    from vinery_serving.cluster import joining

    if not joining.is_genuine(wish.token, authorities, time.time()):
        return msgspec.msgpack.encode(joining.NO_SUCH_TOKEN)
    async with asyncio.timeout(joining.MAX_ANSWER_S), turn:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "vinery_platform.cli", "host", "admit"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        answer, _ = await process.communicate(msgspec.msgpack.encode(wish))
        return answer
