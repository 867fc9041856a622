"""The process of a job: reads one document, reports progress, and ends with a result or an error.

    python -m vinery_serving.models.jobs KIND < document

Standard error is the job's log. The process ends with the node that started it.
"""

import logging
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from vinery_serving.models.jobs import JobDocument, JobFailed, Reporter
from vinery_serving.processes import parent
from vinery_serving.processes.confine import confine

# The modules of the kinds, which this process alone imports. Each has `run`, which returns the
# result or raises JobFailed, and, if the job leaves unfinished files, `discard`; `needs` has what a
# confined process of the job needs.
_MODULES: Final[Mapping[str, str]] = {
    "pull": "vinery_serving.models.hub.origins",
    "convert": "vinery_serving.models.convert.conversion",
    "bench": "vinery_serving.models.speed.bench",
    "tune": "vinery_serving.models.speed.tune",
    "fetch": "vinery_serving.cluster.fetching",
}


def main() -> int:
    # What libraries print, native ones too, belongs in the log.
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    document = JobDocument.from_json(sys.stdin.buffer.read())
    # The next node begins the job again.
    parent.end_with(document.node_pid)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # Landlock confines no thread that runs already
    module: Any = import_module(_MODULES[document.kind])
    if hasattr(module, "needs"):
        confine(module.needs(document))
    if document.action == "discard":
        if hasattr(module, "discard"):
            module.discard(document)
        return 0
    reporter = Reporter(output)
    try:
        reporter.result(module.run(document, reporter))
    except JobFailed as failure:
        logging.error("%s", failure)
        reporter.error(str(failure))
        return 1
    except Exception as error:  # another attempt would end like this one
        logging.exception("The job ended unexpectedly")
        reporter.error(
            f"It ended unexpectedly ({type(error).__name__}). Its log has the reason: vinery job "
            f"log {document.job_id}"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
