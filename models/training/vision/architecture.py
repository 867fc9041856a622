"""The shape of tiny-vision, a model of the Qwen2-VL architecture, and how it takes pictures."""

import math
from typing import Any

import torch
from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

from training.vision.layout import CELL, FRAMES_PER_PATCH, MERGE, PATCH
from training.vision.rendering import SPECIAL_TOKENS

MIN_PIXELS = (2 * CELL) ** 2
MAX_PIXELS = (4 * CELL) ** 2
MEAN, STD = 0.5, 0.5
POSITIONS = 2048

VISION_WIDTH = 96
FILTER_GAIN = 2.0
WIDTH = 128
PREPROCESSOR: dict[str, Any] = {
    "do_convert_rgb": True,
    "do_normalize": True,
    "do_rescale": True,
    "do_resize": True,
    "image_mean": [MEAN] * 3,
    "image_std": [STD] * 3,
    "max_pixels": MAX_PIXELS,
    "merge_size": MERGE,
    "min_pixels": MIN_PIXELS,
    "patch_size": PATCH,
    "resample": 3,
    "rescale_factor": 1 / 255,
    "size": {"longest_edge": MAX_PIXELS, "shortest_edge": MIN_PIXELS},
    "temporal_patch_size": FRAMES_PER_PATCH,
}
IMAGE_PREPROCESSOR = {
    **PREPROCESSOR,
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2VLProcessor",
}
VIDEO_PREPROCESSOR = {
    **PREPROCESSOR,
    "processor_class": "Qwen2VLProcessor",
    "video_processor_type": "Qwen2VLVideoProcessor",
}


def configuration(vocabulary_size: int) -> Qwen2VLConfig:
    """The configuration. The vocabulary is rounded up to a multiple of 64."""
    token = SPECIAL_TOKENS.index
    text = {
        "vocab_size": (vocabulary_size + 63) // 64 * 64,
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": POSITIONS,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": [4, 6, 6],
        },
        "bos_token_id": None,
        "eos_token_id": token("<|im_end|>"),
        "pad_token_id": token("<|endoftext|>"),
        "tie_word_embeddings": True,
    }
    vision = {
        "depth": 4,
        "embed_dim": VISION_WIDTH,
        "hidden_size": WIDTH,
        "mlp_ratio": 3,
        "num_heads": 3,
        "patch_size": PATCH,
        "spatial_merge_size": MERGE,
        "temporal_patch_size": FRAMES_PER_PATCH,
    }
    return Qwen2VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=token("<|image_pad|>"),
        video_token_id=token("<|video_pad|>"),
        vision_start_token_id=token("<|vision_start|>"),
        vision_end_token_id=token("<|vision_end|>"),
        tie_word_embeddings=True,
    )


def new_model(vocabulary_size: int, seed: int) -> Qwen2VLForConditionalGeneration:
    """A model with random weights, whose patch embedding begins with cosines."""
    torch.manual_seed(seed)
    model = Qwen2VLForConditionalGeneration(configuration(vocabulary_size))
    model.model.visual.patch_embed.proj.weight.data.copy_(_cosine_filters())
    return model


def _cosine_filters() -> torch.Tensor:
    """The slowest cosines of each colour channel: an embedding that keeps a blurred patch.

    (width, colours, frames, rows, columns), the weights of a patch embedding.
    """
    centres = (torch.arange(PATCH) + 0.5) / PATCH
    pairs = [(a, b) for a in range(PATCH) for b in range(PATCH)]
    pairs.sort(key=lambda pair: pair[0] ** 2 + pair[1] ** 2)
    weights = torch.zeros(VISION_WIDTH, 3, FRAMES_PER_PATCH, PATCH, PATCH)
    for index in range(VISION_WIDTH):
        down, across = pairs[index // 3]
        wave = torch.outer(
            torch.cos(math.pi * down * centres), torch.cos(math.pi * across * centres)
        )
        weights[index, index % 3] = wave / wave.norm() / PATCH / FRAMES_PER_PATCH * FILTER_GAIN
    return weights
