"""FM-MLP in PyTorch: the same network with point weights, trained by Adagrad, with sparse gradients for the embeddings.

One table holds a feature's embedding and, in one more column, its linear weight: faster here than two tables, both ways.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from benchmarks.timing import Contestant
from benchmarks.workload import Workload

torch.set_num_threads(1)


class FMMLP(nn.Module):
    """FM of the fields' embeddings -> dense 64 -> ReLU -> dense 32 -> ReLU -> dense 1, plus the linear term."""

    def __init__(self, features: int, dim: int = 16, hidden: tuple[int, int] = (64, 32)) -> None:
        super().__init__()
        self.dim = dim
        self.table = nn.Embedding(features, dim + 1, sparse=True)
        nn.init.normal_(self.table.weight, std=0.03)
        first, second = hidden
        self.dense = nn.Sequential(nn.Linear(dim, first), nn.ReLU(), nn.Linear(first, second), nn.ReLU(), nn.Linear(second, 1))

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        x = self.table(index)  # [rows, fields, dim + 1]
        total = x.sum(1)
        linear = total[:, self.dim]
        x, total = x[:, :, : self.dim], total[:, : self.dim]
        pairs = 0.5 * (total * total - (x * x).sum(1))
        return self.dense(pairs).squeeze(1) + linear


def indexed(workload: Workload) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Rows of the table for every feature, [rows, fields]; the clicks; and how many features there are."""
    known, index = np.unique(workload.keys(), return_inverse=True)
    index = index.reshape(workload.keys().shape)
    return torch.from_numpy(index.astype(np.int64)), torch.from_numpy(workload.clicks), len(known)


def learner(name: str, workload: Workload, rows: int, batch: int) -> Contestant:
    index, clicks, features = indexed(workload)

    def fresh() -> Callable[[], float]:
        torch.manual_seed(0)
        model = FMMLP(features)
        optimisers = [
            torch.optim.Adagrad(model.table.parameters(), lr=0.05),
            torch.optim.Adagrad(model.dense.parameters(), lr=0.02),
        ]
        loss_of = nn.BCEWithLogitsLoss(reduction="sum")

        def run() -> float:
            total = torch.zeros(())
            for start in range(0, rows, batch):
                stop = min(start + batch, rows)
                loss = loss_of(model(index[start:stop]), clicks[start:stop])
                for optimiser in optimisers:
                    optimiser.zero_grad()
                (loss / (stop - start)).backward()
                for optimiser in optimisers:
                    optimiser.step()
                total += loss.detach()
            return total.item() / rows

        return run

    return Contestant(name, rows, fresh, lambda log_loss: log_loss)


def scorer(name: str, workload: Workload, rows: int, rows_per_call: int) -> Contestant:
    """The frozen TorchScript forward: logits, that is means alone."""
    index, _, features = indexed(workload)
    frozen = torch.jit.freeze(torch.jit.script(FMMLP(features).eval()))
    parts = [index[start : min(start + rows_per_call, rows)] for start in range(0, rows, rows_per_call)]

    def run() -> None:
        with torch.inference_mode():
            for part in parts:
                frozen(part)

    return Contestant(name, rows, lambda: run)
