"""The model's forward pass over a batch, written for pictures of one grid.

It uses the modules of transformers' model and gives the same numbers, without a loop over
pictures and with the patch embedding of a still picture's two equal frames done once.
"""

from typing import Any

import torch
from numpy.typing import NDArray
from torch.nn import functional
from transformers import Qwen2VLForConditionalGeneration

from training.vision.architecture import WIDTH
from training.vision.batches import IMAGE_ID, VIDEO_ID, Pictures, TalkBatch
from training.vision.layout import MAX_CENTRES, patch_coordinates
from training.vision.scenes import COLOURS, KINDS


class CellHeads(torch.nn.Module):
    """Reads the labels of cells off the image tokens. Used in training only."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.kind = torch.nn.Linear(WIDTH, len(KINDS))
        self.colour = torch.nn.Linear(WIDTH, 1 + len(COLOURS))
        self.centre = torch.nn.Linear(WIDTH, 1 + MAX_CENTRES)

    def loss(self, tokens: torch.Tensor, pictures: Pictures) -> torch.Tensor:
        """The mean loss of the three labels over all cells."""
        seen = self.norm(tokens).reshape(-1, WIDTH)
        labels = (pictures.kinds, pictures.colours, pictures.centres)
        losses = [
            functional.cross_entropy(head(seen), _beside(seen, label).reshape(-1))
            for head, label in zip((self.kind, self.colour, self.centre), labels, strict=True)
        ]
        return torch.stack(losses).sum()


def image_tokens(model: Qwen2VLForConditionalGeneration, pictures: Pictures) -> torch.Tensor:
    """(num_pictures, num_cells, width)."""
    encoder = model.model.visual
    hidden = _embedded(encoder, _beside(encoder.patch_embed.proj.weight, pictures.patches))
    rotations = _rotations(encoder, pictures)
    for block in encoder.blocks:
        hidden = hidden + _attention(block.attn, block.norm1(hidden), rotations)
        hidden = hidden + block.mlp(block.norm2(hidden))
    merged: torch.Tensor = encoder.merger(hidden)
    return merged.reshape(len(hidden), -1, WIDTH)


def answer_loss(
    model: Qwen2VLForConditionalGeneration, batch: TalkBatch, seen: torch.Tensor | None
) -> torch.Tensor:
    """The mean loss of the tokens of the answers. Padding is at the end, out of sight."""
    embedding = model.get_input_embeddings()
    ids = _beside(embedding.weight, batch.ids)
    weights = _beside(embedding.weight, batch.weights)
    inputs = embedding(ids)
    if seen is not None:
        is_media = (ids == IMAGE_ID) | (ids == VIDEO_ID)
        inputs = inputs.masked_scatter(is_media[..., None], seen.reshape(-1, WIDTH))
    hidden = model.model.language_model(
        inputs_embeds=inputs[:, :-1],
        position_ids=_beside(inputs, batch.positions)[:, :, :-1],
        use_cache=False,
    ).last_hidden_state
    counts = weights[:, 1:] > 0
    logits = model.lm_head(hidden[counts])
    return functional.cross_entropy(logits, ids[:, 1:][counts])


def _embedded(encoder: Any, patches: torch.Tensor) -> torch.Tensor:
    """(num_pictures, num_frames, num_patches, values) as (num_pictures, num_patches, width)."""
    kernel = encoder.patch_embed.proj.weight.transpose(1, 2).flatten(3).flatten(2)
    if patches.shape[1] == 1:
        return functional.linear(_normalised(patches[:, 0]), kernel.sum(1))
    frames = _normalised(patches)
    embedded = [
        functional.linear(frames[:, time], kernel[:, time]) for time in range(frames.shape[1])
    ]
    return torch.stack(embedded).sum(0)


def _beside(other: torch.Tensor, array: NDArray[Any]) -> torch.Tensor:
    """The array as a tensor on the device of `other`."""
    return torch.from_numpy(array).to(other.device)


def _normalised(patches: torch.Tensor) -> torch.Tensor:
    return patches.float().mul_(1 / 127.5).sub_(1)


def _rotations(encoder: Any, pictures: Pictures) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of the rotary positions of patches, (num_patches, 1, head width)."""
    frequencies = encoder.rotary_pos_emb.inv_freq
    coordinates = _beside(frequencies, patch_coordinates(pictures.grid)).float()
    angles = torch.outer(coordinates.flatten(), frequencies).reshape(len(coordinates), -1)
    both = torch.cat((angles, angles), dim=-1)[None, :]
    return both.cos(), both.sin()


def _attention(
    attention: Any, hidden: torch.Tensor, rotations: tuple[torch.Tensor, torch.Tensor]
) -> torch.Tensor:
    pictures, patches, width = hidden.shape
    heads = attention.num_heads
    split = attention.qkv(hidden).reshape(pictures, patches, 3, heads, width // heads)
    query, key, value = split.permute(2, 0, 3, 1, 4)
    cosines, sines = rotations
    mixed = functional.scaled_dot_product_attention(
        query * cosines + _half_rotated(query) * sines,
        key * cosines + _half_rotated(key) * sines,
        value,
    )
    result: torch.Tensor = attention.proj(mixed.transpose(1, 2).reshape(pictures, patches, width))
    return result


def _half_rotated(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)
