"""Reads the task of a model from the files of the folder, and checks options against these files.

The outputs of the graph decide on the task, because a folder may keep the configuration of another
export: the same BERT is exported for embeddings, for ranking and for filling in words.

The files come from strangers, so a confined process reads them, and answers with `Findings`.
"""

import asyncio
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar
from xml.etree import ElementTree

import msgspec

from vinery_serving.core.model_files import FolderState, folder_state, folders_of
from vinery_serving.core.tasks import Task
from vinery_serving.engine.options import EngineOptions, parse_options
from vinery_serving.processes.apart import NoAnswer, run_apart
from vinery_serving.prompting.folder import (
    ChatTemplates,
    UnusableFolder,
    own_templates,
    read_object,
    read_text,
    templates_of,
)

AnswerT = TypeVar("AnswerT")
_GRAPH: Final = "openvino_model.xml"
# A folder with this file holds a vision model, see `engine.graph`.
EMBEDDINGS: Final = "openvino_text_embeddings_model.xml"


@dataclass(frozen=True, slots=True)
class Findings:
    """What the files of a folder show. Errors are sentences for administrators; empty: none."""

    task: Task | None = None  # None: no readable graph
    folder_error: str = ""
    options_error: str = ""


def find(folder: str, options: Mapping[str, Any]) -> Findings:
    """Read the files of a model and of its valid options. Blocks for up to 15 s."""
    path = Path(folder)
    if not path.is_absolute():
        return Findings(folder_error=f"{path} is not an absolute path.")
    if not path.is_dir():
        return Findings(folder_error=f"There is no folder {path}.")
    try:
        parsed = parse_options(dict(options))
    except ValueError:
        options, parsed = {}, EngineOptions()
    template = Path(parsed.chat_template if parsed.chat_template.startswith("/") else path)
    reads = (*folders_of(folder, options), template)
    beside = (path / "additional_chat_templates", template.parent)
    try:
        return _read(path, msgspec.json.encode(options), reads, folder_state([*reads, *beside]))
    except (UnusableFolder, OSError) as error:
        text = f"{str(error).removesuffix('.')}: one may be damaged, or a template endless."
        return Findings(None, text, text)


@lru_cache(maxsize=64)  # a change is checked more than once
def _read(path: Path, options: bytes, reads: Sequence[Path], state: FolderState) -> Findings:
    return read_apart(inspect, path, options, answers=Findings, fails=UnusableFolder, reads=reads)


def read_apart(
    work: Callable[..., AnswerT],
    *arguments: object,
    answers: Any,
    fails: type[Exception],
    reads: Sequence[Path],
) -> AnswerT:
    """Return what `work` returns, of the type `answers`, in a confined process. The first argument
    is what it reads. Raises `fails` as `work` does, and if there is no answer."""
    try:
        content = asyncio.run(run_apart(_encoded, work, arguments, fails, reads=reads))
        kind: Any = dict[str, answers] | list[str]
        answer = msgspec.json.decode(content, type=kind, dec_hook=lambda to, value: to(value))
    except (NoAnswer, OSError, msgspec.MsgspecError) as error:
        raise fails(f"Reading the files of {arguments[0]} {error}.") from error
    if isinstance(answer, list):
        raise fails(*answer)
    found: AnswerT = answer["found"]
    return found


def _encoded(work: Callable[..., object], arguments: tuple[Any, ...], fails: Any) -> bytes:
    try:
        return msgspec.json.encode({"found": work(*arguments)}, enc_hook=str)
    except fails as error:
        return msgspec.json.encode([str(each) for each in error.args])


def inspect(folder: Path, options: bytes) -> Findings:
    """Runs templates, without limits: only for a process that may be killed."""
    task = None
    with suppress(UnusableModel, UnusableFolder):
        task = read_task(folder)
    parsed = parse_options(msgspec.json.decode(options))
    return Findings(
        task, _error(check_folder, folder, parsed), _error(check_folder_options, parsed, folder)
    )


def _error(check: Callable[..., None], *arguments: object) -> str:
    try:
        check(*arguments)
    except (ValueError, UnusableFolder, OSError) as error:
        return str(error)
    return ""


def check_folder_options(options: EngineOptions, folder: Path) -> None:
    """Raise ValueError or UnusableFolder for an option that the model does not take."""
    if (folder / EMBEDDINGS).is_file():
        names = ("draft_model", "eagle3_head", "prompt_lookup")
        for name in (*names, "adapters", "cache_eviction", "sparse_attention"):
            if getattr(options, name):
                raise ValueError(f"A vision model cannot have the option {name}. Leave it out.")
    _try_templates(own_templates(options.chat_template))
    for adapter in options.adapters:
        if not Path(adapter.path).exists():
            raise ValueError(f"There is no adapter {adapter.path}.")
    if options.draft_model:
        _check_draft("draft_model", Path(options.draft_model))
    if options.eagle3_head:
        _check_draft("eagle3_head", Path(options.eagle3_head))
    if options.cache_interval_multiplier and not _has_linear_attention(folder / _GRAPH):
        raise ValueError(
            "cache_interval_multiplier is for models with linear attention, and this one has none. "
            "Leave it out."
        )


def _try_templates(templates: ChatTemplates | None) -> None:
    """Raises UnusableFolder for a template that does not compile."""
    from vinery_serving.prompting.render import ChatRenderer  # loads what commands do not use
    from vinery_serving.prompting.template import ChatTemplate

    for text in () if templates is None else (templates.default, templates.tools):
        if text is not None:
            ChatRenderer(ChatTemplate(text))


def _check_draft(option: str, folder: Path) -> None:
    """Raises ValueError for a folder whose model proposes tokens in another way."""
    if not folder.is_absolute():
        raise ValueError(f"{option} must be an absolute path, and {folder} is not.")
    if not (folder / _GRAPH).is_file():
        raise ValueError(f"The folder {folder} of {option} has no {_GRAPH}.")
    wanted = option == "eagle3_head"
    if is_head(folder) and not wanted:
        raise ValueError(f"{folder} is an EAGLE-3 head: set the option eagle3_head to it.")
    if wanted and not is_head(folder):
        raise ValueError(
            f"{folder} is no EAGLE-3 head: its graph and config.json do not mention one. Set the "
            "option draft_model if it is a model that reads tokens."
        )


def _has_linear_attention(graph: Path) -> bool:
    states = rb'variable_id="[^"]*(?:ssm|conv|recurrent|linear)'
    return graph.is_file() and re.search(states, graph.read_bytes()) is not None


def is_head(folder: Path) -> bool:
    """Whether a model reads the hidden states of another model, and proposes tokens to it: the
    exporter notes this at the end of the graph, the training in config.json. Raises OSError or
    UnusableFolder."""
    with (folder / _GRAPH).open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - (1 << 16)))
        notes = file.read().lower()
    return b"eagle3" in notes + (read_text(folder / "config.json") or "").lower().encode()


_FAST_TOKENIZER: Final = "tokenizer.json"


class UnusableModel(ValueError):
    """The model has a task that Vinery does not serve. The message is for administrators."""


def read_task(folder: Path) -> Task | None:
    """Return the task of a model; None: no readable graph. Raises what `check_folder` raises."""
    if (folder / EMBEDDINGS).is_file():
        return Task.VISION
    try:
        graph = (folder / _GRAPH).read_text("utf-8", errors="replace")
    except OSError:
        return None
    # A graph that keeps a state generates text, whatever the names of the outputs.
    if 'type="ReadValue"' not in graph:
        outputs = _outputs(graph)
        if outputs.keys() & {"sentence_embedding", "last_hidden_state", "token_embeddings"}:
            return Task.EMBEDDINGS
        if outputs.get("logits") == 2:
            labels = read_object(folder / "config.json").get("id2label")
            if isinstance(labels, dict) and len(labels) > 2:
                raise UnusableModel(
                    f"{folder} holds a classifier with {len(labels)} labels. A rerank model has "
                    "one label, or two of which the second is relevance."
                )
            return Task.RERANK
    templates = templates_of(folder, read_object(folder / "tokenizer_config.json"))
    return Task.COMPLETION if templates is None else Task.CHAT


def _outputs(graph: str) -> dict[str, int]:
    """The number of dimensions of each output, by its names. Raises UnusableModel."""
    try:
        root = ElementTree.fromstring(graph)
    except ElementTree.ParseError as error:
        raise UnusableModel(f"{_GRAPH} is broken XML: {error}.") from None
    if root.find("layers") is None:
        raise UnusableModel(f"{_GRAPH} has no layers: it is no graph of OpenVINO.")
    layers = {each.get("id", ""): each for each in root.iterfind("layers/layer")}
    outputs: dict[str, int] = {}
    for edge in root.iterfind("edges/edge"):
        result, source = (layers.get(edge.get(each, "")) for each in ("to-layer", "from-layer"))
        if source is None or result is None or result.get("type") != "Result":
            continue
        for port in source.iterfind("output/port"):
            if port.get("id") == edge.get("from-port"):
                num = len(port.findall("dim"))
                outputs |= dict.fromkeys(port.get("names", "").split(","), num)
    return outputs


def check_folder(path: Path, options: EngineOptions) -> None:
    """Raises ValueError or UnusableFolder for a folder without a model that Vinery can serve."""
    names = (_GRAPH, "openvino_language_model.xml")
    graph = next((path / name for name in names if (path / name).is_file()), None)
    if graph is None:
        raise ValueError(
            f"{path} has no openvino_model.xml. Export the model first, for example with "
            "`optimum-cli export openvino`."
        )
    weights = graph.with_suffix(".bin")
    if not weights.is_file():
        raise ValueError(f"{path} has no {weights.name}, the weights. Copy the folder again.")
    if graph.name == _GRAPH and is_head(path):
        raise ValueError(
            f"{path} is an EAGLE-3 head, which answers nothing by itself: set the option "
            "eagle3_head of its model to it."
        )
    task = read_task(path)
    if not options.chat_template:
        _try_templates(templates_of(path, read_object(path / "tokenizer_config.json")))
    if task is Task.RERANK and not (path / _FAST_TOKENIZER).is_file():
        raise ValueError(
            f"{path} has no {_FAST_TOKENIZER}, with which Vinery writes queries and documents as "
            "pairs. Copy it from the original model."
        )
