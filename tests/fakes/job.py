"""A job's process for tests: does what the parameters of its job name.

python -m tests.fakes.job KIND < document
"""

import os
import signal
import sys
import time
from pathlib import Path

from vinery_serving.models.jobs import JobDocument, Reporter


def main() -> int:
    document = JobDocument.from_json(sys.stdin.buffer.read())
    parameters, reporter = document.parameters, Reporter()
    begun = Path(parameters["begun"])  # a line for each process
    with begun.open("a") as file:
        file.write(f"{document.action} {os.getpid()}\n")
    if document.action == "discard":
        return 0
    sys.stderr.write("a line for the log\n")
    for text in parameters.get("writes", []):
        os.write(1, text.encode())
    reporter.progress("working", 1, 4)
    if len(begun.read_text().splitlines()) <= parameters.get("num_kills", 0):
        os.kill(os.getpid(), signal.SIGKILL)
    if parameters.get("blocks"):
        time.sleep(600)
    if error := parameters.get("error"):
        reporter.error(error)
        return 1
    reporter.result(parameters.get("result", {}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
