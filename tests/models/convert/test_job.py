"""The job `convert` as its own process, and the requests of commands and API."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from tests.conftest import REPOSITORY, until
from tests.models.convert.checkpoints import write_checkpoint
from tests.models.convert.fake_environment import write_environment
from tests.models.convert.test_conversion import COPY, write_source
from vinery_platform.cli import main
from vinery_serving.models import job_requests
from vinery_serving.models.engine_status import ShownState
from vinery_serving.models.job_requests import Conversion, take_result
from vinery_serving.models.job_rows import JobState, ModelJob
from vinery_serving.models.jobs import JobDocument
from vinery_serving.models.models import ServedModel

_DEADLINE_S = 60.0


class Home:
    """A home with a checkpoint beside it, and an environment whose exporter the test writes."""

    def __init__(self, tmp_path: Path, exporter: str) -> None:
        self.path = tmp_path / "home"
        self.source = write_source(tmp_path / "tiny")
        write_environment(self.path / "environments", exporter)

    @property
    def output(self) -> Path:
        return self.path / "models" / "converted" / "org-tiny-int4-7"

    def start(self, action: str = "run", **options: Any) -> subprocess.Popen[bytes]:
        parameters = {"source": str(self.source), "precision": "int4", **options}
        of_job: dict[str, Any] = {"kind": "convert", "action": action, "job_id": 7}
        of_job |= {"node_pid": os.getpid(), "model": "org/tiny", "home": self.path}
        document = JobDocument(**of_job, parameters=parameters)
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        words = [sys.executable, "-m", "vinery_serving.models.jobs", "convert"]
        process = subprocess.Popen(words, **pipes)
        assert process.stdin is not None
        process.stdin.write(document.to_json())
        process.stdin.close()
        process.stdin = None
        return process

    def run(self, action: str = "run", **options: Any) -> tuple[list[dict[str, Any]], bytes]:
        """The lines of progress, and the log."""
        output, log = self.start(action, **options).communicate(timeout=_DEADLINE_S)
        return [json.loads(line) for line in output.splitlines()], log


def test_its_process_reports_stages_a_result_and_a_live_log_or_one_sentence(tmp_path: Path) -> None:
    home = Home(tmp_path, COPY)
    lines, log = home.run()
    assert [line["stage"] for line in lines[:-1]] == [
        *("preparing the environment", "converting", "checking the converted model")
    ]
    result = lines[-1]["result"]
    assert result["folder"] == str(home.output)
    assert result["line"] == "5.0"
    assert b"exporting with" in log
    # Restarted, because nobody noticed the end.
    assert home.run()[0] == [{"result": {"folder": str(home.output)}}]
    assert home.run("discard") == ([], b"")
    assert not home.output.exists()
    lines, _ = Home(tmp_path / "other", "").run(group_size=0)
    assert lines == [{"error": "group_size must be -1 or positive."}]


def test_sigterm_ends_its_exporter_and_leaves_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path, f"{COPY}    import time; time.sleep(600)\n")
    process = home.start()
    draft = home.output.with_name(f".{home.output.name}.converting")
    until((draft / "config.json").exists, timeout_s=_DEADLINE_S)
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=_DEADLINE_S)
    assert process.returncode == 1
    assert b"The conversion was cancelled." in log
    assert list(home.output.parent.iterdir()) == []


@pytest.mark.django_db(transaction=True)
class TestAsking:
    """Commands and API ask for a conversion; the node carries it out."""

    def test_the_command_adds_a_model_of_a_known_architecture(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "config.json").write_text('{"model_type": "horse"}')
        assert main(("model", "convert", str(tmp_path))) == 1  # type: ignore[no-untyped-call]
        assert "no conversion of the architecture horse" in capsys.readouterr().err
        assert not ServedModel.objects.exists()
        source = write_checkpoint(tmp_path / "tiny")
        words = ("--precision", "int4", "--group-size", "64", "--sym", "--name", "org/tiny")
        assert main(("model", "convert", str(source), *words)) == 0  # type: ignore[no-untyped-call]
        job = ModelJob.objects.get()
        assert f"vinery job log {job.pk}" in capsys.readouterr().out
        wanted = {"source": str(source), "precision": "int4", "group_size": 64, "sym": True}
        assert job.parameters == wanted
        assert job.model.name == "org/tiny"
        assert job.model.shown_state == ShownState.CONVERTING

    def test_a_model_gets_the_folder_of_its_only_conversion(self, tmp_path: Path) -> None:
        old, new = tmp_path / "old", REPOSITORY / "models" / "tiny-chat"
        source = write_checkpoint(tmp_path / "tiny")
        old.symlink_to(new)
        model = ServedModel.objects.create(name="m", folder=str(old))
        job = job_requests.convert(Conversion(folder=str(source), name="m"))
        model.refresh_from_db()
        assert model.folder == str(old)
        assert take_result(job, {"folder": str(new)}) == ""
        model.refresh_from_db()
        job.refresh_from_db()
        assert (model.folder, job.state) == (str(new), JobState.DONE)
        job_requests.convert(Conversion(folder=str(source), name="m"))
        with pytest.raises(ValidationError, match="has a job of this kind"):
            job_requests.convert(Conversion(folder=str(source), name="m"))
