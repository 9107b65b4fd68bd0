"""How soon clicks come: F(a), the share of an impression's clicks that have come by age a, learned from the delays of a stream.

Only delays shorter than an impression's age can have been seen, so counting all delays so far would leave out the long ones.
Reverse hazards do not mind (Lynden-Bell's estimator for truncated data). With ages B_0 < B_1 < ... < B_K, the last the horizon,

    r_k = P(delay in (B_{k-1}, B_k] | delay ≤ B_k),      F(B_j) = Π_{k > j} (1 - r_k),

where r_k is counted over impressions at least B_k old. Counts fade, so that F follows the stream. F stays below MOST: with F = 1
the slope after a click that comes later still would grow without bound.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import inlined, kernel
from pbodl.errors import InputError

EDGES = 24  # ages at which F is known
SOONEST = 120.0  # the first of them is the window over this
MOST, LEAST = 0.995, 0.001  # bounds of F
GUESSED = 20.0  # clicks that the guess at the start counts for
MEMORY = 4000.0  # clicks after which a count has faded to 1/e
TARGETS = np.array([0.75, 0.99])  # shares of the clicks that have come at the ages that are judged
FIRST_CHOICE, CHOICE = 64, 1024  # clicks after which ages are chosen: 64, 128, ... 1024, and every 1024 from then on
MOST_AGES = 8  # that may be given


class Delays(NamedTuple):
    edges: NDArray[np.float64]  # B, in seconds
    clicks: NDArray[np.float64]  # by edge: faded count of clicks with delay ≤ B_k
    last: NDArray[np.float64]  # those of them with delay > B_{k-1}
    came: NDArray[np.float64]  # F(B_k)
    judged: NDArray[np.bool_]  # whether impressions are judged at this age
    choice: NDArray[np.int64]  # clicks counted, clicks at which ages are chosen next; -1 where they were given


def guessed_share(age: NDArray[np.float64], window: float, horizon: float) -> NDArray[np.float64]:
    """The guess at F before any click: half of the clicks come in a tenth of the window, and all by the horizon."""
    half = 0.1 * window
    return age / (age + half) * (horizon + half) / horizon


def guessed_delays(window: float, horizon: float, ages: tuple[float, ...] = ()) -> Delays:
    """Delays as guessed from how long a click usually takes, and at most; impressions are judged at `ages`, if some are given."""
    if len(ages) > MOST_AGES or any(not 0.0 < age <= horizon for age in ages):
        raise InputError(
            f"--ages has {', '.join(f'{age:g} s' for age in ages)}; give up to {MOST_AGES} ages above 0 and at most --late, "
            f"which is {horizon:g} s"
        )
    edges = np.unique(np.concatenate([np.geomspace(min(window / SOONEST, horizon / 2.0), horizon, EDGES), ages]))
    guess = guessed_share(edges, window, horizon)
    hazard = 1.0 - np.concatenate([[0.0], guess[:-1]]) / guess
    choice = np.array([0, -1 if ages else FIRST_CHOICE])
    delays = Delays(edges, np.full(len(edges), GUESSED), GUESSED * hazard, guess, np.isin(edges, ages), choice)
    follow(delays)
    if not ages:
        choose_ages(delays)
    return delays


@inlined
def count_click(delays, edge, delay):
    """Count the delay of a clicked impression that has passed an age. MODIFIES: delays."""
    fade = 1.0 - 1.0 / MEMORY
    delays.clicks[edge] = delays.clicks[edge] * fade + 1.0
    delays.last[edge] = delays.last[edge] * fade + (1.0 if edge > 0 and delay > delays.edges[edge - 1] else 0.0)


@kernel
def follow(delays):
    """F by the counts so far. MODIFIES: delays.came."""
    share = 1.0
    for k in range(len(delays.edges) - 1, -1, -1):
        delays.came[k] = min(max(share, LEAST), MOST)
        share *= 1.0 - delays.last[k] / delays.clicks[k]


@kernel
def choose_ages(delays):
    """Judge impressions at the ages at which the shares of TARGETS have come. MODIFIES: delays.judged."""
    delays.judged[:] = False
    for target in TARGETS:
        k = 0
        while delays.came[k] < target and k < len(delays.edges) - 1:
            k += 1
        delays.judged[k] = True


@inlined
def choose_ages_when_due(delays):
    """Choose the ages anew after so many clicks, unless they were given. MODIFIES: delays."""
    if 0 <= delays.choice[1] <= delays.choice[0]:
        choose_ages(delays)
        delays.choice[1] = min(2 * delays.choice[1], delays.choice[1] + CHOICE)
