"""Administrators see, change and act on a model in the console, add models from folders, and give
them other names."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from tests.models.rows.conftest import ADD, LIST, TINY_CHAT, address, error_at, page, text_of
from tests.tables import table
from vinery_accounts.models import Limit, Organization, Project
from vinery_platform.cli import main
from vinery_serving.core.events import TokenCounts
from vinery_serving.models import engine_work
from vinery_serving.models.engine_status import EngineState, EngineStatus
from vinery_serving.models.job_rows import Asked, JobState, ModelJob, record_event
from vinery_serving.models.models import ModelAlias, ServedModel
from vinery_serving.transport.messages import EngineStats

pytestmark = pytest.mark.django_db
FOLDER = f"{ADD}folder/"


def job(model: ServedModel, **values: Any) -> ModelJob:
    return ModelJob.objects.create(model=model, kind="pull", **values)


# -- The page of a model


def test_the_page_shows_state_names_example_and_messages(root: Client, chat: ServedModel) -> None:
    ModelAlias.objects.create(name="gpt-4o", targets={"chat": 1})

    text = page(root, chat)
    for expected in ("Ready", "2,048 tokens", str(TINY_CHAT), "gpt-4o", '"model": "chat"'):
        assert expected in text
    assert "http://testserver/v1/chat/completions" in text

    root.post(address(chat, "unload/"))
    fresh = text_of(root.get(address(chat), headers={"X-Live": "1"}))
    assert 'id="state"' in fresh and "Log out" not in fresh
    assert "Unloading chat." not in fresh
    assert "Unloading chat." in page(root, chat)


def test_a_model_that_crashes_while_it_loads_shows_why_and_when_it_is_tried_again(
    root: Client, chat: ServedModel, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the console, and by `vinery model show` and `vinery status`."""
    error = "The engine was ended by SIGSEGV.\n\nRead its log."
    EngineStatus.objects.update(state=EngineState.RETRYING, last_error=error)
    at = datetime(2026, 3, 1, 12, 30, 5, tzinfo=UTC)
    EngineStatus.objects.update(num_attempts=1, max_attempts=4, next_attempt_at=at)

    texts = [page(root, chat)]
    for words in (["model", "show", "chat"], ["status"]):
        main(words)
        texts.append(capsys.readouterr().out)

    for text in texts:
        assert "The engine was ended by SIGSEGV." in text
    for text in texts[:2]:
        assert "retrying (2 of 4)" in text.lower()
        assert "1 of 4 failed; the next is at 12:30:05 UTC" in text


def test_the_page_shows_what_the_engine_does_now(
    root: Client, chat: ServedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    EngineStatus.objects.update(pid=1)
    tokens = TokenCounts(
        *(100, 40), num_output_tokens=9, num_proposed_tokens=4, num_accepted_tokens=3
    )
    rates = {"prompt_tokens_per_s": 850.0, "output_tokens_per_s": 41.5}
    waits = {"first_token_s": (0.12, 0.5), "inter_token_s": (0.02, 0.03)}
    waits |= {"draft_loss": 0.12}
    work = EngineStats(
        *(7, 12), tokens=tokens, cache_usage=0.25, cache_bytes=10**9, **rates, **waits
    )
    monkeypatch.setattr(engine_work, "_ask", [lambda: {"chat": work}])
    for text in (page(root, chat), text_of(root.get(LIST))):
        assert ">7</" in text and ">12</" in text
    facts = dict(re.findall(r"<dt>([^<]+)</dt><dd>([^<]+)</dd>", page(root, chat)))
    assert facts["Prompt tokens per second"] == "850.0"
    assert facts["Generated tokens per second"] == "41.5"
    assert facts["First token"] == "120 ms, p95 500 ms"
    assert facts["Between tokens"] == "20 ms, p95 30 ms"
    assert facts["KV cache used"] == "250 MB; it grows as needed"
    assert facts["Prompt tokens from the cache"] == "40%"
    assert facts["Accepted draft tokens"] == "75%"
    loss = "none just now: answers were slower by 12% with them"
    assert facts["Tokens proposed ahead"] == loss
    assert facts["Restarts"] == "3"
    ServedModel.objects.update(options={"cache_size_gb": 1})
    assert "<dd>250 MB; at most 1 GB</dd>" in page(root, chat)
    ServedModel.objects.update(task="embeddings")
    assert "KV cache used" not in page(root, chat)


def test_engines_of_one_model_are_shown_as_their_sum_with_the_longest_waits() -> None:
    tokens = TokenCounts(num_prompt_tokens=100, num_cached_tokens=50)
    one = EngineStats(1, 2, tokens=tokens, cache_usage=0.5, cache_bytes=30)
    waits = {"first_token_s": (0.1, 0.9)}
    prompts = TokenCounts(num_prompt_tokens=300)
    other = EngineStats(3, tokens=prompts, cache_bytes=10, draft_loss=0.1, **waits)
    both = engine_work.joined([one, other])
    assert (both.num_running, both.num_waiting, both.first_token_s) == (4, 2, (0.1, 0.9))
    assert (both.prefix_hit_rate, both.cache_usage, both.cache_bytes) == (0.125, 0.375, 40)
    assert both.draft_loss == 0.1
    assert engine_work.joined([one]) is one


def test_the_page_shows_where_the_files_come_from(root: Client, chat: ServedModel) -> None:
    assert "<dt>Source</dt>" not in page(root, chat)
    ServedModel.objects.update(source={"url": "https://store/m.zip", "sha256": None})
    assert "<dt>Source</dt><dd>https://store/m.zip</dd>" in page(root, chat)
    of_hub = {"repository": "acme/tiny", "commit": "0123456789abcdef"}
    assert ServedModel(source=of_hub).source_text == "acme/tiny at 0123456789ab"


def test_the_page_shows_the_history_in_pages_and_the_most_memory(
    root: Client, chat: ServedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(60):
        record_event(chat.pk, "failed", f"reason {number}.")

    text = text_of(root.get(address(chat, "history/")))
    assert text.index("reason 59.") < text.index("reason 10.")
    assert "reason 9." not in text
    assert "reason 9." in text_of(root.get(address(chat, "history/"), {"page": 2}))

    monkeypatch.setattr(engine_work, "_memory_bytes", lambda _pid: 200_000_000)
    EngineStatus.objects.update(pid=1, peak_bytes=150_000_000)
    assert "Memory at most" not in page(root, chat)
    EngineStatus.objects.update(peak_bytes=250_000_000)
    assert "<dt>Memory at most</dt><dd>250 MB</dd>" in page(root, chat)


# -- Buttons


def test_buttons_load_retry_and_remove_a_model(root: Client, chat: ServedModel) -> None:
    assert "Unload: chat" in text_of(root.get(address(chat, "unload/")))
    assert ServedModel.objects.get().is_loaded is True

    assert "Unloading chat." in text_of(root.post(address(chat, "unload/"), follow=True))
    assert ServedModel.objects.get().is_loaded is False

    response = root.post(address(chat, "load/?from=list"), follow=True)
    assert response.redirect_chain[-1][0] == LIST
    assert ServedModel.objects.get().is_loaded is True

    assert "/retry/" not in page(root, chat)
    EngineStatus.objects.update(state=EngineState.FAILED)

    assert "/retry/" in page(root, chat)
    assert "chat is removed." in text_of(root.post(address(chat, "remove/"), follow=True))
    assert not ServedModel.objects.exists()


# -- Jobs


def test_a_job_shows_its_progress_and_has_buttons(root: Client, chat: ServedModel) -> None:
    progress = {"done_bytes": 3_000_000, "total_bytes": 12_000_000, "bytes_per_s": 3e6}
    number = job(chat, state=JobState.RUNNING, stage="fetching a.bin", **progress).pk
    text = page(root, chat)
    assert 'value="25"' in text
    assert "fetching a.bin, 3 MB of 12 MB, 3 MB/s, 3 s left" in text

    text = text_of(root.post(f"{LIST}jobs/{number}/pause/", follow=True))
    assert "pull of chat is being paused." in text
    assert ModelJob.objects.get().asked == Asked.PAUSE
    root.post(f"{LIST}jobs/{number}/resume/")
    assert ModelJob.objects.get().asked == Asked.RUN

    cancel = f"{LIST}jobs/{number}/cancel/"
    assert "delete what it has made so far" in text_of(root.get(cancel))

    response = root.post(cancel, follow=True)
    assert response.redirect_chain[-1][0] == address(chat)
    assert ModelJob.objects.get().asked == Asked.CANCEL

    ModelJob.objects.update(state=JobState.DONE, asked=Asked.RUN)
    assert "has ended" in text_of(root.post(f"{LIST}jobs/{number}/pause/", follow=True))


@table(
    "state, asked, actions",
    [
        (JobState.RUNNING, Asked.RUN, {"pause", "cancel"}),
        (JobState.RUNNING, Asked.PAUSE, {"resume", "cancel"}),
        (JobState.PAUSED, Asked.PAUSE, {"resume", "cancel"}),
        *((JobState.RUNNING, Asked.CANCEL, set()), (JobState.FAILED, Asked.RUN, {"resume"})),
        (JobState.DONE, Asked.RUN, set()),
    ],
)
def test_a_job_has_the_buttons_of_its_state(state: str, asked: str, actions: set[str]) -> None:
    assert set(ModelJob(state=state, asked=asked).actions) == actions


def test_a_model_without_files_is_not_loaded_and_keeps_its_folder(
    root: Client, chat: ServedModel
) -> None:
    model = ServedModel.objects.create(name="coming", folder="", is_loaded=True)
    job(model, state=JobState.RUNNING, done_bytes=1, total_bytes=4)
    assert "Pulling" in page(root, model)
    assert "/unload/" not in page(root, model)
    assert "1 B of 4 B" in text_of(root.get(LIST))

    ServedModel.objects.update(folder="")
    job(chat)
    assert 'name="folder"' not in settings_page(root, chat)

    ServedModel.objects.update(folder=str(TINY_CHAT))  # the page still has no such field
    root.post(address(chat, "settings/"), {"name": "chat", "device": "CPU", "idle_s": "60"})
    chat.refresh_from_db()
    assert (chat.folder, chat.idle_s) == (str(TINY_CHAT), 60)


# -- Settings


def settings_page(client: Client, model: ServedModel) -> str:
    return text_of(client.get(address(model, "settings/")))


def sent(model: ServedModel, **changes: str) -> dict[str, str]:
    return {"name": model.name, "folder": model.folder, "device": model.device, **changes}


def test_options_are_set_and_removed_one_by_one(root: Client, chat: ServedModel) -> None:
    options = {"option.max_running": "8", "option.output_format": "none", "option.max_share": ""}
    text = text_of(root.post(address(chat, "settings/"), sent(chat, **options), follow=True))
    assert "chat is changed." in text
    assert ServedModel.objects.get().options == {"max_running": 8, "output_format": "none"}
    assert 'name="option.max_running" id="option-max_running" value="8"' in settings_page(
        root, chat
    )

    root.post(address(chat, "settings/"), sent(chat, **{"option.max_running": ""}))
    assert ServedModel.objects.get().options == {}

    ServedModel.objects.update(options={"retired": {"a": [1]}, "max_running": 8})
    assert 'value="{"a": [1]}"' in settings_page(root, chat)

    kept = {"option.max_running": "8", "option.retired": ""}
    root.post(address(chat, "settings/"), sent(chat, **kept))
    assert ServedModel.objects.get().options == {"max_running": 8}


def test_options_are_grouped_by_purpose_and_those_of_other_tasks_are_left_out(
    root: Client, chat: ServedModel
) -> None:
    options = {"max_running": 8, "max_batch_tokens": 99, "prompt_lookup": False}
    ServedModel.objects.update(options=options)

    text = settings_page(root, chat)

    groups = dict(re.findall(r"<summary>(.+?)</summary>(.+?)</details>", text, re.DOTALL))
    opened = re.findall(r'<details class="fields" open>\s*<summary>(.+?)</summary>', text)
    # An option of another task is shown as long as it has a value.
    assert opened == ["Batching (2 set)", "Speculation (1 set)"]
    assert 'id="option-max_batch_tokens" value="99"' in groups["Batching (2 set)"]
    assert groups["Batching (2 set)"].count("Changed") == 2
    assert "Changed" not in groups["Speculation (1 set)"]  # it is set to its default
    assert 'id="option-cache_eviction.start_size"' in groups["Memory"]
    assert not groups.keys() & {"Vectors", "Pictures"}
    ServedModel.objects.update(task="embeddings", options={})
    text = settings_page(root, chat)
    assert "<summary>Vectors</summary>" in text and "option-max_running" not in text


def test_settings_have_errors_warnings_and_projects(root: Client, chat: ServedModel) -> None:
    text = text_of(
        root.post(address(chat, "settings/"), sent(chat, **{"option.max_running": "many"}))
    )
    assert "max_running must be a whole number, got a text." in text and 'value="many"' in text
    Limit.objects.create(scope="model", model="chat", metric="requests", window="day", amount=1)
    text = text_of(root.post(address(chat, "settings/"), sent(chat, name="talk"), follow=True))
    assert "1 limit is for chat: it does not hold for talk." in text
    assert ServedModel.objects.get().name == "talk"

    acme = Organization.objects.create(name="acme")
    project = Project.objects.create(organization=acme, name="search")
    ServedModel.objects.update(project_ids=[project.pk, 99])
    text = settings_page(root, chat)
    assert f'<option value="{project.pk}" selected>' in text
    assert "removed project 99" in text

    form = {"name": "chat", "folder": str(TINY_CHAT), "device": "CPU"}
    root.post(address(chat, "settings/"), form | {"project_ids": [str(project.pk)]})
    chat.refresh_from_db()
    assert chat.project_ids == [project.pk]


# -- From a folder


def test_a_model_is_added_from_its_folder_or_shipped_name(root: Client, tmp_path: Path) -> None:
    assert 'href="/console/models/add/"' in text_of(root.get(LIST))

    text = text_of(root.post(FOLDER, {"folder": str(tmp_path), "device": "CPU"}))
    assert "has no openvino_model.xml" in text
    assert not ServedModel.objects.exists()

    form = {"folder": "tiny-chat", "device": "CPU", "is_loaded": "on", "name": ""}
    response = root.post(FOLDER, form | {"option.max_running": "4"}, follow=True)
    model = ServedModel.objects.get()
    assert (model.name, model.folder) == ("tiny-chat", str(TINY_CHAT))
    assert model.options == {"max_running": 4}
    assert response.redirect_chain[-1][0] == address(model)

    root.post(FOLDER, {"folder": f"{TINY_CHAT}/", "device": "CPU", "name": "later"})
    assert not ServedModel.objects.get(name="later").is_loaded


# -- Aliases


NEW = f"{LIST}aliases/new/"


def test_names_are_divided_changed_removed_and_added(root: Client, chat: ServedModel) -> None:
    other = ServedModel.objects.create(name="other", folder=chat.folder)
    root.post(NEW, {"name": "mixed", "targets": "chat=90, other=10"})
    alias = ModelAlias.objects.get()
    assert alias.targets == {"chat": 90, "other": 10}
    link = f"{LIST}aliases/{alias.pk}/"
    assert link in text_of(root.get(LIST))
    assert 'value="chat=90, other=10"' in text_of(root.get(link))

    root.post(link, {"name": "mixed", "targets": "other"})
    alias.refresh_from_db()
    assert alias.targets == {"other": 1}
    assert "Its models stay." in text_of(root.get(f"{link}remove/"))
    root.post(f"{link}remove/")
    assert not ModelAlias.objects.exists()
    assert ServedModel.objects.filter(pk=other.pk).exists()

    assert f"{NEW}?model=chat" in page(root, chat)
    assert 'name="targets" value="chat"' in text_of(root.get(NEW, {"model": "chat"}))

    text = text_of(root.post(NEW, {"name": "gpt-*", "targets": "chat"}, follow=True))
    assert "gpt-* is an alias now." in text
    assert ModelAlias.objects.get().targets == {"chat": 1}


@table(
    "name, targets, field, sentence",
    [
        ("chat", "chat", "name", "A model is served under this name."),
        ("x", "chat=many", "targets", "Write chat=90: a weight is a whole number."),
        ("x", "chat\0=1", "targets", "Use letters, digits"),
    ],
)
def test_a_wrong_value_is_explained_beside_its_field(
    root: Client, chat: ServedModel, name: str, targets: str, field: str, sentence: str
) -> None:
    text = text_of(root.post(NEW, {"name": name, "targets": targets}))
    assert sentence in error_at(text, field)
    assert not ModelAlias.objects.exists()
