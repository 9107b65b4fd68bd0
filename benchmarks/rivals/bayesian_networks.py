"""Bayesian deep learning of today over one network: the FM-MLP of `torch_networks`, learned in one pass.

Each learner predicts a batch and then learns it, and draws logits of rows together: all rows of a draw under the same weights. The
network ends in features φ (the last hidden layer, the linear term, and 1); a head turns them into a logit.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from benchmarks.rivals.torch_networks import DIM, mlp

Floats = NDArray[np.float32]
HIDDEN = (64, 32)
FEATURES = HIDDEN[-1] + 2
DENSE_RATE = 0.4  # learning rate of the dense layers over that of the embeddings

torch.set_num_threads(1)


class FMFeatures(nn.Module):
    """φ of rows: the FM vector of the embeddings below two hidden layers; the sum of the linear weights; and 1."""

    def __init__(self, features: int, sparse: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.table = nn.Embedding(features, DIM + 1, sparse=sparse)
        nn.init.normal_(self.table.weight, std=0.03)
        self.hidden, self.dropout = mlp(DIM, HIDDEN, None), dropout
        self.mask: list[torch.Tensor] | None = None  # of the units, the same for all rows; None draws one for each row

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        x = self.table(index)
        linear, x = x[:, :, DIM].sum(1, keepdim=True), x[:, :, :DIM]
        total = x.sum(1)
        units = 0.5 * (total * total - (x * x).sum(1))
        for number, layer in enumerate(self.hidden):
            units = layer(units)
            if self.dropout and isinstance(layer, nn.ReLU):
                masked = None if self.mask is None else self.mask[number // 2]
                units = functional.dropout(units, self.dropout, self.training) if masked is None else units * masked
        return torch.cat([units, linear, torch.ones(len(index), 1)], 1)


class Head(nn.Linear):
    """The logit of φ; the linear term starts with the weight 1."""

    def __init__(self) -> None:
        super().__init__(FEATURES, 1, bias=False)
        with torch.no_grad():
            self.weight[0, FEATURES - 2 :] = torch.tensor([1.0, 0.0])


class Point:
    """Point weights, learned by Adagrad: the network of the peers. Its only draw is itself."""

    def __init__(self, features: int, rows: int, rate: float, seed: int = 0, dropout: float = 0.0) -> None:
        torch.manual_seed(seed)
        self.rows, self.body = rows, FMFeatures(features, dropout=dropout)
        self.head: Any = self.make_head()
        dense = [*self.body.hidden.parameters(), *self.head.parameters()]
        self.optimisers = [
            torch.optim.Adagrad(self.body.table.parameters(), lr=rate),
            torch.optim.Adagrad(dense, lr=DENSE_RATE * rate),
        ]

    def make_head(self) -> nn.Module:
        return Head()

    def learn(self, index: torch.Tensor, clicks: torch.Tensor) -> Floats:
        """Learn a batch; returns the CTRs predicted before."""
        before, loss = self.loss(index, clicks)
        for optimiser in self.optimisers:
            optimiser.zero_grad()
        loss.backward()
        for optimiser in self.optimisers:
            optimiser.step()
        return before

    def loss(self, index: torch.Tensor, clicks: torch.Tensor) -> tuple[Floats, torch.Tensor]:
        logits = self.head(self.body(index)).squeeze(1)
        return torch.sigmoid(logits.detach()).numpy(), functional.binary_cross_entropy_with_logits(logits, clicks)

    def finish(self, index: torch.Tensor, clicks: torch.Tensor) -> None:
        """What is left to do after the pass, with all its rows."""

    @torch.no_grad()
    def draws(self, index: torch.Tensor, number: int) -> Floats:
        """Logits of all rows under each draw, (draws, rows)."""
        return self.head(self.body(index)).T.numpy()


class Ensemble:
    """Networks that differ by their first weights."""

    SIZE = 10

    def __init__(self, features: int, rows: int, rate: float) -> None:
        self.members = [Point(features, rows, rate, seed) for seed in range(self.SIZE)]

    def learn(self, index: torch.Tensor, clicks: torch.Tensor) -> Floats:
        return np.mean([member.learn(index, clicks) for member in self.members], axis=0)

    def finish(self, index: torch.Tensor, clicks: torch.Tensor) -> None:
        pass

    def draws(self, index: torch.Tensor, number: int) -> Floats:
        return np.concatenate([member.draws(index, 1) for member in self.members])


class Dropout(Point):
    """MC dropout (Gal and Ghahramani 2016): a draw is a mask over the hidden units, the same for all rows."""

    def __init__(self, features: int, rows: int, rate: float, dropout: float) -> None:
        super().__init__(features, rows, rate, dropout=dropout)

    def loss(self, index: torch.Tensor, clicks: torch.Tensor) -> tuple[Floats, torch.Tensor]:
        self.body.eval()
        with torch.no_grad():
            before = torch.sigmoid(self.head(self.body(index)).squeeze(1)).numpy()
        self.body.train()
        return before, super().loss(index, clicks)[1]

    @torch.no_grad()
    def draws(self, index: torch.Tensor, number: int) -> Floats:
        kept, lines = 1.0 - self.body.dropout, []
        for _ in range(number):
            self.body.mask = [torch.bernoulli(torch.full((units,), kept)) / kept for units in HIDDEN]
            lines.append(self.head(self.body(index)).squeeze(1).numpy())
        self.body.mask = None
        return np.stack(lines)


class LastLayerLaplace(Point):
    """A Gaussian over the head by Laplace's approximation, fitted after the pass (laplace-torch; Daxberger et al. 2021).

    laplace-torch's classification wants a logit for each class; the difference of both is ours.
    """

    def make_head(self) -> nn.Module:
        head = nn.Linear(FEATURES, 2, bias=False)
        with torch.no_grad():
            head.weight[:, FEATURES - 2 :] = torch.tensor([[-0.5, 0.0], [0.5, 0.0]])
        return head

    def loss(self, index: torch.Tensor, clicks: torch.Tensor) -> tuple[Floats, torch.Tensor]:
        logits = self.head(self.body(index))
        before = torch.softmax(logits.detach(), 1)[:, 1].numpy()
        return before, functional.cross_entropy(logits, clicks.long())

    def finish(self, index: torch.Tensor, clicks: torch.Tensor) -> None:
        from laplace import Laplace
        from laplace.curvature import CurvlinopsGGN
        from torch.utils.data import DataLoader, TensorDataset

        with torch.no_grad():
            known = torch.cat([self.body(part) for part in index.split(8192)])
        rows = DataLoader(TensorDataset(known, clicks.long()), batch_size=8192)
        # The head alone, over φ of every row: the same posterior as that of the whole network's last layer, without its gradients.
        self.posterior: Any = Laplace(
            nn.Sequential(nn.Identity(), self.head), "classification", subset_of_weights="all", hessian_structure="full",
            backend=CurvlinopsGGN,
        )  # fmt: skip
        self.posterior.fit(rows)
        self.posterior.optimize_prior_precision(method="marglik")

    def draws(self, index: torch.Tensor, number: int) -> Floats:
        with torch.no_grad():
            known = self.body(index)
            heads = self.posterior.sample(number).view(number, 2, FEATURES)
            return ((heads[:, 1] - heads[:, 0]) @ known.T).numpy()


class VariationalLastLayer(Point):
    """A variational Gaussian over the head, learned with the network (vbll; Harrison, Willes and Snoek 2024)."""

    def make_head(self) -> nn.Module:
        from vbll import DiscClassification

        return DiscClassification(FEATURES, 2, regularization_weight=1.0 / self.rows, parameterization="dense", prior_scale=1.0)

    def loss(self, index: torch.Tensor, clicks: torch.Tensor) -> tuple[Floats, torch.Tensor]:
        answer = self.head(self.body(index))
        return answer.predictive.probs[:, 1].detach().numpy(), answer.train_loss_fn(clicks.long())

    @torch.no_grad()
    def draws(self, index: torch.Tensor, number: int) -> Floats:
        known = self.body(index)
        heads = self.head.W().rsample(torch.Size([number]))  # [draws, 2, FEATURES]
        noise = self.head.noise().rsample(torch.Size([number, len(known)]))  # of each row by itself
        logits = torch.einsum("dcf,rf->drc", heads, known) + noise
        return (logits[:, :, 1] - logits[:, :, 0]).numpy()


class Ivon:
    """A Gaussian over every weight by the variational optimiser IVON (ivon-opt; Shen et al. 2024), embeddings included."""

    def __init__(self, features: int, rows: int, rate: float, hessian: float) -> None:
        from ivon import IVON

        torch.manual_seed(0)
        self.body, self.head = FMFeatures(features, sparse=False), Head()
        parameters = [*self.body.parameters(), *self.head.parameters()]
        self.optimiser: Any = IVON(parameters, lr=rate, ess=rows, hess_init=hessian, beta2=0.9995, weight_decay=1.0 / rows)

    def learn(self, index: torch.Tensor, clicks: torch.Tensor) -> Floats:
        with torch.no_grad():
            before = torch.sigmoid(self.head(self.body(index)).squeeze(1)).numpy()
        with self.optimiser.sampled_params(train=True):
            self.optimiser.zero_grad()
            functional.binary_cross_entropy_with_logits(self.head(self.body(index)).squeeze(1), clicks).backward()
        self.optimiser.step()
        return before

    def finish(self, index: torch.Tensor, clicks: torch.Tensor) -> None:
        pass

    @torch.no_grad()
    def draws(self, index: torch.Tensor, number: int) -> Floats:
        lines = []
        for _ in range(number):
            with self.optimiser.sampled_params():
                lines.append(self.head(self.body(index)).squeeze(1).numpy())
        return np.stack(lines)


LEARNERS: dict[str, Callable[..., Any]] = {
    "point weights": Point,
    "ensemble of 10": Ensemble,
    "MC dropout": Dropout,
    "last-layer Laplace": LastLayerLaplace,
    "VBLL": VariationalLastLayer,
    "IVON": Ivon,
}
