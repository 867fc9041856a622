"""Checkpoints of Hugging Face that tests make: tiny, and without weights that mean anything."""

import json
import subprocess
from pathlib import Path
from typing import Final

from tests.models.hub.models import TINY_CHAT

_CLASSES: Final = {"qwen2": "Qwen2ForCausalLM", "llama": "LlamaForCausalLM"}
_RANDOM: Final = """
import sys
from transformers import AutoConfig, AutoModelForCausalLM
config = AutoConfig.for_model(
    sys.argv[1], vocab_size=3072, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512, eos_token_id=2,
)
AutoModelForCausalLM.from_config(config).half().save_pretrained(sys.argv[2])
"""


def write_checkpoint(folder: Path, model_type: str = "qwen2") -> Path:
    """Write what Vinery looks at: the configuration, and a file of weights."""
    folder.mkdir(parents=True)
    config = {"model_type": model_type, "architectures": [_CLASSES[model_type]]}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "model.safetensors").write_bytes(bytes(1000))
    return folder


def make_checkpoint(folder: Path, model_type: str, python: Path) -> Path:
    """Let the transformers of an environment write a decoder of two layers with random weights;
    the tokenizer is that of the reference model."""
    subprocess.run([python, "-c", _RANDOM, model_type, folder], check=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (folder / name).write_bytes((TINY_CHAT / name).read_bytes())
    return folder
