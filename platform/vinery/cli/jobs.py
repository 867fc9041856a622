"""`vinery jobs`: the Celery worker, with the clock of periodic tasks in a thread.

Celery itself would run the clock in a forked process, which outlives a worker that is
killed, and keep its state in a file that does not survive a kill on systems without gdbm.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import threading
import warnings
from typing import TYPE_CHECKING, Any

from vinery.cli.shape import Commands, start_django

if TYPE_CHECKING:
    from celery.beat import Service

log = logging.getLogger(__name__)

_CONCURRENCY = 2
# Less than a web process may take, so that this one is never the last.
_GRACE_S = 4.0


def add_to(commands: Commands) -> None:
    """Add `vinery jobs`."""
    parser = commands.add_parser(
        "jobs",
        help="run background jobs (started by `up`)",
        description="Run background jobs and periodic tasks from Redis, or from the home folder.",
    )
    parser.set_defaults(run=run)


def run(_: argparse.Namespace) -> int:
    """Run jobs until SIGTERM."""
    start_django()
    from celery import beat
    from celery.exceptions import SecurityWarning
    from celery.signals import worker_shutting_down
    from django.conf import settings

    from vinery.celery import app

    # Root is a danger to workers that unpickle; ours read JSON only.
    warnings.simplefilter("ignore", SecurityWarning)
    worker_shutting_down.connect(_end_in_time)
    clock = beat.Service(app, max_interval=1, scheduler_cls=beat.Scheduler)
    threading.Thread(target=_tick, args=(clock,), name="clock", daemon=True).start()
    worker = app.Worker(
        pool="threads",
        concurrency=_CONCURRENCY,
        loglevel=settings.VINERY_LOG_LEVEL,
        quiet=True,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    worker.start()
    clock.stop()
    return int(worker.exitcode or 0)


def _tick(clock: Service) -> None:
    """Run the clock. A worker whose clock broke ends, so that the supervisor renews both."""
    try:
        clock.start()
    except Exception:
        log.exception("the clock of periodic tasks broke")
        os.kill(os.getpid(), signal.SIGTERM)


def _end_in_time(**_: Any) -> None:
    """A job that goes on after SIGTERM is left: its row in the database has a lease, so
    another worker takes it up. A thread cannot be ended, so the process is."""
    timer = threading.Timer(_GRACE_S, os._exit, args=(0,))
    timer.daemon = True
    timer.start()
