"""A model whose chat template has no end stops no other model, nor the rules of access."""

import shutil
from pathlib import Path

from tests.conftest import REPOSITORY, Running, until
from tests.system.clients import chat, command, http_of, vinery

_LOOPS = "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"


def test_others_go_on_beside_a_template_that_never_ends(running: Running, tmp_path: Path) -> None:
    folder = tmp_path / "endless"
    shutil.copytree(REPOSITORY / "models" / "tiny-chat", folder)
    command(running, "model", "add", str(folder), "--name", "endless", "--no-load")
    (folder / "chat_template.jinja").write_text(_LOOPS)
    command(running, "model", "load", "endless")
    try:
        with http_of(running) as client:
            listed = "/v1/models?all=true"
            until(lambda: "endless" in client.get(listed).text)
            # Rules apply while the template is tried.
            vinery(running, "alias", "set", "stranger", "tiny-chat")
            assert chat(running, model="stranger", max_tokens=2).status_code == 200
            assert "read " in client.get("/readyz").json()["model_table"]

            states = {each["id"]: each["state"] for each in client.get(listed).json()["data"]}
            assert states["endless"] in ("loading", "failed")
            answer = chat(running, model="endless", max_tokens=2)
            assert answer.status_code == 503
            assert chat(running, max_tokens=2).status_code == 200
    finally:
        command(running, "model", "remove", "endless")
        vinery(running, "alias", "remove", "stranger")
    assert chat(running, model="endless").status_code == 404


def test_a_command_shows_why_the_web_process_refuses_a_model(
    running: Running, tmp_path: Path
) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(REPOSITORY / "models" / "tiny-chat", folder)
    command(running, "model", "add", str(folder), "--name", "broken", "--no-load")
    (folder / "chat_template.jinja").write_text("{% if %}")
    command(running, "model", "load", "broken")
    try:
        until(lambda: "does not compile" in command(running, "model", "show", "broken"))
        assert "failed" in command(running, "model", "list")
    finally:
        command(running, "model", "remove", "broken")
