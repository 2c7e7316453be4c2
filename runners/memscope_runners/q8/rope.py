"""Rotary positions."""

from __future__ import annotations

import torch

from memscope_runners.q8.config import ModelConfig


class RopeTable:
    """Cosines and sines of rotary positions, computed as far as they are asked for."""

    def __init__(self, config: ModelConfig, device: torch.device) -> None:
        exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
        self._frequencies = 1.0 / config.rope_theta**exponents
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
