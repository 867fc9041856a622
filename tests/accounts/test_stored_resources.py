"""Stored responses, conversations and chats in the API, in the console and on the command line: for
those who may decide about captured texts."""

import json
import re
from typing import Any

import pytest
from api.api_client import Api, Tenant, as_user, make_tenant
from pages import page, sent, signed_in
from row_builders import logged
from stored_builders import (
    Owner,
    message,
    store_chat,
    store_conversation,
    store_each,
    store_response,
)

from vinery_accounts.access import changes
from vinery_accounts.access.audit import verify
from vinery_accounts.models import Project, Role, StoredResponse
from vinery_accounts.stored import compactions
from vinery_accounts.stored.rows import Item
from vinery_platform.cli import main

pytestmark = [pytest.mark.django_db, pytest.mark.stores]

PATHS = {"stored-responses/": "resp_a", "conversations/": "conv_a", "stored-chats/": "chatcmpl-a"}


@pytest.fixture
def ours() -> Tenant:
    changes.first_project()
    return make_tenant("ours")


@pytest.fixture
def admin(ours: Tenant) -> Api:
    return as_user(ours.user("chief", Role.ADMIN))


def test_admins_of_the_organisation_list_read_and_delete_and_nobody_else(
    ours: Tenant, admin: Api
) -> None:
    store_each("a", Owner(ours.one.pk))
    theirs = make_tenant("theirs")
    store_each("b", Owner(theirs.one.pk))
    store_each("c", Owner(None))
    others = [
        ours.as_role(Role.MEMBER),
        ours.as_role(Role.ADMIN, ours.one),
        theirs.as_role(Role.OWNER),
        ours.with_key(ours.one, scopes=["usage", "inference"]),
    ]

    for path, id_ in PATHS.items():
        (row,) = admin.get(path)["data"]
        assert row["public_id"] == id_
        assert row["num_bytes"] > 0
        assert "items" not in row
        assert admin.column(path, "public_id", project_id=ours.two.pk) == []
        for other in others:
            seen = other.request("GET", path)
            assert seen.status_code == 403 or id_ not in seen.content.decode()
            for method in ("GET", "DELETE"):
                assert other.error(method, f"{path}{id_}/")[0] in (403, 404)
        assert not logged(action__endswith=".read", target=id_)
        items = admin.get(f"{path}{id_}/")["items"]
        assert "Hello" in json.dumps(items)
        assert len(logged(action__endswith=".read", target=id_)) == 1
        admin.delete(f"{path}{id_}/")
        assert admin.error("GET", f"{path}{id_}/")[0] == 404
        assert logged(action__endswith=".delete", target=id_)


def test_all_of_a_user_or_of_a_project_is_forgotten_where_the_caller_leads(
    ours: Tenant, admin: Api
) -> None:
    person = ours.user("pat", Role.MEMBER)
    theirs = make_tenant("theirs")
    changes.set_role(person, theirs.organization, Role.MEMBER)
    store_each("a", Owner(ours.one.pk, person.pk))
    store_each("b", Owner(ours.one.pk))
    store_each("c", Owner(ours.two.pk))
    store_each("d", Owner(theirs.one.pk, person.pk))
    path = "stored-responses/forget/"

    assert admin.error("POST", path, {})[:2] == (400, "invalid_value")
    assert admin.error("POST", path, {"project_id": theirs.one.pk})[0] == 400
    assert admin.post(path, {"user_id": person.pk}, 200) == {"num_deleted": 3}
    assert admin.post(path, {"project_id": ours.two.pk}, 200) == {"num_deleted": 3}

    kept = StoredResponse.objects.kept().values_list("public_id", flat=True)
    assert set(kept) == {"resp_b", "resp_d"}
    assert logged(action__endswith=".forget") == ["user.forget", "project.forget"]
    assert verify().broken is None


def store_thread(owner: Owner) -> Item:
    """A chain, a conversation and a chat. Returns the compaction in the conversation."""

    def item(id_: str, **body: Any) -> Item:
        return Item(id_, body["type"], json.dumps({"id": id_, **body}).encode())

    call = {"call_id": "c1", "name": "get_weather", "arguments": '{"city": "Paris"}'}
    store_response("resp_1", owner, outputs=(
        item("rs_1", type="reasoning", summary=[], content=[{"type": "t", "text": "I should ask"}]),
        item("fc_1", type="function_call", **call),
    ))  # fmt: skip
    answered = item("fco_1", type="function_call_output", call_id="c1", output="19 <b>degrees</b>")
    store_response(
        "resp_2",
        owner,
        previous_id="resp_1",
        inputs=(answered,),
        outputs=(message("msg_2", "assistant", "It is warm"),),
    )
    sealed = compactions.seal(
        owner.project_id, b'{"summary": "They greeted <b>us</b>", "kept": []}'
    )
    compacted = item("cmp_1", type="compaction", encrypted_content=sealed)
    store_conversation("conv_1", owner, message("msg_3", text="Good morning"), compacted)
    store_chat("chatcmpl-1", owner)
    return compacted


def test_a_thread_is_read_with_reasoning_and_calls_folded_and_opened_in_the_playground(
    ours: Tenant,
) -> None:
    compacted = store_thread(Owner(ours.one.pk))
    client = signed_in(ours.user("chief", Role.ADMIN))

    row = StoredResponse.objects.get(public_id="resp_2")
    text = page(client, f"/console/stored-responses/{row.pk}/")
    said = text.partition('class="thread"')[2]
    places = [said.index(each) for each in ("Hello", "I should ask", "get_weather", "It is warm")]
    assert places == sorted(places)
    assert "<summary>Reasoning</summary>" in text
    assert said.count("19 &lt;b&gt;degrees") == 1
    assert "Open in the playground" in text
    assert "forget" not in text  # which concerns no single row
    assert "%22Hello%22" in text
    assert logged(action="stored_response.read") == ["stored_response.read"]
    for path, said in (("conversations", "Good morning"), ("stored-chats", "Hi")):
        listed = page(client, f"/console/{path}/?project_id={ours.one.pk}")
        (address, *_) = re.findall(rf"/console/{path}/\d+/", listed)
        assert said in (shown := page(client, address))
        summarised = "<summary>Earlier turns were summarised</summary>", "They greeted &lt;b&gt;us"
        assert all((text in shown) == (path == "conversations") for text in summarised)
        sealed = json.loads(compacted.payload)["encrypted_content"]
        assert sealed not in shown.partition('class="thread"')[2]
    listed = page(client, "/console/conversations/")
    sizes = re.findall(r'data-name="(Items|Bytes)">(.*?)<', listed)
    payloads = message("msg_3", text="Good morning").payload, compacted.payload
    assert sizes == [("Items", "2"), ("Bytes", str(len(b"".join(payloads)) + len(b"{}")))]
    assert "resp_1 is removed" in sent(
        client, f"/console/stored-responses/{row.previous_id}/remove/"
    )
    assert "resp_1" not in page(client, "/console/stored-responses/")


def test_commands_list_show_remove_and_forget(
    ours: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    store_each("a", Owner(ours.one.pk))

    def vinery(*words: str, status: int = 0) -> str:
        assert main(["stored", *words]) == status
        printed = capsys.readouterr()
        return printed.out + printed.err

    for name, id_ in zip(("responses", "conversations", "chats"), PATHS.values(), strict=True):
        assert id_ in vinery(name, "--project", "ours one")
        assert "Hello" in vinery("show", id_)
        assert id_ in vinery("remove", id_)
        assert "There is no" in vinery("show", id_, status=1)
    assert "0 are deleted" in vinery("forget", "--project", "ours one")


def test_an_owner_is_asked_until_somebody_decides(ours: Tenant) -> None:
    Project.objects.filter(pk=ours.one.pk).update(response_days=None)
    owner = signed_in(ours.user("owner", Role.OWNER))
    address = f'<a href="/console/projects/{ours.one.pk}/">Decide how long</a>'

    assert address in page(owner, "/console/")
    assert "Decide how long" not in page(signed_in(ours.user("pat", Role.MEMBER)), "/console/")
    changes.change(ours.one, response_days=0)
    assert "Decide how long" not in page(owner, "/console/")
