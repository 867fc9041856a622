"""The architectures that OpenVINO GenAI serves, and the task of a model.

Text: the classes in GenAI's list of supported models (August 2026). It reads other decoders too,
since it transforms their attention by its form, so an unlisted one is warned about, not refused.
Vision: the types of which Vinery knows how many tokens a picture has.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

from vinery_serving.core.picture_sizes import SIZED_TYPES
from vinery_serving.models.hub.repository import Repository

Task = Literal["chat", "completion", "vision", "embeddings", "rerank"]

_TEXT: Final = """
    Aquila Arctic Baichuan Bloom ChatGLM CodeGen Cohere Cohere2 Dbrx DeciLM Deepseek DeepseekV2
    DeepseekV3 Exaone Exaone4 Falcon Gemma Gemma2 Gemma3 Glm Glm4 GPT2 GPTBigCode GPTJ GPTNeo
    GPTNeoX GPTNeoXJapanese GptOss Granite GraniteMoe GraniteMoeHybrid HunYuanDenseV1 InternLM
    InternLM2 JAIS Lfm2 Lfm2Moe Llama MPT MiniCPM MiniCPM3 Mistral Mixtral Olmo Olmo2 OPT Orion Phi
    Phi3 Phimoe QWen Qwen2 Qwen2Moe Qwen3 Qwen3Moe Qwen3Next SmolLM3 StableLm Starcoder2 XGLM Xverse
"""
_TEXT_SUFFIXES: Final = ("ForCausalLM", "LMHeadModel", "Model")
VISION_TYPES: Final = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", *SIZED_TYPES)
# The three that GenAI reads from a GGUF file.
GGUF_ARCHITECTURES: Final = ("llama", "qwen2", "qwen3")

_VISION_GRAPH: Final = "openvino_text_embeddings_model.xml"
_CLASSIFIER: Final = "ForSequenceClassification"
_ENCODERS: Final = ("BertModel", "MPNetForMaskedLM", "RobertaForMaskedLM", "XLMRobertaModel")
_EMBEDDING_TAGS: Final = ("feature-extraction", "sentence-similarity")
# Files of the library sentence-transformers, whose models embed texts.
_POOLING: Final = ("modules.json", "1_Pooling/config.json")
_TEMPLATES: Final = ("chat_template.jinja", "chat_template.json")


def class_of(config: Mapping[str, Any]) -> str | None:
    """Return the class of a model by its config.json, such as Qwen3ForCausalLM; None: unnamed."""
    named = config.get("architectures")
    first = named[0] if isinstance(named, list) and named else None
    return first if isinstance(first, str) else None


def type_of(config: Mapping[str, Any]) -> str | None:
    """Return `model_type` of a config.json, such as qwen3."""
    named = config.get("model_type")
    return named if isinstance(named, str) else None


def is_known_text(name: str | None) -> bool:
    """Whether GenAI's list names this class of a text model."""
    return any(name == known + suffix for known in _TEXT.split() for suffix in _TEXT_SUFFIXES)


def task_of(repository: Repository) -> Task:
    """Return the task that the files and the configuration speak for."""
    config, name = repository.config, class_of(repository.config) or ""
    if repository.pipeline_tag == "text-ranking" or name.endswith(_CLASSIFIER):
        return "rerank"
    is_vision = "vision_config" in config or repository.has(_VISION_GRAPH)
    if is_vision or type_of(config) in VISION_TYPES:
        return "vision"
    has_pooling = any(map(repository.has, _POOLING))
    if has_pooling or name in _ENCODERS or repository.pipeline_tag in _EMBEDDING_TAGS:
        return "embeddings"
    return "chat" if _has_template(repository) else "completion"


def _has_template(repository: Repository) -> bool:
    """Whether it has a chat template, which older models have in tokenizer_config.json."""
    return any(map(repository.has, _TEMPLATES)) or bool(repository.chat_template)
