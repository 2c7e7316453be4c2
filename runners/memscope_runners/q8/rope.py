"""Rotary positions."""

from __future__ import annotations

import math

import torch

from memscope_runners.q8.config import ModelConfig, RopeScaling


def frequencies(config: ModelConfig) -> torch.Tensor:
    """Radians a position of each pair of rows: float32 (head_dim / 2,)."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    plain = 1.0 / config.rope_theta**exponents
    return plain if config.rope_scaling is None else scaled(plain, config.rope_scaling)


def scaled(plain: torch.Tensor, scaling: RopeScaling) -> torch.Tensor:
    """Llama 3.1's frequencies, as `_compute_llama3_parameters` of transformers has them."""
    turns = scaling.original_context * plain / (2 * math.pi)  # over the original context
    share = (turns - scaling.low_factor) / (scaling.high_factor - scaling.low_factor)
    share = share.clamp(0.0, 1.0)  # of the plain frequency: all of a fast one, none of a slow one
    return plain * (share + (1.0 - share) / scaling.factor)


class RopeTable:
    """Cosines and sines of rotary positions, computed on demand."""

    def __init__(self, config: ModelConfig, device: torch.device) -> None:
        self._frequencies = frequencies(config)
        self._device = device
        self._cosines = self._sines = torch.empty(0, config.head_dim, device=device)

    def rows(self, start: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines of positions start … start + count − 1, each (count, head_dim)."""
        end = start + count
        if end > len(self._cosines):
            positions = torch.arange(max(end, 2 * len(self._cosines)), dtype=torch.float32)
            angles = torch.outer(positions, self._frequencies)
            angles = torch.cat((angles, angles), dim=-1)
            self._cosines = angles.cos().to(self._device)
            self._sines = angles.sin().to(self._device)
        return self._cosines[start:end], self._sines[start:end]
