"""Which pairs of fields matter to a `PairFM`.

A pair adds w ⟨e_f, e_g⟩ to the latent score. Its *spread* is the standard deviation of that over samples whose two features are
drawn by their frequency, each independently: |w| √(Σ_k E[e_fk²] E[e_gk²]), with the vectors' means.
"""

import itertools
from typing import Any

import numpy as np

from pbodl.models.pair_fm import PairFM


def pairs_by_spread(model: PairFM) -> list[dict[str, Any]]:
    """All pairs of fields, the one with the largest spread first."""
    fields, groups = model.schema.fields, model.schema.group_codes
    table, weights = model.table, model.state()["dense.0.mean"][0]
    deviations = np.sqrt(model.state()["dense.0.variance"][0])
    vectors = table.column("mean").reshape(table.size, len(model.schema.groups), model.spec.dim).astype(np.float64)
    squares = np.zeros((len(fields), *vectors.shape[1:]))
    for index in range(len(fields)):
        rows = table.field == index
        if rows.any():
            squares[index] = np.average(vectors[rows] ** 2, axis=0, weights=np.maximum(table.count[rows], 1))
    found = [
        {
            "pair": f"{fields[f].name} x {fields[g].name}",
            "weight": float(weights[pair]),
            "std": float(deviations[pair]),
            "spread": float(abs(weights[pair]) * np.sqrt((squares[f, groups[g]] * squares[g, groups[f]]).sum())),
        }
        for pair, (f, g) in enumerate(itertools.combinations(range(len(fields)), 2))
    ]
    return sorted(found, key=lambda one: -one["spread"])
