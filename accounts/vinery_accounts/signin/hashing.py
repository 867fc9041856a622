"""Hashes passwords one at a time, with a lower priority.

A hash takes half a second of a core on purpose, and any client may ask for one with the form of
the sign-in. Requests for models have the same cores.
"""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from django.contrib.auth.hashers import PBKDF2PasswordHasher

# A quarter of a core that others want as well: a sign-in beside a busy engine takes seconds.
_NICENESS: Final = 5
_TURN: Final = threading.Lock()


class PatientHasher(PBKDF2PasswordHasher):
    """Django's hasher in a thread of its own: a thread cannot raise its priority again.

    It computes outside Python's global lock, so no other thread waits for it.
    """

    def encode(self, password: str, salt: str, iterations: int | None = None) -> str:
        with _TURN, ThreadPoolExecutor(1, "hashing", initializer=_be_patient) as thread:
            return thread.submit(super().encode, password, salt, iterations).result()


def _be_patient() -> None:
    if sys.platform == "linux":  # where threads have priorities of their own
        thread = threading.get_native_id()
        # A process that was started with `nice` may have more. Only root may lower it.
        niceness = max(_NICENESS, os.getpriority(os.PRIO_PROCESS, thread))
        os.setpriority(os.PRIO_PROCESS, thread, niceness)
