"""The tester shows each step that a request would take, and keeps nothing."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from tests.media.picture_server import picture, serving_a_picture
from tests.tables import table
from vinery_accounts.access import changes
from vinery_accounts.keys.lifecycle import create_key
from vinery_accounts.models import Organization, Project, Role, Scope, User
from vinery_accounts.resources.base import Conflict
from vinery_serving.media.decoding import probe
from vinery_serving.media.tables import tester
from vinery_serving.media.tables.models import MediaDenial, MediaFolder, MediaRule
from vinery_serving.media.tables.tester import Verdict

pytestmark = pytest.mark.django_db(transaction=True)


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
    verdict = tester.test(f"http://127.0.0.1:{port}/cat.png?secret=1", None, None)

    names = ("rule", "addresses", "response", "bytes", "decoding")
    assert shown(verdict) == [(each, True) for each in names]
    assert verdict.is_allowed
    assert verdict.steps[-1].text == "picture of 40 x 30 pixels"
    assert f"rule {rule.pk}" in verdict.steps[0].text
    assert "secret" not in str(verdict)

    ours = {"host": "127.0.0.1", "schemes": ["http"], "ports": [port]}
    changes.add(MediaRule(**ours, organization=project.organization))
    url = f"http://127.0.0.1:{port}/cat.png"
    assert tester.test(url, project.organization_id, project.pk).is_allowed
    changes.change(rule, networks=[])
    assert not tester.test(url, project.organization_id, project.pk).is_allowed


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

    verdict = tester.test(f"http://127.0.0.1:{port}/{path}", None, None)

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
    assert tester.test(f"{folder}/cat.png", *ids).is_allowed
    assert tester.test(f"file://{folder}/cat.png", *ids).is_allowed
    (folder / "link.png").symlink_to(folder / "cat.png")
    for path in (f"{folder}/link.png", f"{folder}/none.png", f"{folder}/../x", "/etc/passwd"):
        assert not tester.test(path, *ids).is_allowed

    changes.add(MediaFolder(folder="/srv/other", organization=project.organization))
    refused = tester.test(f"{folder}/cat.png", *ids)
    assert shown(refused) == [("rule", True), ("denied", False)]
    assert "organisation ours" in refused.steps[-1].text


def test_a_level_without_rules_is_shown_and_few_tests_run_at_a_time(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes.add(MediaFolder(folder="/srv/other", organization=project.organization))

    verdict = tester.test("https://a.example/", project.organization_id, project.pk)
    assert shown(verdict) == [("rule", None), ("denied", False)]
    changes.add(MediaRule(host="a.example"))
    changes.add(MediaRule(host="b.example", organization=project.organization, project=project))
    verdict = tester.test("https://a.example/", project.organization_id, project.pk)
    assert shown(verdict) == [("rule", None), ("rule", True), ("denied", False)]

    monkeypatch.setattr(tester, "_RUNNING", threading.BoundedSemaphore(1))
    tester._RUNNING.acquire()
    with pytest.raises(Conflict, match="Try again"):
        tester.test("https://a.example/", None, None)


# -- Decoding


def test_a_file_is_decoded_in_a_process_of_its_own_and_a_bad_one_reported() -> None:
    assert probe(picture(7, 5), 1000) == (True, "picture of 7 x 5 pixels")
    for data in (b"", b"<html>", picture()[:40], b"\x89PNG\r\n\x1a\n"):
        assert not probe(data, 1000)[0]


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
    form = {"what": url, "of": f"project:{project.pk}"}
    page = client.post("/console/media/test/", form).content.decode()
    assert "picture of 40 x 30 pixels" in page
    assert f"{url} is allowed" in page
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
    last = {"name": "decoding", "is_ok": True, "text": "picture of 40 x 30 pixels"}
    assert answer["steps"][-1] == last
    assert post(what=url).status_code == 403
    assert post(what=url, organization=project.organization_id).status_code == 403
    assert post(project=project.pk).status_code == 400
    assert post(what=url, project=project.pk + 1).status_code == 400
