"""The tester shows each step that a request would take, and keeps nothing."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.conftest import REPOSITORY
from tests.media.pdfs import pages, pdf, words
from tests.media.picture_server import picture, serving_a_picture
from tests.tables import table
from vinery_accounts.access import changes
from vinery_accounts.access.access import Access
from vinery_accounts.keys.lifecycle import create_key
from vinery_accounts.models import Organization, Project, Role, Scope, User
from vinery_accounts.resources.base import EVERYTHING, Conflict
from vinery_serving.core.media import InlineSource, MediaKind, MediaPart, Picture
from vinery_serving.gateway.reading.media import RequestMedia
from vinery_serving.media.probe import probe
from vinery_serving.media.tables import tester
from vinery_serving.media.tables.models import MediaDenial, MediaFolder, MediaRule
from vinery_serving.media.tables.tester import Verdict
from vinery_serving.models import registry
from vinery_serving.models.models import ServedModel
from vinery_serving.prompting.folder import ModelFolder
from vinery_serving.prompting.vision import load_processor

pytestmark = pytest.mark.django_db(transaction=True)
NO_MODEL = "no vision model is loaded, so none can see it"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving_a_picture(picture()) as port:
        yield port


@pytest.fixture
def rule(port: int) -> MediaRule:
    return changes.add(
        MediaRule(host="127.0.0.1", schemes=["http"], ports=[port], networks=["127.0.0.0/8"])
    )


def shown(verdict: Verdict) -> list[tuple[str, bool | None]]:
    return [(step.name, step.is_ok) for step in verdict.steps]


def test_an_allowed_picture_has_its_steps(port: int, rule: MediaRule, project: Project) -> None:
    verdict = tester.test(EVERYTHING, f"http://127.0.0.1:{port}/cat.png?secret=1", None, None)

    names = ("rule", "addresses", "response", "bytes", "decoding")
    assert shown(verdict) == [*((each, True) for each in names), ("tokens", None)]
    assert verdict.is_allowed
    assert verdict.steps[-2].text == "picture of 40 x 30 pixels"
    assert verdict.steps[-1].text == NO_MODEL
    assert f"rule {rule.pk}" in verdict.steps[0].text
    assert "secret" not in str(verdict)

    ours = {"host": "127.0.0.1", "schemes": ["http"], "ports": [port]}
    changes.add(MediaRule(**ours, organization=project.organization))
    url = f"http://127.0.0.1:{port}/cat.png"
    assert tester.test(EVERYTHING, url, project.organization_id, project.pk).is_allowed
    changes.change(rule, networks=[])
    assert not tester.test(EVERYTHING, url, project.organization_id, project.pk).is_allowed


@table(
    "values, path, step, text",
    [
        ({"max_bytes": 10}, "cat.png", "denied", "bytes than the 10 "),
        ({"max_pixels": 100}, "cat.png", "decoding", "at most 100 are read"),
        ({"is_active": False}, "cat.png", "denied", "do not allow http://127.0.0.1"),
    ],
)
def test_the_last_step_is_the_one_that_refuses(
    port: int, rule: MediaRule, values: dict[str, Any], path: str, step: str, text: str
) -> None:
    before = {name: getattr(rule, name) for name in values}
    changes.change(rule, **values)

    verdict = tester.test(EVERYTHING, f"http://127.0.0.1:{port}/{path}", None, None)

    changes.change(rule, **before)
    assert not verdict.is_allowed
    assert shown(verdict)[-1] == (step, False)
    assert text in verdict.steps[-1].text
    assert not MediaDenial.objects.exists()


def test_a_file_of_an_allowed_folder_is_read(tmp_path: Path, project: Project) -> None:
    folder = tmp_path.resolve()
    (folder / "cat.png").write_bytes(picture())
    changes.add(MediaFolder(folder=str(folder)))
    ids = project.organization_id, project.pk
    assert tester.test(EVERYTHING, f"{folder}/cat.png", *ids).is_allowed
    assert tester.test(EVERYTHING, f"file://{folder}/cat.png", *ids).is_allowed
    (folder / "link.png").symlink_to(folder / "cat.png")
    for path in (f"{folder}/link.png", f"{folder}/none.png", f"{folder}/../x", "/etc/passwd"):
        assert not tester.test(EVERYTHING, path, *ids).is_allowed

    changes.add(MediaFolder(folder="/srv/other", organization=project.organization))
    refused = tester.test(EVERYTHING, f"{folder}/cat.png", *ids)
    assert shown(refused) == [("rule", True), ("denied", False)]
    assert "organisation ours" in refused.steps[-1].text


@table("text", ["", "cat.png", "ftp://a.example/", "http://u:p@a.example/", "\0"])
def test_what_is_no_url_is_refused_in_a_sentence(text: str) -> None:
    verdict = tester.test(EVERYTHING, text, None, None)

    assert not verdict.is_allowed
    assert verdict.steps[-1].text.endswith(".")


def test_a_level_without_rules_is_shown_and_few_tests_run_at_a_time(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes.add(MediaFolder(folder="/srv/other", organization=project.organization))

    verdict = tester.test(EVERYTHING, "https://a.example/", project.organization_id, project.pk)
    assert shown(verdict) == [("denied", False)]
    changes.add(MediaRule(host="a.example"))
    changes.add(MediaRule(host="b.example", organization=project.organization, project=project))
    verdict = tester.test(EVERYTHING, "https://a.example/", project.organization_id, project.pk)
    assert shown(verdict) == [("rule", True), ("rule", None), ("denied", False)]

    monkeypatch.setattr(tester, "_RUNNING", threading.BoundedSemaphore(1))
    tester._RUNNING.acquire()
    with pytest.raises(Conflict, match="Try again"):
        tester.test(EVERYTHING, "https://a.example/", None, None)


# -- Decoding


def test_a_file_is_decoded_in_a_process_of_its_own_and_a_bad_one_reported() -> None:
    found = probe(picture(7, 5), 1000)

    assert (found.kind, found.width, found.height, found.number) == ("image", 7, 5, 1)
    for data in (b"", b"<html>", picture()[:40], b"\x89PNG\r\n\x1a\n"):
        assert probe(data, 1000).error


# -- What vision models see


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose files may be named."""
    folder = tmp_path.resolve()
    changes.add(MediaFolder(folder=str(folder)))
    return folder


@pytest.fixture
def seer() -> ServedModel:
    registry.add_model(REPOSITORY / "models" / "tiny-chat", name="chat")
    return registry.add_model(REPOSITORY / "models" / "tiny-vision", name="seer")


def tokens_of(path: Path, model: str | None = None) -> str:
    verdict = tester.test(EVERYTHING, str(path), None, None, model)
    assert verdict.steps[-1].name == "tokens", verdict
    return verdict.steps[-1].text


def test_what_models_see_costs_the_tokens_of_a_request(folder: Path, seer: ServedModel) -> None:
    (folder / "large.png").write_bytes(picture(4000, 2000))
    processor = load_processor(ModelFolder.read(Path(seer.folder)))
    assert processor is not None
    part = MediaPart(MediaKind.IMAGE, InlineSource((folder / "large.png").read_bytes()), "p")
    media = RequestMedia([part])
    media.decode(0, None, processor)
    (sent,) = media.parts_of(part)
    assert isinstance(sent, MediaPart)
    assert isinstance(sent.source, Picture)
    width, height = sent.source.width, sent.source.height

    text = tokens_of(folder / "large.png", "seer")
    num_tokens = processor.num_tokens(width, height)
    assert text == f"seer sees {width} x {height} pixels: {num_tokens} tokens"

    (folder / "a.pdf").write_bytes(pdf(pages([words(b"one"), words(b"two")])))
    text = tokens_of(folder / "a.pdf")
    assert text.startswith("seer sees 2 pages, the first of ")
    assert text.endswith("tokens, and those of their text")

    (folder / "large.png").write_bytes(picture(4000, 2000))
    free = tokens_of(folder / "large.png")
    changes.change(seer, options={"max_image_pixels": 56 * 56})
    assert tokens_of(folder / "large.png") != free


@pytest.mark.parametrize("name", ["chat", "none", "unloaded"])
def test_another_model_than_a_loaded_vision_model_is_refused(seer: ServedModel, name: str) -> None:
    tiny = REPOSITORY / "models" / "tiny-vision"
    registry.add_model(tiny, name="unloaded", load=False)

    with pytest.raises(ValueError, match=f"{name} is not a loaded vision model. Loaded: seer."):
        tester.test(EVERYTHING, "https://a.example/", None, None, name)


def test_nobody_hears_of_models_that_their_keys_do_not_see(
    client: Client, project: Project, seer: ServedModel
) -> None:
    other = changes.add(Project(organization=changes.add(Organization(name="x")), name="x"))
    changes.change(seer, project_ids=[other.pk])
    owner = User.objects.create_user("olga")
    changes.set_role(owner, project.organization, Role.OWNER)
    access = Access.of(owner)
    assert tester.vision_models(access) == []
    assert tester.vision_models(EVERYTHING) == [seer]
    client.force_login(owner)
    page = client.get(reverse("console:media-test"))
    assert page.status_code == 200
    assert "seer" not in page.content.decode()
    body = {"what": "https://a.example/", "project": project.pk, "model": "nope"}
    answer = client.post("/api/media-rules/test", body, content_type="application/json")
    assert answer.status_code == 400
    assert "seer" not in answer.content.decode()

    changes.set_role(owner, other, Role.VIEWER)
    assert tester.vision_models(Access.of(owner)) == [seer]


# -- The console and the API


def test_owners_test_for_what_they_own_and_see_no_addresses(
    client: Client, port: int, rule: MediaRule, project: Project
) -> None:
    owner = User.objects.create_user("olga")
    changes.set_role(owner, project.organization, Role.OWNER)
    seen = changes.add(Organization(name="seen"))
    changes.set_role(owner, seen, Role.ADMIN)
    url = f"http://127.0.0.1:{port}/cat.png"

    client.force_login(owner)
    registry.add_model(REPOSITORY / "models" / "tiny-vision", name="seer")
    form = {"what": url, "of": f"project:{project.pk}", "model": "seer"}
    page = client.post("/console/media/test/", form).content.decode()
    assert "picture of 40 x 30 pixels" in page
    assert f"{url} is allowed" in page
    assert "seer sees 84 x 56 pixels" in page
    assert "all are allowed" in page
    for of in ("platform", f"organization:{seen.pk}"):
        refused = client.post("/console/media/test/", {**form, "of": of}).content.decode()
        assert "Select a valid choice." in refused

    client.force_login(User.objects.create_superuser("root"))
    page = client.post("/console/media/test/", {**form, "of": "platform"}).content.decode()
    assert "has the addresses 127.0.0.1" in page

    MediaRule.objects.update(networks=[])
    page = client.post("/console/media/test/", {**form, "of": "platform"}).content.decode()
    assert f'href="/console/media/rules/{rule.pk}/">Change the rule: ' in page


def test_the_api_tests_rules(client: Client, port: int, rule: MediaRule, project: Project) -> None:
    user = User.objects.create_user("olga")
    changes.set_role(user, project.organization, Role.OWNER)
    new = create_key(owner=user, project=project, name="k", scopes=[Scope.MANAGE])
    headers = {"Authorization": f"Bearer {new.secret}"}
    url = f"http://127.0.0.1:{port}/cat.png"

    def post(**body: Any) -> Any:
        return client.post(
            "/api/media-rules/test", body, content_type="application/json", headers=headers
        )

    answer = post(what=url, project=project.pk).json()
    assert answer["is_allowed"] is True
    assert answer["steps"][-2:] == [
        {"name": "decoding", "is_ok": True, "text": "picture of 40 x 30 pixels"},
        {"name": "tokens", "is_ok": None, "text": "no vision model is loaded, so none can see it"},
    ]
    registry.add_model(REPOSITORY / "models" / "tiny-vision", name="seer")
    seen = post(what=url, project=project.pk, model="seer").json()["steps"][-1]
    assert seen["text"].startswith("seer sees 84 x 56 pixels: ")
    refused = post(what=url, project=project.pk, model="other")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "model")
    assert post(what=url).status_code == 403
    assert post(what=url, organization=project.organization_id).status_code == 403
    assert post(project=project.pk).status_code == 400
    assert post(what=url, project=project.pk + 1).status_code == 400


def test_the_list_of_the_admin_leads_to_the_tester(client: Client) -> None:
    client.force_login(User.objects.create_superuser("root"))

    assert "/console/media/test/" in client.get("/admin/media/mediarule/").content.decode()
