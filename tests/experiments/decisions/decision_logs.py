"""Logs of decisions as `pbodl serve` writes them, made without a server."""

import json
from pathlib import Path

import numpy as np

import pbodl
from pbodl.serving.ranking.policies import RankPolicy, rank
from pbodl.serving.ranking.propensities import placements
from pbodl.serving.scoring.predictor import Predictor

SCHEMA = pbodl.Schema(label="click", fields=[pbodl.Field("user", group="user"), pbodl.Field("ad", group="ad")])
ADS = 5


def truth(user: int, ad: int) -> float:
    """The true CTR."""
    return 0.1 + 0.5 * ((3 * user + 2 * ad) % 7) / 7.0


def trained(rows: int, seed: int) -> pbodl.PairFM:
    """A model that has learned so many random impressions."""
    draws = np.random.default_rng(seed)
    users, ads = draws.integers(0, 4, rows), draws.integers(0, ADS, rows)
    model = pbodl.PairFM(SCHEMA, dim=2)
    if rows:
        pairs = zip(users.tolist(), ads.tolist(), draws.random(rows), strict=True)
        model.learn([{"user": u, "ad": a, "click": int(luck < truth(u, a))} for u, a, luck in pairs])
    return model


def write_log(
    path: Path, model: pbodl.PairFM, policy: RankPolicy, requests: int, seed: int, slots: int = 1, bids: bool = False
) -> None:
    """A log of requests and their clicks; with bids, the policy ranks by bid times CTR."""
    predictor, draws = Predictor.of(model), np.random.default_rng(seed)
    encoder = predictor.encoder
    own = encoder.encode_own([(ad,) for ad in range(ADS)])
    lines, offered = [], 1.0 + np.arange(ADS) if bids else None
    for number in range(requests):
        user = int(draws.integers(0, 4))
        shared = encoder.encode_shared({"user": user})
        placed = rank(predictor, shared, own, offered, slots, policy._replace(seed=int(draws.integers(2**50)))).placed.tolist()
        chance, _ = placements(predictor, shared, own, offered, slots, policy, 100, draws)
        for slot, ad in enumerate(placed):
            about = {"request": f"r{number}", "slot": slot, "slots": slots, "placed": ad, "policy": policy.name, "model": 1}
            about["propensity"] = float(chance[ad, slot])
            if slot == 0:
                about["candidates"] = [{"ad": one} for one in range(ADS)]
                about |= {} if offered is None else {"bids": offered.tolist()}
            event = {"event": "impression", "id": f"r{number}.{slot}", "time": 1e9 + number, "user": user, "ad": ad}
            lines.append(json.dumps({**event, "decision": about}))
            if draws.random() < truth(user, ad):
                lines.append(json.dumps({"event": "click", "id": f"r{number}.{slot}", "time": 1e9 + number + 5}))
    path.write_text("\n".join(lines) + "\n")


def true_value(model: pbodl.PairFM, policy: RankPolicy, slots: int = 1, draws: int = 400) -> float:
    """Clicks per request of a policy, over all users."""
    predictor, value = Predictor.of(model), 0.0
    encoder = predictor.encoder
    own = encoder.encode_own([(ad,) for ad in range(ADS)])
    for user in range(4):
        chance, _ = placements(
            predictor, encoder.encode_shared({"user": user}), own, None, slots, policy, draws, np.random.default_rng(user)
        )
        value += float(chance.sum(axis=1) @ np.array([truth(user, ad) for ad in range(ADS)])) / 4
    return value
