"""A conversion from its checkpoint to the finished folder, with exporters that the test writes.

The exporters copy the reference model, so the real check judges the result.
"""

import asyncio
import shutil
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import until_in_loop as until
from tests.models.convert.checkpoints import write_checkpoint
from tests.models.convert.fake_environment import write_environment
from vinery_serving.models.convert import conversion
from vinery_serving.models.convert.checkpoint import ConvertError, parse
from vinery_serving.models.convert.conversion import check_loads, convert
from vinery_serving.processes.confine import ESSENTIAL, Part, available

_TINY_CHAT = Path(__file__).resolve().parents[3] / "models" / "tiny-chat"
COPY = """
import json, shutil, sys, tempfile
def main():
    print("exporting with", sys.argv[1:], flush=True)
    print("scratch is", tempfile.gettempdir(), flush=True)
    words = sys.argv
    shutil.copytree(words[words.index("--model") + 1] + "/reference", words[-1], dirs_exist_ok=True)
"""


def write_source(folder: Path) -> Path:
    """A checkpoint with the model that the exporters of tests copy."""
    source = write_checkpoint(folder)
    (source / "reference").symlink_to(_TINY_CHAT)
    return source


class Running:
    """A conversion of a test, with reports and output."""

    def __init__(self, tmp_path: Path, exporter: str) -> None:
        self.source = write_source(tmp_path / "tiny")
        self.output = tmp_path / "models" / "tiny-int8"
        self.environments = write_environment(tmp_path / "environments", exporter)
        self.stages: list[str] = []
        self.log = bytearray()

    async def convert(self, **options: Any) -> dict[str, Any]:
        given = (self.source, self.output, parse(options), self.environments)
        return await convert(*given, self.stages.append, self.log.extend)

    @property
    def left(self) -> list[str]:
        """The names beside the output."""
        return [path.name for path in self.output.parent.iterdir()]


async def test_a_converted_model_gets_its_name_after_the_check_and_is_never_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Running(tmp_path, COPY)
    converted = await running.convert(precision="int8")
    assert running.stages == [
        *("preparing the environment", "converting", "checking the converted model")
    ]
    assert converted["folder"] == str(running.output)
    assert (converted["task"], converted["line"]) == ("text-generation", "5.0")
    assert converted["num_bytes"] > 1 << 20
    assert b"'--weight-format', 'int8'" in running.log
    assert running.left == ["tiny-int8"]
    with pytest.raises(ConvertError, match=r"tiny-int8 exists\. Remove it"):
        await running.convert()
    shutil.rmtree(running.output)
    running.stages.clear()
    monkeypatch.setattr(conversion.shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    with pytest.raises(ConvertError, match=r"needs 0\.0 GB of disk"):
        await running.convert()
    assert running.stages == []


async def test_broken_graphs_and_a_folder_without_a_tokenizer_never_appear(tmp_path: Path) -> None:
    broken = f"{COPY}    open(sys.argv[-1] + '/openvino_model.xml', 'w').write('<net/>')\n"
    running = Running(tmp_path, broken)
    with pytest.raises(ConvertError, match="converted model cannot be loaded"):
        await running.convert()
    assert running.left == []
    (tmp_path / "openvino_model.xml").touch()
    with pytest.raises(SystemExit, match="has no tokenizer"):
        check_loads(str(tmp_path))


async def test_a_failed_export_leaves_nothing_and_names_its_cause(tmp_path: Path) -> None:
    running = Running(tmp_path, "import sys\ndef main():\n    sys.exit('KeyError: 7')")
    ended = r"export of qwen2 failed\. The exporter ended with: KeyError: 7"
    with pytest.raises(ConvertError, match=ended):
        await running.convert()
    assert running.left == []


async def test_an_export_beyond_its_memory_limit_ends_with_a_sentence(tmp_path: Path) -> None:
    running = Running(tmp_path, "def main():\n    weights = b'x' * (900 << 20)")
    with pytest.raises(ConvertError, match=r"more memory than its limit of 300 MB"):
        await running.convert(memory_limit_mb=300)
    assert running.left == []


_CONVERT = """
import asyncio, sys
from pathlib import Path
from vinery_serving.models.convert.conversion import convert
from vinery_serving.models.convert.environments import Environments
from vinery_serving.models.convert.checkpoint import ConvertOptions
source, output, environments = map(Path, sys.argv[1:])
asyncio.run(convert(source, output, ConvertOptions(), Environments(environments), lambda _: None,
    lambda _: None))
"""


async def test_a_conversion_that_was_killed_begins_again(tmp_path: Path) -> None:
    waits = "    import os, time\n    while os.path.exists('WAIT'): time.sleep(0.1)\n"
    running = Running(tmp_path, COPY + waits.replace("WAIT", f"{tmp_path}/tiny/wait"))
    (running.source / "wait").touch()
    draft = running.output.with_name(f".{running.output.name}.converting")
    words = map(str, (running.source, running.output, tmp_path / "environments"))
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", _CONVERT, *words)
    await until((draft / "config.json").exists)
    process.kill()
    await process.wait()
    (running.source / "wait").unlink()
    assert not running.output.exists()
    assert running.left != []
    await running.convert()
    assert running.left == ["tiny-int8"]


_ATTACK = f"""{COPY}
    import json, os, signal, socket, subprocess
    tried = {{
        "read the secret key": lambda: open("SECRET").read(),
        "read it as another program": lambda: subprocess.run(["cat", "SECRET"], check=True),
        "write beside it": lambda: open("SECRET.new", "w"),
        "open it to all": lambda: os.chmod("SECRET", 0o644),
        "change the checkpoint": lambda: open(words[words.index("--model") + 1] + "/new", "w"),
        "change the environment": lambda: open(json.__file__.replace("json", "x"), "w"),
        "connect": lambda: socket.create_connection(("127.0.0.1", PORT), 5),
        "connect to an engine": lambda: socket.socket(socket.AF_UNIX).connect("SECRET.sock"),
        "read the parent's variables": lambda: open(f"/proc/{{os.getppid()}}/environ", "rb").read(),
        "stop the parent": lambda: os.kill(os.getppid(), signal.SIGTERM),
    }}
    for name, attack in tried.items():
        try:
            attack()
            print("done:", name, flush=True)
        except (OSError, subprocess.CalledProcessError):
            print("refused:", name, flush=True)
    print("variables:", *os.environ, flush=True)
"""


async def test_an_exporter_that_a_checkpoint_has_taken_over_reaches_nothing_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not available() >= ESSENTIAL | {Part.SIGNALS}:
        pytest.skip("this kernel has not all parts")
    for name in ("VINERY_SECRET_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "PIP_INDEX_URL"):
        monkeypatch.setenv(name, "grapes")
    secret = tmp_path / "secret_key"
    secret.write_text("grapes")
    secret.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        attack = _ATTACK.replace("SECRET", str(secret)).replace("PORT", str(port))
        running = Running(tmp_path, attack)
        await running.convert()
    log = running.log.decode()
    assert "variables: " in log
    done = {line for line in log.splitlines() if line.startswith("done: ")}
    # A copy of a file must not fail because the mode is kept as it is.
    assert done == {"done: open it to all"}
    assert secret.stat().st_mode & 0o777 == 0o600
    variables = log.partition("variables: ")[2].split()
    assert not [each for each in variables if each.startswith(("VINERY_", "HF_T", "AWS_", "PIP_"))]
