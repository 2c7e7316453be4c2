"""Keys and values of one request in one contiguous buffer."""

from __future__ import annotations

import torch

from memscope_runners.q8.config import ModelConfig


class KvCache:
    """float32 (2, layers, kv_heads, tokens, head_dim) over a uint8 buffer, and how much is used."""

    def __init__(self, buffer: torch.Tensor, config: ModelConfig, tokens: int) -> None:
        shape = (2, config.layers, config.kv_heads, tokens, config.head_dim)
        self._tensor = buffer[: self.bytes_for(config, tokens)].view(torch.float32).view(shape)
        self._bytes_per_token = self.bytes_for(config, 1)
        self.tokens = tokens
        self.length = 0

    @staticmethod
    def bytes_for(config: ModelConfig, tokens: int) -> int:
        """Bytes that `tokens` positions take."""
        return 2 * config.layers * config.kv_heads * tokens * config.head_dim * 4

    @classmethod
    def allocate(cls, config: ModelConfig, tokens: int) -> KvCache:
        """A cache over a buffer of its own in ordinary memory."""
        buffer = torch.empty(cls.bytes_for(config, tokens), dtype=torch.uint8)
        return cls(buffer, config, tokens)

    @property
    def used_bytes(self) -> int:
        return self.length * self._bytes_per_token

    def layer(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of one layer, each (kv_heads, tokens, head_dim)."""
        return self._tensor[0, layer], self._tensor[1, layer]

    def extend(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes (kv_heads, new, head_dim) behind what is there and returns both with the past.

        `length` grows only by `advance`, once all layers have written.
        """
        end = self.length + keys.shape[1]
        self._tensor[0, layer, :, self.length : end] = keys
        self._tensor[1, layer, :, self.length : end] = values
        return self._tensor[0, layer, :, :end], self._tensor[1, layer, :, :end]

    def advance(self, tokens: int) -> None:
        self.length += tokens
