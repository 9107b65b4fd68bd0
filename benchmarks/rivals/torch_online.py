"""A PyTorch network over a stream: Adagrad, sparse for the embeddings; every batch is predicted, and then learned."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from benchmarks.rivals.torch_networks import NETWORKS, Network
from benchmarks.split import Outcome, Split
from benchmarks.stopwatch import Stopwatch

DENSE_RATE = 0.4  # learning rate of the dense layers over that of the embeddings
SCORED = 4096  # rows at a time

torch.set_num_threads(1)
torch.sparse.check_sparse_tensor_invariants.disable()  # as it is by default; said aloud, it warns no more


def run(split: Split, network: str, rate: float, batch: float) -> Outcome:
    """`rate` is the embeddings' learning rate."""
    rows, size = split.learned, int(batch)
    index, clicks = torch.from_numpy(split.places), torch.from_numpy(split.clicks)
    torch.manual_seed(0)
    model = NETWORKS[network](split.features, index.shape[1])
    optimisers = [
        torch.optim.Adagrad(model.table.parameters(), lr=rate),
        torch.optim.Adagrad(model.dense(), lr=DENSE_RATE * rate),
    ]
    with Stopwatch() as watch:
        before = _learned(model, optimisers, index[:rows], clicks[:rows], size)
    later = index[rows:]
    with torch.inference_mode():
        parts = [torch.sigmoid(model(part)) for part in later.split(SCORED)] if len(later) else []
    predicted = torch.cat(parts).numpy() if parts else np.zeros(0, dtype=np.float32)
    return Outcome(
        rows, watch.seconds, watch.cpu_seconds, before, predicted, _learned(model, optimisers, later, clicks[rows:], size)
    )


def _learned(
    model: Network, optimisers: list[torch.optim.Adagrad], index: torch.Tensor, clicks: torch.Tensor, size: int
) -> NDArray[np.float32]:
    """Learn the rows, batch after batch; returns what was predicted before."""
    loss_of, before = nn.BCEWithLogitsLoss(), np.empty(len(index), np.float32)
    for start in range(0, len(index), size):
        stop = min(start + size, len(index))
        logits = model(index[start:stop])
        before[start:stop] = torch.sigmoid(logits.detach()).numpy()
        loss = loss_of(logits, clicks[start:stop])
        for optimiser in optimisers:
            optimiser.zero_grad()
        loss.backward()
        for optimiser in optimisers:
            optimiser.step()
    return before
