"""`vinery jobs` and `vinery node`: the processes of `vinery up` that serve no requests.

Celery itself would run beat in a forked process, which outlives a killed worker, and keep its state
in a file that a kill may corrupt on systems without gdbm.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import threading
import warnings
from typing import TYPE_CHECKING, Any

from vinery_platform.broker import look_now
from vinery_platform.cli.shape import importing, start_django
from vinery_platform.processes import heartbeats
from vinery_platform.processes import log_setup as logs

if TYPE_CHECKING:
    from celery.beat import Service

log = logging.getLogger(__name__)

# How late a periodic task may be when the machine was suspended; otherwise it is in time.
_CLOCK_INTERVAL_S = 30
# Less than the grace of a web process, so the supervisor never waits for this one.
_GRACE_S = 4.0


def run_jobs(_: argparse.Namespace) -> int:
    """Run jobs until SIGTERM."""
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
    # It writes to standard output past the logger when it ends.
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
    look_now()


# -- The node, which runs one engine for each loaded model of this host


def run_node(_: argparse.Namespace) -> int:
    start_django()
    with importing():
        from vinery_serving.node import reconciler

    return reconciler.run(heartbeats.begin_in_loop, logs.repeat)
