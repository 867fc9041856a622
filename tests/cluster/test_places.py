"""Rows of hosts and placements, on PostgreSQL; on SQLite the only host runs all."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.conftest import until
from vinery_accounts.access.access import Access
from vinery_accounts.models import User
from vinery_serving.cluster import files, places
from vinery_serving.cluster.lease import HostLease
from vinery_serving.cluster.placing import place_locally
from vinery_serving.gateway.state.model_rows import read_models
from vinery_serving.models.engine_status import EngineState, EngineStatus, ShownState
from vinery_serving.models.host_resource import HOSTS
from vinery_serving.models.host_rows import Host, Placement
from vinery_serving.models.job_rows import JobKind, JobState, ModelJob
from vinery_serving.models.models import ServedModel, own_folder

pytestmark = [pytest.mark.stores, pytest.mark.django_db(transaction=True)]
MOON, MARS = UUID(int=1), UUID(int=2)


@pytest.fixture
def on_host(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[UUID, str], None]:
    """Act as one of the hosts."""

    def act(id_: UUID, name: str) -> None:
        settings.VINERY_HOST_NAME = name
        monkeypatch.setattr(places, "host_id", lambda: id_)

    return act


@pytest.fixture
def leases() -> Iterator[dict[UUID, HostLease]]:
    found = {each: HostLease(each.int, str(each), lambda: now[0]) for each in (MOON, MARS)}
    now = [0.0]
    found[MOON].now = now  # type: ignore[attr-defined]
    for each in found.values():
        each.renew()
    found[MOON].renew()
    yield found
    for each in found.values():
        each.close()


def add_model(name: str, folder: Path, **values: Any) -> ServedModel:
    return ServedModel.objects.create(name=name, folder=str(folder), **values)


def where(model: ServedModel) -> list[str]:
    rows = Placement.objects.filter(model=model).order_by("replica", "host__name")
    return list(rows.values_list("host__name", flat=True))


def test_a_sole_host_runs_all_and_its_generation_counts_starts(
    on_host: Callable[[UUID, str], None],
) -> None:
    on_host(MOON, "moon")
    for _ in range(2):
        places.register()
    host = Host.objects.get()
    assert (host.pk, host.name, host.generation, host.state) == (MOON, "moon", 2, "active")
    assert places.own_replicas() is None
    assert places.by_model() == {}
    if connection.vendor == "sqlite":
        on_host(MARS, "mars")
        places.register()
        assert [each.name for each in Host.objects.all()] == ["mars"], "a restored home"
        with CaptureQueriesContext(connection) as queries:
            places.place(HostLease(1, "moon"), place_locally)
            assert places.own_replicas() is None
            assert places.report(1, []) == []
        assert len(queries) == 0


@pytest.mark.several_hosts
def test_replicas_move_from_a_host_that_drains_and_from_one_that_is_gone(
    on_host: Callable[[UUID, str], None], leases: dict[UUID, HostLease], tmp_path: Path
) -> None:
    def place() -> None:
        on_host(MOON, "moon")
        places.place(leases[MOON], place_locally)

    for id_, name in ((MOON, "moon"), (MARS, "mars")):
        on_host(id_, name)
        places.register()
    two, one = add_model("two", tmp_path, num_replicas=2), add_model("one", tmp_path)
    place()
    assert where(two) == ["mars", "moon"]
    assert where(one) == ["mars"]
    with CaptureQueriesContext(connection) as queries:
        place()
    assert not [each for each in queries if each["sql"].startswith(("INSERT", "UPDATE", "DELETE"))]

    on_host(MARS, "mars")
    assert places.own_replicas() == {(two.pk, 0), (one.pk, 0)}
    ready = {"state": EngineState.READY, "pid": 7, "num_restarts": 1, "device": "CPU", "error": ""}
    places.report(one.pk, [{"replica": 0, **ready}])
    Host.objects.filter(pk=MARS).update(is_draining=True)
    place()
    assert where(one) == ["mars", "moon"], "mars serves until moon does"
    found = places.report(one.pk, [{"replica": 0, **ready, "pid": 8}])
    assert [(each["host"], each["pid"]) for each in found] == [("mars", 7), ("moon", 8)]
    assert places.aggregate(found)["num_restarts"] == 2
    place()
    assert where(one) == ["moon"]
    Host.objects.filter(pk=MARS).update(is_draining=False)

    EngineStatus.objects.update_or_create(model=two, defaults={"num_waiting_to_load": 1})
    leases[MARS].close()
    moon, mars = leases[MOON], leases[MARS].number
    until(lambda: moon.renew() and not moon.is_renewed(mars))
    for _ in range(4):
        leases[MOON].now[0] += 4.0  # type: ignore[attr-defined]
        leases[MOON].renew()
        place()
    assert where(two) == ["moon", "moon"]
    assert EngineStatus.objects.get(model=two).num_waiting_to_load == 0, "mars may have waited"
    assert Host.objects.get(pk=MARS).state == "gone"
    assert places.own_replicas() is None, "moon is the only host"

    on_host(MARS, "mars")
    assert places.own_replicas() == frozenset(), "its replicas run elsewhere now"
    assert Host.objects.get(pk=MARS).state == "active"


@pytest.mark.several_hosts
def test_a_model_without_a_host_has_the_reason_and_a_host_says_which_files_it_lacks(
    on_host: Callable[[UUID, str], None], leases: dict[UUID, HostLease], tmp_path: Path
) -> None:
    for id_, name in ((MARS, "mars"), (MOON, "moon")):
        on_host(id_, name)
        places.register()
    folder = tmp_path / "folder"
    model = add_model("one", folder, host_labels=["host=moon"])
    for _ in range(2):
        places.place(leases[MOON], place_locally)
        places.own_replicas()
    places.report(model.pk, [{"replica": 0, "state": EngineState.FAILED, "pid": None}])
    places.place(leases[MOON], place_locally)
    assert where(model) == ["moon"]
    assert Host.objects.get(pk=MOON).lacks == [str(folder)]

    Placement.objects.all().delete()
    places.place(leases[MOON], place_locally)
    assert where(model) == []
    status = EngineStatus.objects.get()
    assert status.state == EngineState.FAILED
    assert status.last_error == (
        "No host can run it: mars has not the label host=moon, moon does not have its files."
    )
    folder.mkdir()
    places.own_replicas()
    places.place(leases[MOON], place_locally)
    assert where(model) == ["moon"]

    places.report(model.pk, [{"replica": 0, "state": EngineState.READY, "pid": None}])
    EngineStatus.objects.update(last_error="", state=EngineState.READY)
    Host.objects.filter(pk=MOON).update(is_draining=True)
    places.place(leases[MOON], place_locally)
    assert where(model) == ["moon"], "no other host may run it"
    status = EngineStatus.objects.get()
    assert (status.state, status.last_error) == (
        EngineState.READY,
        "No host can run it: mars has not the label host=moon, moon is being drained.",
    )
    Host.objects.update(is_draining=False)
    places.place(leases[MOON], place_locally)
    assert EngineStatus.objects.get().last_error == ""


@pytest.mark.several_hosts
def test_a_model_waits_with_the_reason_while_the_host_that_can_run_it_is_away(
    on_host: Callable[[UUID, str], None], leases: dict[UUID, HostLease], tmp_path: Path
) -> None:
    for id_, name in ((MARS, "mars"), (MOON, "moon")):
        on_host(id_, name)
        places.register()
    model = add_model("one", tmp_path, host_labels=["host=mars"])
    leases[MARS].close()
    moon, mars = leases[MOON], leases[MARS].number
    until(lambda: moon.renew() and not moon.is_renewed(mars))
    places.place(moon, place_locally)
    assert where(model) == []
    model = ServedModel.objects.get()
    assert model.shown_state is ShownState.WAITING
    assert model.status.last_error == (
        "No host can run it yet: mars is away, moon has not the label host=mars."
    )
    EngineStatus.objects.update(state=EngineState.FAILED)  # as without the label anywhere
    places.place(moon, place_locally)
    assert ServedModel.objects.get().shown_state is ShownState.WAITING


@pytest.fixture
def fetched(
    on_host: Callable[[UUID, str], None],
    leases: dict[UUID, HostLease],
    tmp_path: Path,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> ServedModel:
    """A model of moon, of which mars has a replica and no files. This is mars."""
    settings.VINERY_PULLED_DIR = tmp_path / "models"
    settings.VINERY_RUN_DIR = tmp_path
    for id_, name in ((MOON, "moon"), (MARS, "mars")):
        on_host(id_, name)
        places.register()
    settings.VINERY_HOST_KEY = "k"
    found = {"address": "moon:8001", "fingerprint": "f", "digests": {"m/1": ["d", 9]}}
    Host.objects.filter(pk=MOON).update(**found)
    model = add_model("one", tmp_path / "models" / "m" / "1", num_replicas=2)
    places.place(leases[MOON], place_locally)
    assert where(model) == ["moon", "mars"]
    monkeypatch.setattr(files, "host_id", lambda: MARS)
    return model


def has_small_files() -> None:
    ModelJob.objects.update(state=JobState.DONE)
    own_folder(".small/m/1").mkdir(parents=True)


@pytest.mark.several_hosts
def test_a_host_fetches_the_files_of_its_replica_and_runs_it_then(fetched: ServedModel) -> None:
    for _ in range(2):
        assert places.own_replicas() == frozenset(), "not before the files are there"
    assert ModelJob.objects.get().parameters == {
        "host": str(MARS),
        "on": "mars",
        "folder": ".small/m/1",
        "kind": "host",
        "name": "moon",
        "address": "moon:8001",
        "fingerprint": "f",
        "generation": 1,
        "digest": "d",
        "list_bytes": 9,
    }
    assert Host.objects.get(pk=MARS).lacks == []
    has_small_files()
    for _ in range(2):
        assert places.own_replicas() == frozenset()
    assert ModelJob.objects.get(state=JobState.WAITING).parameters["folder"] == "m/1"
    Path(fetched.folder).mkdir(parents=True)
    assert places.own_replicas() == {(fetched.pk, 1)}


@pytest.mark.several_hosts
def test_a_host_fetches_the_folders_that_options_name_and_knows_them_by_its_own_paths(
    fetched: ServedModel, tmp_path: Path, settings: Any
) -> None:
    models = tmp_path / "models"
    Path(fetched.folder).mkdir(parents=True)
    adapter = {"path": str(models / "a" / "x.safetensors")}
    fetched.options = {"draft_model": str(models / "d" / "1"), "adapters": [adapter]}
    fetched.save(update_fields=["options"])
    assert places.own_replicas() == {(fetched.pk, 1)}, "the host reports what is missing"
    assert Host.objects.get(pk=MARS).lacks == ["a", "d/1"]
    moon = Host.objects.get(pk=MOON)
    moon.digests |= {"d/1": ["e", 9], "a": ["f", 9]}
    moon.save()
    assert places.own_replicas() == frozenset()
    assert Host.objects.get(pk=MARS).lacks == []
    assert {each.parameters["folder"] for each in ModelJob.objects.all()} == {"d/1", "a"}
    for each in ("d/1", "a"):
        (models / each).mkdir(parents=True)
        (models / each / "x.safetensors").touch()
    (models / "m/1/x").touch()
    assert places.own_replicas() == {(fetched.pk, 1)}
    asyncio.run(files.note_folders())
    assert Host.objects.get(pk=MARS).digests.keys() == {"m/1", "d/1", "a"}

    digest = fetched.settings_digest
    settings.VINERY_PULLED_DIR = Path("/another/home/models")
    other = ServedModel.objects.get()
    assert other.options == {
        "draft_model": "/another/home/models/d/1",
        "adapters": [{"path": "/another/home/models/a/x.safetensors"}],
    }
    assert other.settings_digest == digest


@pytest.mark.several_hosts
def test_web_processes_read_the_small_files_of_models_that_run_elsewhere(
    fetched: ServedModel, settings: Any
) -> None:
    Placement.objects.filter(host=MARS).delete()
    places.own_replicas()
    assert ModelJob.objects.get().parameters["folder"] == ".small/m/1"
    has_small_files()
    places.own_replicas()
    assert not ModelJob.objects.exclude(state=JobState.DONE).exists(), "no weights"
    (entries, *_), _ = read_models()
    assert entries["one"].folder == own_folder(".small/m/1")
    digest = fetched.settings_digest
    settings.VINERY_PULLED_DIR = Path("/another/home/models")
    other = ServedModel.objects.get()
    assert other.folder == "/another/home/models/m/1"
    assert other.settings_digest == digest, "web processes of all homes find the engines"


@pytest.mark.several_hosts
def test_a_failed_fetch_is_not_begun_again_from_there_and_a_cancelled_one_not_at_all(
    fetched: ServedModel,
) -> None:
    has_small_files()
    places.own_replicas()
    ModelJob.objects.update(state=JobState.FAILED)
    assert places.own_replicas() == {(fetched.pk, 1)}, "the host reports what is missing"
    assert Host.objects.get(pk=MARS).lacks == ["m/1"]
    moon = Host.objects.get(pk=MOON)
    Host.objects.create(name="sun", address="sun:1", fingerprint="s", digests=moon.digests)
    assert places.own_replicas() == frozenset()
    assert Host.objects.get(pk=MARS).lacks == []
    waiting = ModelJob.objects.filter(state=JobState.WAITING)
    assert waiting.get().parameters["name"] == "sun"
    waiting.update(state=JobState.CANCELLED)
    Host.objects.create(name="star", address="star:1", fingerprint="s", digests=moon.digests)
    assert places.own_replicas() == {(fetched.pk, 1)}


@pytest.mark.several_hosts
def test_what_no_host_has_comes_from_the_hub_or_from_nowhere(
    fetched: ServedModel, tmp_path: Path
) -> None:
    Host.objects.update(digests={})
    assert places.own_replicas() == {(fetched.pk, 1)}
    source = {"kind": "hub", "endpoint": "https://hub", "repository": "a/b", "include": []}
    source |= {"revision": "main", "commit": "c" * 40, "licence": "x"}
    of_hub = str(tmp_path / "models" / "a--b" / ("c" * 12))
    ServedModel.objects.update(source=source, folder=of_hub)
    assert places.own_replicas() == frozenset()
    assert ModelJob.objects.get().parameters["repository"] == "a/b"
    ModelJob.objects.all().delete()
    elsewhere = str(tmp_path / "elsewhere")
    ServedModel.objects.update(folder=elsewhere)
    assert places.own_replicas() == {(fetched.pk, 1)}
    assert Host.objects.get(pk=MARS).lacks == [elsewhere]
    assert not ModelJob.objects.exists()


@pytest.mark.several_hosts
def test_a_folder_elsewhere_is_copied_into_the_folder_of_the_models(
    fetched: ServedModel, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    ServedModel.objects.update(folder=str(elsewhere))
    Host.objects.filter(pk=MOON).update(digests={str(elsewhere): ["d", 9]})
    own_folder(f".small/{elsewhere}").mkdir(parents=True)
    assert places.own_replicas() == frozenset()
    assert ModelJob.objects.get().parameters["folder"] == str(elsewhere)
    before = ServedModel.objects.get()
    copy = tmp_path / "models" / f".copies{elsewhere}"
    copy.mkdir(parents=True)
    assert places.own_replicas() == {(fetched.pk, 1)}
    after = ServedModel.objects.get()
    assert (before.folder, after.folder) == (str(elsewhere), str(copy))
    assert before.settings_digest == after.settings_digest, "all hosts find the same socket"
    after.save()
    elsewhere.mkdir()
    assert ServedModel.objects.get().folder == str(elsewhere), "the original counts where it is"


@pytest.mark.several_hosts
def test_hosts_fetch_at_the_same_time_and_one_that_is_removed_does_not(
    fetched: ServedModel,
) -> None:
    parameters = {"host": str(UUID(int=3)), "on": "sun", "folder": "m/1"}
    ModelJob.objects.create(model=fetched, kind=JobKind.FETCH, parameters=parameters)
    assert places.own_replicas() == frozenset()
    assert {each.parameters["on"] for each in ModelJob.objects.all()} == {"sun", "mars"}
    Host.objects.filter(pk=MARS).update(is_gone=True)
    administrator = Access.of(User.objects.create_superuser("root"))
    HOSTS.remove(administrator, Host.objects.get(pk=MARS))
    assert [each.parameters["on"] for each in ModelJob.objects.all()] == ["sun"]


@pytest.mark.several_hosts
def test_a_host_that_was_removed_while_it_lives_says_so(
    on_host: Callable[[UUID, str], None], caplog: pytest.LogCaptureFixture
) -> None:
    on_host(MOON, "moon")
    places.register()
    places.own_replicas()
    assert not caplog.messages
    Host.objects.all().delete()
    for _ in range(2):
        places.own_replicas()
    (message,) = caplog.messages
    assert "restart" in message.lower()


@pytest.mark.several_hosts
def test_a_host_says_which_folders_others_can_fetch(
    fetched: ServedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def noted() -> dict[str, list[Any]]:
        asyncio.run(files.note_folders())
        found: dict[str, list[Any]] = Host.objects.get(pk=MARS).digests
        return found

    folder, outside = Path(fetched.folder), tmp_path / "outside"
    folder.mkdir(parents=True)
    outside.mkdir()
    add_model("outside", outside)
    (folder / "x").write_text("1")
    first = noted()
    assert list(first) == ["m/1"], "nothing shows that a model lies outside"
    (outside / "config.json").write_text("{}")
    assert noted().keys() == {"m/1", str(outside)}
    (outside / "config.json").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(files, "_read", None)  # nothing is read again
        assert noted() == first
    (folder / "x").write_text("22")
    assert noted()["m/1"] != first["m/1"]
    (folder / "link").symlink_to(tmp_path)
    assert noted() == {}


@pytest.mark.several_hosts
def test_web_processes_see_the_replicas_that_they_can_reach(
    on_host: Callable[[UUID, str], None],
    leases: dict[UUID, HostLease],
    tmp_path: Path,
    settings: Any,
) -> None:
    for id_, name in ((MARS, "mars"), (MOON, "moon")):
        on_host(id_, name)
        places.register()
    model = add_model("two", tmp_path, num_replicas=2)
    places.place(leases[MOON], place_locally)
    assert [each.host.name for each in places.by_model()[model.pk]] == ["moon"]
    Host.objects.filter(name="mars").update(address="mars:8001", fingerprint="f")
    assert [each.host.name for each in places.by_model()[model.pk]] == ["moon"], "without a key"
    settings.VINERY_HOST_KEY = "k"
    assert [each.host.name for each in places.by_model()[model.pk]] == ["mars", "moon"]
