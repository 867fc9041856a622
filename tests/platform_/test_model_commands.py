"""`vinery model`, `vinery key` and `vinery admin`, from adding to removing."""

import json
from pathlib import Path

from tests.platform_.conftest import Vinery
from tests.tables import table
from vinery_platform.config.home import REPOSITORY
from vinery_serving.processes.logs.file import engine_name, log_path

TINY_CHAT = str(REPOSITORY / "models" / "tiny-chat")
OF_A_MODEL = ("show", "load", "unload", "remove")


def test_a_model_that_ships_with_vinery_needs_no_path_and_no_name(vinery: Vinery) -> None:
    assert TINY_CHAT in vinery("model", "list").stdout, "a prepared home serves it"

    wrong = vinery("model", "add", "tiny-vision", "--host-label", "moon")
    several = ("--host-label", "host=moon", "--replicas", "2", "--replica-device", "CPU")
    added = vinery("model", "add", "tiny-vision", "--no-load", *several)

    assert "such as host=moon or disk=fast" in wrong.stderr
    shown = json.loads(vinery("model", "show", "tiny-vision", "--json").stdout)
    assert [shown[each] for each in ("host_labels", "num_replicas")] == [["host=moon"], 2]
    assert shown["replica_devices"] == ["CPU"]
    assert added.stdout.startswith(f"Added tiny-vision from {REPOSITORY}/models/tiny-vision.")
    assert added.stdout.endswith("To load it: vinery model load tiny-vision\n")
    retried = vinery("model", "retry", "tiny-vision")
    assert retried.returncode == 1
    assert retried.stderr == "vinery: tiny-vision is not loaded: load it.\n"
    assert vinery("model", "remove", "tiny-vision").returncode == 0


def test_an_alias_divides_requests_and_follows_a_new_name(vinery: Vinery) -> None:
    vinery("model", "add", TINY_CHAT, "--name", "qwen-a", "--no-load")
    vinery("model", "add", TINY_CHAT, "--name", "qwen-b", "--no-load")

    put = vinery("alias", "set", "gpt-*", "qwen-a=90", "qwen-b=10")
    vinery("model", "rename", "qwen-a", "qwen-c")
    listed = vinery("alias", "list").stdout
    wrong = vinery("alias", "set", "gpt-*", "qwen-a")
    odd = vinery("alias", "set", "gpt-*", "qwen-c=many")
    removed = vinery("alias", "remove", "gpt-*")

    assert put.stdout == "gpt-* stands for qwen-a 90, qwen-b 10.\n"
    assert "qwen-c 90, qwen-b 10" in listed
    assert "No model is served under the name qwen-a." in wrong.stderr
    assert "'qwen-c=many' is not like MODEL=90" in odd.stderr
    assert removed.returncode == 0, removed.stderr
    for name in ("qwen-b", "qwen-c"):
        vinery("model", "remove", name)


def test_a_model_is_added_loaded_and_removed_or_changed_and_renamed(vinery: Vinery) -> None:
    added = vinery("model", "add", TINY_CHAT, "--name", "mine", "--option", "max_running=4")
    assert added.returncode == 0, added.stderr
    assert "mine" in vinery("model", "list").stdout

    assert vinery("model", "unload", "mine").returncode == 0
    assert vinery("model", "load", "mine").returncode == 0

    assert vinery("model", "remove", "mine").returncode == 0
    assert "mine" not in vinery("model", "list").stdout

    added = ("--name", "first", "--option", "max_running=4", "--no-load")
    vinery("model", "add", TINY_CHAT, *added)
    vinery("weight", "set", "first", "--output", "2")

    changed = vinery(
        *("model", "change", "first", "--option", "max_running="),
        *("--option", "cache_size_gb=1", "--device", "AUTO:CPU"),
    )
    assert changed.stdout == "first is changed.\n", changed.stderr
    assert vinery("model", "change", "first").stdout == "first is unchanged.\n"
    renamed = vinery("model", "rename", "first", "second")

    warning, line = renamed.stdout.splitlines()
    assert warning == "The token weights are for first: they do not count for second."
    assert line == "The name is now second."
    shown = vinery("model", "show", "second").stdout
    assert f"folder:   {TINY_CHAT}\n" in shown
    assert "device:   AUTO:CPU\n" in shown
    assert 'options:  {"cache_size_gb": 1}\n' in shown
    assert "state:    unloaded" in shown
    body = json.loads(vinery("model", "show", "second", "--json").stdout)
    assert (body["name"], body["state"]) == ("second", "unloaded")
    assert "second" in {row["name"] for row in json.loads(vinery("model", "list", "--json").stdout)}
    vinery("model", "remove", "second")


def test_a_second_prepare_does_not_restore_a_removed_model(vinery: Vinery) -> None:
    """While any model is served, the administrator chooses the models."""
    vinery("model", "add", TINY_CHAT, "--name", "other", "--no-load")
    vinery("model", "remove", "tiny-chat")

    vinery("prepare")

    listed = vinery("model", "list").stdout.splitlines()
    assert [line.split()[0] for line in listed] == ["NAME", "other"]


@table(
    "words, reason",
    [
        (("add", "/nowhere", "--name", "x"), "There is no folder /nowhere"),
        (("add", str(Path(__file__).parent), "--name", "x"), "has no openvino_model.xml"),
        (("add", TINY_CHAT, "--name", "x", "--option", "colour=red"), "colour"),
        (
            ("add", TINY_CHAT, "--name", "x", "--option", "max_running=many"),
            "max_running must be a whole number, got a text.",
        ),
        (("add", TINY_CHAT, "--name", "x", "--device", "GPU 1"), "GPU 1 is not a device."),
        (("rename", "missing", "new"), "No model is served as missing"),
        *(((word, "missing"), "No model is served as missing") for word in OF_A_MODEL),
    ],
)
def test_a_mistake_is_one_line(vinery: Vinery, words: tuple[str, ...], reason: str) -> None:
    result = vinery("model", *words)

    assert result.returncode == 1
    assert result.stderr.startswith("vinery: ")
    assert reason in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_model_is_shown_with_engine_logs(vinery: Vinery, installation: dict[str, str]) -> None:
    vinery("model", "add", TINY_CHAT, "--name", "logged", "--no-load")
    shown = vinery("model", "show", "logged").stdout
    assert "the log is on the host" in shown
    assert "only on" not in shown
    vinery("model", "change", "logged", "--host-label", "disk=fast")
    assert "only on:  disk=fast" in vinery("model", "show", "logged").stdout
    home = Path(installation["VINERY_HOME"])
    lines = [f"2026-01-31T12:00:0{n}.000Z ERROR engine-logged room: {n}" for n in range(5)]
    log = "\n".join(lines) + "\n"
    log_path(home / "logs", engine_name("logged")).write_text(log)

    assert vinery("model", "show", "logged").stdout.endswith(f"\n\n{log}")
    assert json.loads(vinery("model", "show", "logged", "--json").stdout)["log"] == lines
    assert vinery("model", "logs", "logged", "-n", "2").stdout.splitlines() == lines[3:]
    assert vinery("model", "logs", "no-such-model").returncode == 1
