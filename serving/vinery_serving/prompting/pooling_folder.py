"""Reads from a folder how an embeddings or rerank model is used: the files that
sentence-transformers writes, where there are any."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Self

from vinery_serving.prompting.folder import ModelFolder, UnusableFolder, read_object, read_value

PoolingMode = Literal["cls", "mean", "last_token"]

_MODES: Final[Mapping[str, PoolingMode]] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last_token",
}
# The newer files have one name.
_NAMED: Final[Mapping[str, PoolingMode]] = {"cls": "cls", "mean": "mean", "lasttoken": "last_token"}
# Families whose positions begin after the pad token, so that two positions hold no token.
_SHIFTED: Final = frozenset({"roberta", "xlm-roberta", "camembert", "xlm-roberta-xl", "mpnet"})
_NUM_SHIFTED: Final = 2


@dataclass(frozen=True, slots=True)
class PoolingFolder:
    pooling: PoolingMode
    normalizes: bool
    max_tokens: int | None  # of one text; None: unknown
    pad_id: int = 0
    prompts: Mapping[str, str] = field(default_factory=dict)  # texts before inputs, by name
    default_prompt: str = ""  # the text before an input without a role

    @classmethod
    def read(cls, folder: ModelFolder) -> Self:
        """Raises `UnusableFolder` for a pooling that Vinery does not have."""
        path = folder.path
        modules = _modules(path)
        config = read_object(path / "config.json")
        prompts, default = _prompts(read_object(path / "config_sentence_transformers.json"))
        pad_id = config.get("pad_token_id")
        return cls(
            pooling=_pooling(path, modules, config),
            normalizes=not modules or "Normalize" in modules,
            max_tokens=_max_tokens(folder),
            pad_id=pad_id if isinstance(pad_id, int) and pad_id >= 0 else 0,
            prompts=prompts,
            default_prompt=default,
        )


def _modules(path: Path) -> Mapping[str, str]:
    """The folders of the modules after the transformer, by kind, such as `Pooling`."""
    modules = read_value(path / "modules.json") or []
    if not isinstance(modules, list):
        raise UnusableFolder(f"{path / 'modules.json'} must hold a list of modules.")
    return {
        str(each.get("type", "")).rpartition(".")[2]: str(each.get("path", ""))
        for each in modules
        if isinstance(each, dict)
    }


def _pooling(path: Path, modules: Mapping[str, str], config: Mapping[str, Any]) -> PoolingMode:
    file = path / modules.get("Pooling", "1_Pooling") / "config.json"
    values = read_object(file)
    if not values:
        names = config.get("architectures") or []
        generates = any("CausalLM" in str(each) for each in names)
        return "last_token" if generates else "cls"
    named = values.get("pooling_mode")
    on = [key for key in values if key.startswith("pooling_mode_") and values[key] is True]
    modes = [named] if isinstance(named, str) else on
    known = [_NAMED.get(each) or _MODES.get(each) for each in modes]
    if len(known) != 1 or known[0] is None:
        raise UnusableFolder(
            f"{file} asks for {' and '.join(modes) or 'no pooling'}. Vinery has one of cls, mean "
            "and lasttoken."
        )
    return known[0]


def _prompts(values: Mapping[str, Any]) -> tuple[Mapping[str, str], str]:
    prompts = values.get("prompts")
    members = prompts.items() if isinstance(prompts, dict) else ()
    texts = {name: text for name, text in members if isinstance(text, str)}
    default = values.get("default_prompt_name")
    return texts, texts.get(default, "") if isinstance(default, str) else ""


def _max_tokens(folder: ModelFolder) -> int | None:
    limits = [folder.max_context] if folder.max_context else []
    own = read_object(folder.path / "sentence_bert_config.json").get("max_seq_length")
    if isinstance(own, int) and own > 0:
        limits.append(own)
    positions = read_object(folder.path / "config.json").get("max_position_embeddings")
    if folder.model_type in _SHIFTED and isinstance(positions, int):
        limits.append(positions - _NUM_SHIFTED)
    return min(limits, default=None)
