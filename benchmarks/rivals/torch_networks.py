"""The one-pass networks of today's CTR libraries in PyTorch, small: one module each over the same table of embeddings.

One table holds a feature's embedding and, in one more column, its linear weight. All networks add the linear term; embeddings have
`DIM` dimensions, and hidden layers `HIDDEN` units.
"""

import itertools
from collections.abc import Sequence

import torch
from torch import nn

DIM, HIDDEN = 16, (128, 64)
CROSS_LAYERS = 2  # of DCNv2
HEADS = 4  # of FinalMLP's fusion


def mlp(width: int, hidden: Sequence[int], out: int | None = 1) -> nn.Sequential:
    """Dense layers with ReLU; and a last one without, unless `out` is None."""
    layers: list[nn.Module] = []
    for low, high in itertools.pairwise((width, *hidden)):
        layers += [nn.Linear(low, high), nn.ReLU()]
    return nn.Sequential(*layers, *([] if out is None else [nn.Linear(hidden[-1], out)]))


class Network(nn.Module):
    """Logits of rows of feature numbers, [rows, fields]."""

    def __init__(self, features: int, fields: int, dim: int = DIM, spread: float = 0.03) -> None:
        super().__init__()
        self.dim, self.fields = dim, fields
        self.table = nn.Embedding(features, dim + 1, sparse=True)
        nn.init.normal_(self.table.weight, std=spread)
        self.bias = nn.Parameter(torch.zeros(()))
        self.register_buffer("first", torch.triu_indices(fields, fields, 1)[0])
        self.register_buffer("second", torch.triu_indices(fields, fields, 1)[1])

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        x = self.table(index)  # [rows, fields, dim + 1]
        return self.bias + x[:, :, self.dim].sum(1) + self.interact(x[:, :, : self.dim])

    def interact(self, x: torch.Tensor) -> torch.Tensor:
        """What the network adds to the linear term, from embeddings [rows, fields, dim]."""
        raise NotImplementedError

    def products(self, x: torch.Tensor) -> torch.Tensor:
        """The inner products of all pairs of fields, [rows, pairs]."""
        return torch.bmm(x, x.transpose(1, 2))[:, self.first, self.second]

    def dense(self) -> list[nn.Parameter]:
        """All parameters but the table."""
        return [parameter for name, parameter in self.named_parameters() if name != "table.weight"]


class FwFM(Network):
    """Field-weighted factorisation machine (Pan et al. 2018): a learned weight for each pair of fields."""

    def __init__(self, features: int, fields: int) -> None:
        super().__init__(features, fields)
        self.weights = nn.Linear(fields * (fields - 1) // 2, 1, bias=False)
        nn.init.ones_(self.weights.weight)

    def interact(self, x: torch.Tensor) -> torch.Tensor:
        return self.weights(self.products(x)).squeeze(1)


class NeuralFM(Network):
    """The second-order vector of an FM below dense layers (neural factorisation machine, He and Chua 2017)."""

    def __init__(self, features: int, fields: int) -> None:
        super().__init__(features, fields)
        self.deep = mlp(self.dim, (64, 32))

    def interact(self, x: torch.Tensor) -> torch.Tensor:
        total = x.sum(1)
        return self.deep(0.5 * (total * total - (x * x).sum(1))).squeeze(1)


class DeepFM(Network):
    """FM beside a network over the concatenated embeddings (Guo et al. 2017)."""

    def __init__(self, features: int, fields: int) -> None:
        super().__init__(features, fields)
        self.deep = mlp(fields * self.dim, HIDDEN)

    def interact(self, x: torch.Tensor) -> torch.Tensor:
        total = x.sum(1)
        pairs = 0.5 * (total * total - (x * x).sum(1)).sum(1)
        return pairs + self.deep(x.flatten(1)).squeeze(1)


class DCNv2(Network):
    """Cross layers x₀ ⊙ (W x + b) + x beside a network (Wang et al. 2021), in parallel."""

    def __init__(self, features: int, fields: int) -> None:
        super().__init__(features, fields)
        width = fields * self.dim
        self.cross = nn.ModuleList(nn.Linear(width, width) for _ in range(CROSS_LAYERS))
        self.deep = mlp(width, HIDDEN, None)
        self.last = nn.Linear(width + HIDDEN[-1], 1)

    def interact(self, x: torch.Tensor) -> torch.Tensor:
        first = crossed = x.flatten(1)
        for layer in self.cross:
            crossed = first * layer(crossed) + crossed
        return self.last(torch.cat([crossed, self.deep(first)], 1)).squeeze(1)


class PNN(Network):
    """The products of all pairs of fields, beside the embeddings, below dense layers (Qu et al. 2016, inner products)."""

    def __init__(self, features: int, fields: int) -> None:
        super().__init__(features, fields)
        self.deep = mlp(fields * self.dim + fields * (fields - 1) // 2, HIDDEN)

    def interact(self, x: torch.Tensor) -> torch.Tensor:
        return self.deep(torch.cat([x.flatten(1), self.products(x)], 1)).squeeze(1)


class FinalMLP(Network):
    """Two gated streams of dense layers, joined by a bilinear form in several heads (Mao et al. 2023)."""

    def __init__(self, features: int, fields: int) -> None:
        super().__init__(features, fields)
        width = fields * self.dim
        self.contexts = nn.Parameter(0.1 * torch.randn(2, self.dim))
        self.gates = nn.ModuleList(mlp(self.dim, (64,), width) for _ in range(2))
        self.streams = nn.ModuleList(mlp(width, HIDDEN, None) for _ in range(2))
        self.linear = nn.Linear(2 * HIDDEN[-1], 1)
        self.join = nn.Parameter(torch.randn(HEADS, HIDDEN[-1] // HEADS, HIDDEN[-1] // HEADS) * 0.05)

    def interact(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(1)
        one, two = (
            stream(flat * 2.0 * torch.sigmoid(gate(context)))
            for stream, gate, context in zip(self.streams, self.gates, self.contexts, strict=True)
        )
        heads = (part.view(len(part), HEADS, -1) for part in (one, two))
        joined = torch.einsum("rhi,hij,rhj->r", next(heads), self.join, next(heads))
        return self.linear(torch.cat([one, two], 1)).squeeze(1) + joined


NETWORKS: dict[str, type[Network]] = {
    "FM-MLP": NeuralFM, "FwFM": FwFM, "DeepFM": DeepFM, "DCNv2": DCNv2, "PNN": PNN, "FinalMLP": FinalMLP,
}  # fmt: skip
