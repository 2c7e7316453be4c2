"""Record a training loop: python examples/train.py [OUT] [--leak]

With --leak each step keeps its loss with the graph behind it, the commonest of leaks; on a GPU
`memscope summary` then names it.
"""

from __future__ import annotations

import sys

import torch
from torch import nn

import memscope

STEPS = 60
WIDTH, DEPTH, BATCH = 128, 4, 32


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            inputs = torch.relu(layer(inputs))
        return inputs


def main(path: str = "train.mscope", *, steps: int = STEPS, leaks: bool = False) -> list[float]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = Network().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    kept: list[torch.Tensor] = []
    losses: list[float] = []
    with memscope.record(path, force=True):
        memscope.watch(model, layers="layers", optimizer=optimizer)
        for _ in range(steps):
            inputs = torch.randn(BATCH, WIDTH, device=device)
            loss = (model(inputs) - inputs).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if leaks:
                kept.append((model(inputs) - inputs).square())
    return losses


if __name__ == "__main__":
    names = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    leaks = "--leak" in sys.argv
    found = main(*names[:1], steps=2000 if leaks else STEPS, leaks=leaks)
    print(
        f"loss {found[0]:.3f} → {found[-1]:.3f}: memscope summary {(names or ['train.mscope'])[0]}"
    )
