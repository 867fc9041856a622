"""Frameworks for agents and OpenAI's client for JavaScript, with nothing set but the address and
the key. The folder VINERY_TEST_CLIENTS has their packages."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY, Running
from tests.contract.tiny_chat import PARIS, SUNNY_IN_PARIS
from tests.docs.markdown import blocks
from tests.system.clients import serving, vinery

SCRIPTS = Path(__file__).parent
GUIDE = REPOSITORY / "docs" / "guides" / "agents.md"


def run(running: Running, script: str, *words: str) -> list[Any]:
    """The lines that a script prints, as JSON."""
    printed = run_text(running, script, (SCRIPTS / script).read_text(), *words)
    return [json.loads(line) for line in printed.splitlines()]


def run_text(running: Running, name: str, text: str, *words: str) -> str:
    """What a program prints. Node finds packages beside it alone."""
    installed = Path(os.environ["VINERY_TEST_CLIENTS"]).resolve()
    copy = installed / name
    copy.write_text(text)
    program = "node" if name.endswith(".mjs") else str(installed / "venv/bin/python")
    url, key = f"{running.base_url}/v1", running.api_key
    ended = subprocess.run(
        [program, copy, *words],
        env={
            "PATH": os.environ["PATH"],
            "OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": key,
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    return ended.stdout


@pytest.fixture
def thinker(running: Running, tmp_path: Path) -> Iterator[str]:
    """A model that reasons unless it is told not to, as many do."""
    folder = shutil.copytree(REPOSITORY / "models" / "tiny-chat", tmp_path / "thinker")
    template = folder / "chat_template.jinja"
    asked = "enable_thinking is defined and enable_thinking"
    text = template.read_text()
    assert asked in text
    template.write_text(text.replace(asked, "enable_thinking is not defined or enable_thinking"))
    with serving(running, {"thinker": [folder]}):
        yield "thinker"


def test_five_turns_of_the_ai_sdk_with_nothing_set(running: Running, thinker: str) -> None:
    turns = run(running, "with_ai_sdk.mjs", thinker)

    assert [each["text"] for each in turns] == [PARIS, SUNNY_IN_PARIS] * 2 + [PARIS]
    assert [each["num_steps"] for each in turns] == [1, 2, 1, 2, 1]
    assert [each["has_reasoned"] for each in turns] == [True] * 5
    assert [bool(each["num_references"]) for each in turns] == [False, True, True, True, True]


def test_five_turns_of_the_ai_sdk_refer_to_stored_items(running: Running) -> None:
    turns = run(running, "with_ai_sdk.mjs")

    assert [each["text"] for each in turns] == [PARIS, SUNNY_IN_PARIS] * 2 + [PARIS]
    assert [each["num_steps"] for each in turns] == [1, 2, 1, 2, 1]
    assert [each["has_reasoned"] for each in turns[2:4]] == [True, True]
    # To a model that reasons, it names texts by their ids after reasoning alone.
    assert [bool(each["num_references"]) for each in turns] == [False, True, False, True, True]


def test_every_method_of_openai_for_javascript(running: Running) -> None:
    (seen,) = run(running, "with_openai.mjs")

    assert seen == {
        "texts": [PARIS] * 4,
        "num_items": 3,
        "compacted": ["message", "message", "compaction"],
        "background": ["queued", PARIS, "completed", 4],
        "is_counted": True,
        "first_status": 404,
        "listed": ["1", "2", "3", "What is the capital of France?", PARIS],
        "is_same_item": True,
        "conversations": [True] * 4,
        "metadata": [{"a": "b"}, {}],
        "chats": [True],
        "messages": ["What is the capital of France?"],
        "chat_metadata": [{"js": "no"}] * 2,
        "deleted": True,
        "chat_status": 404,
    }


def test_the_agents_sdk_keeps_sessions_and_chains(running: Running) -> None:
    vinery(running, "alias", "set", "gpt-tiny", "tiny-chat")  # it compacts with gpt-* alone
    (seen,) = run(running, "with_agents_sdk.py")
    vinery(running, "alias", "remove", "gpt-tiny")

    sessions, chain = [PARIS, SUNNY_IN_PARIS, PARIS], [SUNNY_IN_PARIS, PARIS]
    assert seen["texts"] == [*sessions, *chain, *chain]
    assert seen["kinds"] == [["message", "compaction"], ["message", "message", "compaction"]]
    assert seen["numbers"] == [2, 6, 8, 7, 0]
    assert seen["popped"] == PARIS
    assert seen["num_tokens"][0] > 0


def test_pydantic_ai_and_langchain_send_only_what_is_new(running: Running) -> None:
    for script in ("with_pydantic_ai.py", "with_langchain.py"):
        (seen,) = run(running, script)

        assert seen["texts"] == [PARIS, SUNNY_IN_PARIS, PARIS], script
        first, last = seen["num_tokens"]
        assert last > first, script


def test_the_programs_of_the_guide_run(running: Running) -> None:
    """But that of a webhook, which needs an event."""
    suffixes = {"python": "py", "javascript": "mjs"}
    programs = [
        (f"guide.{suffixes[each.language]}", each.text.replace("qwen3-8b", "tiny-chat"))
        for each in blocks(GUIDE)
        if each.language in suffixes and "unwrap" not in each.text
    ]
    assert len(programs) == 5
    for name, text in programs:
        assert run_text(running, name, text).strip(), text
