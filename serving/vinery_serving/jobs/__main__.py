"""The process of a job: reads one document, reports progress, and ends with a result or an error.

    python -m vinery_serving.jobs KIND < document

Its standard error is the job's log. It ends with the node that has started it.
"""

import logging
import sys

from vinery_serving.jobs.kinds import discard_of, run_of
from vinery_serving.jobs.progress import JobDocument, JobFailed, Reporter
from vinery_serving.processes import parent


def main() -> int:
    output, sys.stdout = sys.stdout, sys.stderr  # what libraries print belongs in the log
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    document = JobDocument.from_json(sys.stdin.buffer.read())
    # The next node begins the job again.
    parent.end_with(document.node_pid)
    if document.action == "discard":
        discard = discard_of(document.kind)
        if discard is not None:
            discard(document)
        return 0
    reporter = Reporter(output)
    try:
        reporter.result(run_of(document.kind)(document, reporter))
    except JobFailed as failure:
        logging.error("%s", failure)
        reporter.error(str(failure))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
