"""The servers that Vinery is measured beside: installed on first use into folders of their own,
started on free ports, and stopped while others are measured."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from benchmarks.load import Endpoint
from benchmarks.machine import REPOSITORY, free_port, show
from benchmarks.platform_under_test import PlatformFailed, tail, wait_until_it_answers
from benchmarks.settings import TINY_CHAT

LLAMA: Final = "llama-cpp-python==0.3.36"  # its archive has the source of llama.cpp
TRANSFORMERS: Final = ("torch==2.13.0", "transformers[serving]==5.24.0")
LITELLM: Final = "litellm[proxy]==1.108.7"
_BUILD: Final = ("-DCMAKE_BUILD_TYPE=Release", "-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF")
# What OpenArc calls a text model under continuous batching, by version; the last one has none.
_OPENARC_KINDS: Final = (("llm", "ovgenai_cb"), ("cb_llm", "ovgenai"), ("llm", "ovgenai"))
_KEEPALIVE: Final = ("--keepalive_timeout", "600")  # while others are asked
_KEY: Final = "sk-bench"
_CONTEXT_TOKENS: Final = 1024  # of an answer with its prompt
_BLOCK_TOKENS: Final = 32
_TRIES: Final = 480  # to connect, four a second
_END_TIMEOUT_S: Final = 20.0


class Absent(Exception):
    """A peer cannot be measured. The message has the reason."""


@dataclass(frozen=True)
class Peers:
    """What all peers are started with."""

    folder: Path  # of what is installed
    model: Path  # safetensors, model.gguf
    graph: Path  # OpenVINO
    num_threads: int
    most_users: int
    openarc: Path | None


@dataclass(frozen=True)
class Running:
    """A server that answers."""

    endpoint: Endpoint
    model: str
    version: str
    process: subprocess.Popen[bytes]

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Let the server run during the block, and stand still after."""
        os.killpg(self.process.pid, signal.SIGCONT)
        try:
            yield
        finally:
            os.killpg(self.process.pid, signal.SIGSTOP)


def llama_cpp(peers: Peers) -> AbstractContextManager[Running]:
    """The server of llama.cpp, built for this machine. Raises Absent."""
    server = _built(peers.folder / "llama.cpp")
    threads, users = str(peers.num_threads), peers.most_users
    command = [
        *(server, "--model", peers.model / "model.gguf", "--alias", "peer", "--offline"),
        *("--threads", threads, "--threads-batch", threads, "--no-webui"),
        *("--parallel", str(users), "--ctx-size", str(users * _CONTEXT_TOKENS)),
    ]
    return _started("llama.cpp", LLAMA, command, "peer")


def transformers_serve(peers: Peers) -> AbstractContextManager[Running]:
    """Transformers' server with continuous batching. Raises Absent."""
    programs = _environment(peers.folder / "transformers", TRANSFORMERS)
    blocks = peers.most_users * _CONTEXT_TOKENS // _BLOCK_TOKENS
    command = [
        *(programs / "transformers", "serve", peers.model, "--continuous-batching"),
        *("--cb-block-size", str(_BLOCK_TOKENS)),
        *("--cb-num-blocks", str(blocks)),  # without this, it takes all of the machine's memory
    ]
    offline = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(peers.num_threads)}
    version = ", ".join(TRANSFORMERS)
    return _started("transformers", version, command, str(peers.model), offline)


def openarc(peers: Peers) -> AbstractContextManager[Running]:
    """OpenArc from the user's folder, which has its environment, too. Raises Absent."""
    if peers.openarc is None:
        raise Absent("--openarc FOLDER names no checkout")
    program = peers.openarc / ".venv" / "bin" / "openarc"
    if not program.exists():
        raise Absent(f"there is no {program}: run `uv sync` in its checkout")
    key, version = {"OPENARC_API_KEY": _KEY}, f"the checkout {peers.openarc.name}"
    command = [program, "serve", "start"]
    config = {"model_name": "peer", "model_path": str(peers.graph), "device": "CPU"}
    return _started("openarc", version, command, "peer", key, peers.openarc, config)


Starts = Mapping[str, Callable[[Peers], AbstractContextManager[Running]]]
STARTS: Final[Starts] = {
    "llama.cpp": llama_cpp,
    "transformers serve": transformers_serve,
    "OpenArc": openarc,
}


def _load_into_openarc(
    endpoint: Endpoint, config: Mapping[str, str], is_alive: Callable[[], bool]
) -> None:
    url, headers = f"{endpoint.base_url}/openarc/load", {"authorization": f"Bearer {_KEY}"}
    for _ in range(_TRIES):
        with suppress(OSError), socket.create_connection(endpoint.address):
            break
        if not is_alive():
            raise PlatformFailed("it ended")
        time.sleep(0.25)
    for kind, engine in _OPENARC_KINDS:
        body = {**config, "model_type": kind, "engine": engine, "runtime_config": {}}
        answer = httpx.post(url, json=body, headers=headers, timeout=300)
        if answer.is_success:
            return
    raise PlatformFailed(f"it does not load the model: {answer.text}")


def litellm(folder: Path, scratch: Path, upstream: Endpoint) -> AbstractContextManager[Running]:
    """LiteLLM's proxy, which checks its master key and nothing else. Raises Absent."""
    programs = _environment(folder / "litellm", (LITELLM,))
    behind = {"api_base": f"{upstream.base_url}/v1", "api_key": upstream.api_key or _KEY}
    config = {
        "model_list": [
            {"model_name": TINY_CHAT, "litellm_params": {"model": f"openai/{TINY_CHAT}"} | behind}
        ],
        "general_settings": {"master_key": _KEY},
    }
    file = scratch / f"litellm-{upstream.address[1]}.yaml"
    file.write_text(json.dumps(config), encoding="utf-8")
    command = [programs / "litellm", "--config", file, "--num_workers", "1", *_KEEPALIVE]
    offline = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_DOCS": "True"}
    return _started("litellm", LITELLM, command, TINY_CHAT, offline)


def scripted() -> AbstractContextManager[Running]:
    """A server that answers each chat at once with one token."""
    command = [sys.executable, "-m", "benchmarks.scripted_engine"]
    return _started("scripted", "", command, TINY_CHAT, folder=REPOSITORY)


@contextmanager
def _started(
    name: str,
    version: str,
    command: Sequence[object],
    model: str,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    openarc_config: Mapping[str, str] | None = None,
) -> Iterator[Running]:
    """A process that gets its port, once the model answers. Raises Absent."""
    show(f"{name}: starting")
    port = free_port()
    endpoint = Endpoint(f"http://127.0.0.1:{port}", _KEY)
    with tempfile.NamedTemporaryFile(prefix=f"vinery-bench-{name}-") as log, ExitStack() as stack:
        process = subprocess.Popen(
            [*map(str, command), "--host", "127.0.0.1", "--port", str(port)],
            env=os.environ | (environment or {}),
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        stack.callback(_end, process)
        is_alive = lambda: process.poll() is None  # noqa: E731
        try:
            if openarc_config is not None:
                _load_into_openarc(endpoint, openarc_config, is_alive)
            wait_until_it_answers(endpoint, model, is_alive)
        except (PlatformFailed, httpx.HTTPError) as error:
            raise Absent(f"{error}; its log ends: {tail(Path(log.name))[-600:]}") from error
        yield Running(endpoint, model, version, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGCONT, signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        if number == signal.SIGTERM:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_TIMEOUT_S)
    process.wait()


def _built(folder: Path) -> Path:
    """The server, compiled when it is not there yet. Raises Absent."""
    source, server = folder / "source", folder / "build" / "bin" / "llama-server"
    if server.exists():
        return server
    show("llama.cpp: downloading and compiling, which takes minutes")
    if not source.exists():
        fetch = ("--no-deps", "--no-binary", "llama-cpp-python", "--dest", str(folder), LLAMA)
        _run(sys.executable, "-m", "pip", "download", "--quiet", *fetch)
        with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
            archive.extractall(folder, filter="data")
        next(folder.glob("*/vendor/llama.cpp")).rename(source)
    build = str(folder / "build")
    _run("cmake", "-S", str(source), "-B", build, "-G", "Ninja", "-DLLAMA_BUILD_TESTS=OFF", *_BUILD)
    _run("cmake", "--build", build, "--target", "llama-server", "--parallel", "2")
    return server


def _environment(folder: Path, requirements: Sequence[str]) -> Path:
    """The programs of an environment with these packages. Raises Absent."""
    stamp = folder / "requirements.txt"
    if not stamp.exists() or stamp.read_text(encoding="utf-8").split() != [*requirements]:
        show(f"{folder.name}: installing, which takes minutes")
        _run(sys.executable, "-m", "venv", "--clear", str(folder))
        _run(str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *requirements)
        stamp.write_text("\n".join(requirements), encoding="utf-8")
    return folder / "bin"


def _run(*command: str) -> None:
    """Run a command in the background of the machine. Raises Absent."""
    try:
        ended = subprocess.run(
            ["nice", "-n", "19", *command], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise Absent(str(error)) from error
    if ended.returncode != 0:
        lines = (ended.stderr or ended.stdout).strip().splitlines()[-3:]
        raise Absent(f"{' '.join(command[:4])} failed: {' '.join(lines)}")
