"""The ad world: its truth against a plain computation, its market, and its repeatability."""

import numpy as np
import pytest

from pbodl.data.convert import from_data
from pbodl.errors import InputError
from pbodl.experiments.ab.ad_features import AD_FIELDS, SCHEMA, USER_FIELDS, AdFeatures, batch_of
from pbodl.experiments.ab.ad_market import DAY, HOUR, MARKETS, PAIR
from pbodl.experiments.ab.ad_world import CTR, AdWorld

DAYS, ADS = 4, 80


@pytest.fixture(scope="module")
def world():
    return AdWorld(3, DAYS, 2000, ADS)


def alive(world, time):
    """The ads on the market at a moment, from the ads' starts alone: in each slot the one that came last."""
    slot_of = np.empty(len(world.ads.bid), np.int64)
    for slot, row in enumerate(world.slots.ad):
        changes = np.isfinite(world.slots.until[slot]).sum()
        slot_of[row[: changes + 1]] = slot
    latest = {}
    for ad in np.argsort(world.ads.start, kind="stable"):
        if world.ads.start[ad] <= time:
            latest[slot_of[ad]] = int(ad)
    return set(latest.values())


def log_odds(world, requests, i, ad):
    truth, hour = world.truth, int(requests.time[i] // HOUR)
    user = truth.user[requests.user[i]].astype(float)
    context = truth.site[requests.site[i]].astype(float) + truth.position[requests.position[i]]
    context = context + truth.connection[requests.connection[i]] + truth.hour[hour % 24]
    a = truth.factors[ad].astype(float)
    parts = [
        user[0], context[0], truth.quality[ad, hour], user[1 : 1 + PAIR] @ a[:PAIR], context[1 : 1 + PAIR] @ a[PAIR : 2 * PAIR],
        (user[1 + PAIR :] * context[1 + PAIR :]) @ a[2 * PAIR :],
    ]  # fmt: skip
    return float(truth.intercept + np.dot(truth.scales, parts))


def test_probabilities_are_those_of_the_formula(world):
    requests = world.requests(2).part(slice(0, 2000, 100))
    comp = world.candidates(requests)
    for i in range(len(requests)):
        own = slice(comp.indptr[i], comp.indptr[i + 1])
        ref = [1 / (1 + np.exp(-log_odds(world, requests, i, ad))) for ad in comp.ad[own]]
        np.testing.assert_allclose(comp.probability[own], ref, rtol=1e-4)


def test_candidates_are_on_the_market_and_fit_the_user(world):
    requests = world.requests(3).part(slice(0, 2000, 50))
    candidates = world.candidates(requests)
    ads, users = world.ads, world.users
    shares = []
    for i, user in enumerate(requests.user):
        fits = (ads.ages >> users.age[user]) & (ads.genders >> users.gender[user]) & (ads.regions >> users.region[user]) & 1
        possible = {ad for ad in alive(world, requests.time[i]) if fits[ad]}
        found = set(candidates.ad[candidates.indptr[i] : candidates.indptr[i + 1]].tolist())
        assert found <= possible
        shares.append(len(found) / len(possible))
    assert np.mean(shares) == pytest.approx(MARKETS["standard"].paced, abs=0.05)


def test_every_seed_is_as_hard():
    for seed in (0, 1):
        world = AdWorld(seed, 2, 2000, ADS)
        candidates = world.candidates(world.requests(0))
        assert candidates.probability.mean() == pytest.approx(CTR, rel=0.02)
        odds = np.log(candidates.probability / (1 - candidates.probability))
        assert odds.std() == pytest.approx(np.sqrt(np.square(MARKETS["standard"].spreads).sum()), rel=0.25)


def test_ads_are_replaced_over_the_day(world):
    started = world.ads.start[np.isfinite(world.ads.start)]
    for day in range(DAYS):
        today = started[(started >= day * DAY) & (started < (day + 1) * DAY)]
        assert 0.10 <= len(today) / ADS <= 0.20
        assert len(np.unique(today // HOUR)) >= 6
    assert (world.slots.ad[:, 0] == np.arange(ADS)).all()


def test_new_ads_are_mostly_of_known_campaigns(world):
    new = np.flatnonzero(np.isfinite(world.ads.start))
    known = [world.ads.campaign[ad] in world.ads.campaign[:ad] for ad in new]
    assert 0.5 < np.mean(known) < 0.9
    assert set(world.ads.advertiser[new]) <= set(world.ads.advertiser.tolist())


def test_requests_follow_the_day_and_the_seed(world):
    requests = world.requests(1)
    assert (np.diff(requests.time) >= 0).all() and requests.time.min() >= DAY and requests.time.max() < 2 * DAY
    hours = np.bincount(((requests.time - DAY) // HOUR).astype(int), minlength=24)
    assert hours[17:22].mean() > 1.5 * hours[5:10].mean()
    again, other = AdWorld(3, DAYS, 2000, ADS), AdWorld(4, DAYS, 2000, ADS)
    assert all((a == b).all() for a, b in zip(requests, again.requests(1), strict=True))
    assert (again.candidates(requests).probability == world.candidates(requests).probability).all()
    assert not (other.requests(1).user == requests.user).all()


def test_keys_are_those_of_the_plain_rows(world):
    requests = world.requests(0).part(slice(0, 40))
    ads = world.candidates(requests).ad[:40]
    features = AdFeatures(world)
    comp = batch_of(features.with_ads(features.of_requests(requests), ads))
    rows = []
    for i, ad in enumerate(ads):
        row = {name: int(getattr(world.users, name)[requests.user[i]]) for name in USER_FIELDS}
        row |= {"ad": int(ad), **{name: int(getattr(world.ads, name)[ad]) for name in AD_FIELDS[1:]}}
        row |= {name: int(getattr(requests, name)[i]) for name in ("site", "position", "connection")}
        rows.append({**row, "hour": int(requests.time[i] // HOUR) % 24, "time": float(requests.time[i])})
    ref = from_data(SCHEMA, rows, labelled=False)
    for name in ("keys", "values", "fields", "indptr"):
        np.testing.assert_array_equal(getattr(comp, name), getattr(ref, name))


@pytest.mark.parametrize(("days", "requests", "ads"), [(0, 2000, 80), (1, 10, 80), (1, 2000, 2)])
def test_a_world_too_small_is_refused(days, requests, ads):
    with pytest.raises(InputError, match="must be at least"):
        AdWorld(0, days, requests, ads)


def test_in_the_quality_market_all_ads_compete_and_differ_by_themselves():
    world = AdWorld(3, 2, 2000, 40, "quality")
    requests = world.requests(1).part(slice(0, 100))
    candidates = world.candidates(requests)
    assert (np.diff(candidates.indptr) == 40).all()
    assert (world.ads.quality.std(axis=1) < 1e-6).all()  # no drift
    assert abs(np.corrcoef(world.ads.quality[:, 0], world.ads.industry)[0, 1]) < 0.5
