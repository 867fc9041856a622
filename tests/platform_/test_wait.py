"""`vinery wait` reports what models do, line by line, and ends."""

from collections.abc import Callable, Iterable
from datetime import timedelta

import pytest
from django.utils import timezone

from tests.conftest import REPOSITORY
from vinery.cli import commands, wait
from vinery.cli.wait import Progress
from vinery_serving.catalog.engine_status import EngineState, EngineStatus
from vinery_serving.catalog.models import ServedModel

pytestmark = pytest.mark.django_db

FOLDER = REPOSITORY / "models" / "tiny-chat"
Serve = Callable[..., ServedModel]


@pytest.mark.parametrize(
    ("steps", "reason", "lines"),
    [
        (
            [(second, "loading", second) for second in range(40)],
            "",
            ["m: loading", *(f"m: loading ({n} s)" for n in (3, 6, 12, 24))],
        ),
        # The time of a load counts from its beginning.
        (
            [(100.0, "loading", 2.0), (103.0, "ready", 1.0)],
            "",
            ["m: loading", "m: ready after 4 s"],
        ),
        ([(100.0, "ready", 50.0), (101.0, "ready", 51.0)], "", ["m: ready"]),
        (
            [
                *((0.0, "waiting", 0.0), (0.5, "retrying", 0.0)),
                *((1.0, "failed", 0.0), (9.0, "failed", 8.0)),
            ],
            "There is no folder /x.",
            [
                *("m: waiting", "m: retrying: There is no folder /x."),
                "m: failed: There is no folder /x.",
            ],
        ),
    ],
    ids=["loading", "ready", "ready before", "failed"],
)
def test_a_state_is_reported_once_and_a_load_less_and_less_often(
    steps: Iterable[tuple[float, str, float]], reason: str, lines: list[str]
) -> None:
    progress = Progress("m")

    found = (
        progress.lines(state, state, reason=reason, age_s=age_s, now_s=now_s)
        for now_s, state, age_s in steps
    )

    assert [line for each in found for line in each] == lines


@pytest.fixture
def serve() -> Serve:
    """Serve a model in a state, without a node."""

    def serve_model(
        name: str, state: str = EngineState.READY, error: str = "", *, is_loaded: bool = True
    ) -> ServedModel:
        model = ServedModel.objects.create(name=name, folder=str(FOLDER), is_loaded=is_loaded)
        EngineStatus.objects.create(model=model, state=state, last_error=error)
        long_ago = timezone.now() - timedelta(minutes=5)
        EngineStatus.objects.filter(model=model).update(changed_at=long_ago)
        ServedModel.objects.filter(pk=model.pk).update(updated_at=long_ago)  # no change since
        return model

    return serve_model


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """Run the command, and return its status and its lines."""
    monkeypatch.setattr(wait, "_POLL_S", 0.01)

    def run_wait(*words: str) -> tuple[int, list[str]]:
        arguments = commands.parser("wait").parse_args(["wait", *words])
        return arguments.run(arguments), capsys.readouterr().out.splitlines()

    return run_wait


Run = Callable[..., tuple[int, list[str]]]


def test_ready_and_failed_models_end_the_wait(serve: Serve, run: Run) -> None:
    serve("good")
    assert run() == (0, ["good: ready"])

    serve("bad", EngineState.FAILED, "The weights do not fit.\n\nException from core.cpp")
    assert run() == (1, ["bad: failed: The weights do not fit.", "good: ready"])
    assert run("good") == (0, ["good: ready"])


def test_a_model_that_does_not_get_ready_ends_the_wait_too(serve: Serve, run: Run) -> None:
    serve("slow", EngineState.LOADING)

    status, lines = run("--timeout", "1")

    assert status == 1
    assert lines[0] == "slow: loading"
    assert lines[-1].startswith("slow: not ready after 1 s. It goes on; see: ")


def test_without_a_model_it_shows_how_to_add_one(serve: Serve, run: Run) -> None:
    status, [line] = run()
    assert status == 0
    assert line.startswith("No model is served yet. Add one: ")
    assert line.endswith("vinery model add FOLDER --name NAME")

    serve("idle", EngineState.UNLOADED, is_loaded=False)
    status, [line] = run()
    assert line.endswith("vinery model load NAME")


@pytest.mark.parametrize(
    ("name", "message"), [("none", "No model is served as none"), ("idle", "idle is not loaded")]
)
def test_a_model_that_will_not_get_ready_is_refused(
    serve: Serve, run: Run, name: str, message: str
) -> None:
    serve("idle", EngineState.UNLOADED, is_loaded=False)

    with pytest.raises(wait.Failure, match=message):
        run(name)
