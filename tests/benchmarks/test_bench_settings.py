"""The command line of the benchmark."""

import pytest

from benchmarks.load import Endpoint
from benchmarks.settings import settings_from
from tests.tables import table


def test_it_measures_everything_by_default() -> None:
    settings = settings_from([])

    assert settings.models == ("tiny-chat", "0.5b")
    assert settings.effort.streams == (1, 8, 16, 32, 64)
    assert settings.server is None
    parts = ("server", "requests", "hook", "speculation", "recovery", "idle", "overload")
    assert settings.parts == parts
    assert settings_from(["--only", "hook"]).parts == ("hook",)


def test_what_is_given_wins_over_quick() -> None:
    effort = settings_from(["--quick", "--streams", "64", "--tokens", "16"]).effort

    assert (effort.streams, effort.tokens, effort.rounds) == ((64,), 16, 1)


def test_it_takes_a_running_server_and_never_reports_the_key() -> None:
    settings = settings_from(["--server-url", "http://127.0.0.1:8000/", "--api-key", "secret"])

    assert settings.server == Endpoint("http://127.0.0.1:8000", "secret")
    assert "secret" not in str(settings.described)
    assert settings.described["server"] == "http://127.0.0.1:8000"


@table("arguments", [["--models", "other"], ["--streams", "many"], ["--only", "x"]])
def test_it_refuses_what_it_does_not_know(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        settings_from(arguments)
