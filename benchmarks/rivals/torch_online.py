"""PyTorch's FM-MLP over a stream: sparse Adagrad, every batch predicted and then learned."""

import numpy as np
import torch
from torch import nn

from benchmarks.rivals.torch_fm_mlp import FMMLP
from benchmarks.split import Outcome, Split
from benchmarks.stopwatch import Stopwatch

BATCH = 1024

torch.sparse.check_sparse_tensor_invariants.disable()  # as it is by default; said aloud, it warns no more


def run(split: Split, rate: float) -> Outcome:
    """`rate` is the embeddings' learning rate; the dense layers' is 0.4 of it."""
    rows = len(split.train.batch)
    index, clicks = torch.from_numpy(split.places), torch.from_numpy(split.train.clicks)
    torch.manual_seed(0)
    model = FMMLP(split.features)
    optimisers = [
        torch.optim.Adagrad(model.table.parameters(), lr=rate),
        torch.optim.Adagrad(model.dense.parameters(), lr=0.4 * rate),
    ]
    loss_of, total = nn.BCEWithLogitsLoss(reduction="sum"), 0.0
    with Stopwatch() as watch:
        for start in range(0, rows, BATCH):
            stop = min(start + BATCH, rows)
            loss = loss_of(model(index[start:stop]), clicks[start:stop])
            for optimiser in optimisers:
                optimiser.zero_grad()
            (loss / (stop - start)).backward()
            for optimiser in optimisers:
                optimiser.step()
            total += loss.item()
    with torch.inference_mode():
        parts = [torch.sigmoid(model(part)) for part in index[rows:].split(BATCH)] if len(index) > rows else []
    predicted = torch.cat(parts).numpy() if parts else np.zeros(0, dtype=np.float32)
    return Outcome(rows, watch.seconds, watch.cpu_seconds, total / rows, predicted)
