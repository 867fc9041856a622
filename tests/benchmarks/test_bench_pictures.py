"""The benchmark of pictures starts an engine process without a home and without tables."""

import subprocess
import sys

from tests.conftest import REPOSITORY, clean_environment


def test_the_benchmark_of_pictures_needs_no_settings_of_django() -> None:
    subprocess.run(
        [sys.executable, "-c", "import benchmarks.pictures"],
        cwd=REPOSITORY,
        env=clean_environment(),
        check=True,
    )
