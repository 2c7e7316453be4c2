"""Record a serving-like loop: batches and lengths change from request to request.

python examples/serve.py [OUT] [--flush]

Changing sizes are what a caching allocator keeps too much for; with --flush each request ends
with torch.cuda.empty_cache(), and `memscope summary` says on a GPU what that costs.
"""

from __future__ import annotations

import random
import sys

import torch
from torch import nn

import memscope

REQUESTS = 60
WIDTH, DEPTH, HEADS = 64, 3, 4


class Server(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        make = nn.TransformerEncoderLayer
        layers = [make(WIDTH, HEADS, 2 * WIDTH, batch_first=True) for _ in range(DEPTH)]
        self.layers = nn.ModuleList(layers)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            inputs = layer(inputs)
        return inputs


@torch.inference_mode()
def main(path: str = "serve.mscope", *, requests: int = REQUESTS, flushes: bool = False) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes = random.Random(0)
    server = Server().to(device).eval()
    with memscope.record(path, force=True) as recorder:
        memscope.watch(server, layers="layers")
        for _ in range(requests):
            batch, length = sizes.randint(1, 8), sizes.randint(4, 64)
            with recorder.step():
                server(torch.randn(batch, length, WIDTH, device=device))
                if flushes:
                    torch.cuda.empty_cache()


if __name__ == "__main__":
    names = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    main(*names[:1], flushes="--flush" in sys.argv)
    print(f"{REQUESTS} requests: memscope summary {(names or ['serve.mscope'])[0]}")
