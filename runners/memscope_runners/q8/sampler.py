"""Choose the next token."""

from __future__ import annotations

import torch


def greedy(logits: torch.Tensor) -> int:
    """The most likely token of logits (vocab,); the lowest id if several are equal."""
    return int(torch.argmax(logits))
