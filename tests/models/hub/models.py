"""Files of repositories, small enough to be made in a test."""

import json
from typing import Any

from tests.conftest import REPOSITORY

TINY_CHAT = REPOSITORY / "models" / "tiny-chat"
TINY_VISION = REPOSITORY / "models" / "tiny-vision"

QWEN3_8B = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_hidden_layers": 36}
QWEN3_8B |= {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
QWEN3_8B |= {"hidden_size": 4096, "max_position_embeddings": 40960, "torch_dtype": "bfloat16"}


def openvino_files(config: dict[str, Any] | None = None) -> dict[str, bytes]:
    return {
        "config.json": json.dumps(QWEN3_8B if config is None else config).encode(),
        "openvino_model.xml": b"<net/>",
        "openvino_model.bin": b"weights",
        "tokenizer.json": b"{}",
        "chat_template.jinja": b"{{ messages }}",
    }


def checkpoint_files(config: dict[str, Any] | None = None) -> dict[str, bytes]:
    return {
        "config.json": json.dumps(QWEN3_8B if config is None else config).encode(),
        "model-00001-of-00001.safetensors": b"weights",
        "tokenizer.json": b"{}",
    }
