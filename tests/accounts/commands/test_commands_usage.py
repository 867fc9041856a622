"""Usage, refusals and requests in quarantine by command."""

import json

from django.utils import timezone
from row_builders import stored_refusal
from usage_builders import store

from tests.accounts.commands.conftest import Vinery, created_key
from vinery_accounts.models import Project, User

DIGEST, OTHER = "a" * 32, "b" * 32


def test_usage_is_filtered_by_names_and_by_ids(vinery_: Vinery, search: Project) -> None:
    alice, key, acme = User.objects.get(username="alice"), created_key(vinery_), search.organization
    owners = {"user_id": alice.pk, "key_id": key.pk, "project_id": search.pk}
    owners["organization_id"] = acme.pk
    now = timezone.now()
    for request_id, more in (("hers", owners), ("gone", {"user_id": 4711})):
        store(request_id, started_at=now, **more)
        stored_refusal(request_id, limit_id=1, **more)

    def exported(*words: str) -> list[str]:
        lines = vinery_("usage", "export", "--format", "jsonl", *words).out.splitlines()
        return [json.loads(line)["request_id"] for line in lines]

    for words in (
        ("--user", "alice"),
        ("--key", key.hint),
        ("--project", "acme/search"),
        ("--organization", "acme"),
    ):
        rows = vinery_("refusals", "list", "--json", *words).rows
        assert exported(*words) == [row["request_id"] for row in rows] == ["hers"]
    assert exported("--user", "4711") == ["gone"]
    for command in (("usage", "show"), ("usage", "export"), ("refusals", "list")):
        refusal = vinery_(*command, "--user", "zoe").refusal
        assert refusal == "There is no user zoe. See: vinery user list\n"
    refusal = vinery_("usage", "show", "--outcome", "fine").refusal
    assert "There is no outcome fine. There are: ok, " in refusal


def test_usage_is_shown_by_end_user_and_of_one(vinery_: Vinery) -> None:
    now = timezone.now()
    for name, end_user in {"a": "ann", "b": "ann", "c": "ben", "d": ""}.items():
        store(name, started_at=now, end_user=end_user)
    heads, *rows = vinery_("usage", "show", "--by", "end-user").out.splitlines()
    assert heads.split()[:2] == ["END-USER", "REQUESTS"]
    assert [row.split()[:2] for row in rows] == [["ann", "2"], ["-", "1"], ["ben", "1"]]
    lines = vinery_("usage", "show", "--end-user", "ann", "--by", "model").out.splitlines()
    assert lines[-1].split()[:2] == ["reference-chat", "2"]
    assert vinery_("usage", "export", "--end-user", "ben").out.count("\n") == 2


def test_media_have_columns_where_there_are_some(vinery_: Vinery) -> None:
    now = timezone.now()
    store("a", started_at=now)
    heads = vinery_("usage", "show").out.splitlines()[0]
    assert "IMAGE" not in heads and "MEDIA" not in heads

    store("b", started_at=now, num_image_tokens=1234, num_media=56)

    for words in ((), ("--by", "model")):
        heads, *_, row = vinery_("usage", "show", *words).out.splitlines()
        assert "IMAGE" in heads and "MEDIA" in heads
        assert "PIXELS" not in heads
        assert "1,234" in row and "56" in row


def test_usage_is_made_up_beside_the_usage_of_others_only_if_asked(vinery_: Vinery) -> None:
    store("theirs")
    small = ("demo-data", "--requests", "20", "--days", "1")
    assert "There is usage of others here. Add --yes" in vinery_(*small).refusal
    made = vinery_(*small, "--yes").out
    assert made.startswith(
        "20 requests are made up, and the models demo-* have prices in EUR. This"
    )
    assert vinery_("demo-data", "--remove").out == "The demo data is removed.\n"
    assert vinery_("demo-data", "--remove").out == "There is no demo data.\n"
