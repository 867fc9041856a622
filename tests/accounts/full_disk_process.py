"""A process with limited disk space, which answers requests until a refusal, and is killed.

The process prints the numbers of answered and of running requests.
"""

import contextlib
import os
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import django

_FILE_BYTES = 512 * 1024


def main(folder: Path) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "vinery_platform.settings")
    django.setup()
    from django.db import OperationalError
    from usage_builders import admission, settlement

    from vinery_accounts.usage.entries import Settlement
    from vinery_accounts.usage.ledger import NoRoomForUsage, UsageLedger

    def unavailable(settlements: Sequence[Settlement]) -> None:
        raise OperationalError("database or disk is full")

    resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE_BYTES, _FILE_BYTES))
    ledger = UsageLedger(folder, store=unavailable, reserve_bytes=200_000)
    for number in range(3):
        ledger.admit(admission(f"long{number}"))
    num_answered = 0
    with contextlib.suppress(NoRoomForUsage):
        while True:
            ledger.admit(admission(f"r{num_answered}"))
            ledger.checkpoint([("long0", 1, 0, num_answered, 0)])
            ledger.settle(settlement(f"r{num_answered}"))
            num_answered += 1
            if num_answered % 100 == 0:
                with contextlib.suppress(OperationalError):
                    ledger.flush()
    sys.stdout.write(f"{num_answered}\n3\n")
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
