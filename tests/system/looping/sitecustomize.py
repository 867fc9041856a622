"""Lets a test drive a process of a platform into an endless loop, in its main thread.

Python imports this module at the start of each process with this folder on its path. The product
has no such entry point.
"""

import os
import signal
from pathlib import Path


def loop_for_ever(*_: object) -> None:
    Path(os.environ["VINERY_HOME"], f"looping-{os.getpid()}").touch()
    while True:
        pass


signal.signal(signal.SIGRTMIN, loop_for_ever)
