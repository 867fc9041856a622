"""Small model folders for live tests.

Each folder looks like an export by optimum-intel and loads in a fraction of a second. The models
answer with meaningless words, the same ones each time, and never end by themselves: an answer
always has exactly `max_tokens` tokens.
"""

from pathlib import Path

from tests.random_models.folder import write_folder
from tests.random_models.plans import DecoderShape, Family, plan_of

LLAMA = plan_of(
    DecoderShape(
        family=Family.LLAMA,
        vocab_size=768,
        hidden_size=64,
        intermediate_size=160,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        has_tied_head=False,
        max_positions=2_048,
        rope_theta=500_000.0,
        rms_epsilon=1e-5,
        initial_std=0.3,
    )
)

QWEN2 = plan_of(
    DecoderShape(
        family=Family.QWEN2,
        vocab_size=640,
        hidden_size=64,
        intermediate_size=192,
        num_layers=3,
        num_heads=8,
        num_kv_heads=2,
        has_tied_head=True,
        max_positions=4_096,
        initial_std=0.3,
    )
)


def write_llama_folder(path: Path) -> Path:
    """Llama 3 in small: untied head, a begin-of-text token, header tokens around the roles."""
    write_folder(LLAMA, path)
    return path


def write_qwen2_folder(path: Path) -> Path:
    """Qwen2 in small: tied head, biased Q, K and V, ChatML."""
    write_folder(QWEN2, path)
    return path


def without_tokenizer_json(folder: Path) -> Path:
    """Leave only the OpenVINO tokenizer, like folders of models with a slow tokenizer."""
    (folder / "tokenizer.json").unlink()
    return folder
