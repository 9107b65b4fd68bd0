"""Many draws of a request's candidates from few draws of parts, where draws are linearised (`pair_factors`).

A deviation is a sum over parts that are independent of each other: the vectors of the shared fields, the weights of pairs, the
features of each own field, and what belongs to one candidate alone. Each part is drawn a few times. A whole draw takes one of each
part's draws, with the sign as it is or turned around, so it has exactly the distribution of a draw of all weights. Every draw of a
part and its mirror image are taken equally often, in random order. What belongs to one candidate alone is new in every draw: it
takes one number for each, read from a long line of noise that begins anywhere.

Whole draws that have a part in common are not independent. How often a candidate wins is then as certain as the number of draws of
the parts makes it, and a part gets as many as its fraction of the variance, of all draws that are wanted: parts that decide little
are drawn seldom, and what a single part decides is drawn as often as if all were. Mirror images cancel the rest of the first order.
`TIMES` as many whole draws are made as are wanted.
"""

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import inlined, jit, kernel, prefetch
from pbodl._registers import REGISTER, all_eight, eight, plus_product, put_eight
from pbodl.kernels.draws import NORMAL, fill_noise, stir
from pbodl.kernels.layers.embedding import stirred_dimensions
from pbodl.kernels.normal import ONE, ZERO, density, excess
from pbodl.mixing import GOLDEN, mix
from pbodl.serving.scoring.candidate_kernels import padded

TIMES = 2
EIGHT, S32 = np.uint64(REGISTER), np.uint64(32)
WIDE = 32  # draws at a time
TOGETHER = 16  # candidates that stand together: a cache line for each line of draws
SOON = 4  # features to prefetch
INFINITY = np.float32(np.inf)
BLOCK = 64  # candidates to compare at a time
VECTORS, WEIGHTS, OWN = 0, 1, 2  # parts; own fields come last
LEAST = 65_536  # numbers in a line of noise


class Parts(NamedTuple):
    """Draws of the parts, line by line."""

    lines: np.ndarray  # float32 (candidates / TOGETHER, lines, TOGETHER): sixteen candidates side by side
    chosen: np.ndarray  # int32 (draws, parts): the line of each part, with -1 - line for its mirror image
    level: np.ndarray  # float32 (draws,): what moves all candidates alike
    alone: np.ndarray  # float32 (candidates, padded): the deviation of what belongs to one candidate alone
    offsets: np.ndarray  # int64 (draws,): where its noise begins


@functools.cache
def _line_of_noise(numbers: int) -> NDArray[np.float32]:
    """Every quantile of the normal distribution equally often, in random order."""
    return np.random.default_rng(numbers).permutation(np.tile(NORMAL, numbers // len(NORMAL)))


def noise_for(candidates: int) -> NDArray[np.float32]:
    """A line of noise for so many candidates: with room for many beginnings."""
    return _line_of_noise(max(LEAST, 1 << (8 * candidates - 1).bit_length()))


@jit
def same_keys(keys):
    """For features in one line, the number of each one's key, and for every number how often it is there."""
    size = 16
    while size < 2 * len(keys):
        size *= 2
    slots, last = np.full(size, -1, np.int32), np.uint64(size - 1)
    numbers, firsts, counts, known = np.empty(len(keys), np.int32), np.empty(len(keys), np.int32), np.zeros(len(keys), np.int32), 0
    for i in range(len(keys)):
        at = mix(keys[i]) & last
        while slots[at] >= 0 and keys[firsts[slots[at]]] != keys[i]:
            at = (at + np.uint64(1)) & last
        if slots[at] < 0:
            slots[at], firsts[known] = known, i
            known += 1
        numbers[i] = slots[at]
        counts[slots[at]] += 1
    return numbers, counts[:known]


@jit
def spread_between(factors):
    """The variance between candidates of a part: what moves all alike does not count."""
    n, columns = factors.shape
    total, squares = np.zeros(columns, np.float32), np.zeros(columns, np.float32)
    for s in range(n):
        for d in range(columns):
            total[d] += factors[s, d]
            squares[d] += factors[s, d] * factors[s, d]
    variance = 0.0
    for d in range(columns):
        variance += max(squares[d] - total[d] * total[d] / n, ZERO)
    return variance / n


@inlined
def add_draws(factors, noise, draws, s, first, lines, room):
    """Add Σ_d factors[d] noise[d, m] to line first + m of candidate s, for m below `draws`. MODIFIES: lines; and room, which is
    scratch."""
    block, lane = np.uint64(s // TOGETHER), np.uint64(s % TOGETHER)
    count, m, columns = np.uint64(draws), np.uint64(0), np.uint64(len(factors))
    while m < count:
        if m + np.uint64(WIDE) <= count:
            a, b, c, e = all_eight(ZERO), all_eight(ZERO), all_eight(ZERO), all_eight(ZERO)
            for d in range(columns):
                factor, at = all_eight(factors[d]), d * count + m
                a = plus_product(a, factor, eight(noise, at))
                b = plus_product(b, factor, eight(noise, at + EIGHT))
                c = plus_product(c, factor, eight(noise, at + EIGHT + EIGHT))
                e = plus_product(e, factor, eight(noise, at + EIGHT + EIGHT + EIGHT))
            put_eight(room, np.uint64(0), a)
            put_eight(room, EIGHT, b)
            put_eight(room, EIGHT + EIGHT, c)
            put_eight(room, EIGHT + EIGHT + EIGHT, e)
            made = np.uint64(WIDE)
        else:
            a = all_eight(ZERO)
            for d in range(columns):
                a = plus_product(a, all_eight(factors[d]), eight(noise, d * count + m))
            put_eight(room, np.uint64(0), a)
            made = EIGHT
        for i in range(made):
            lines[block, np.uint64(first) + m + i, lane] += room[i]
        m += made


@jit
def draw_parts(factors, draws, noise_length, seed):
    """Draw the parts so often that whole draws are as good as `draws` independent ones, and choose TIMES as many of these; there is
    a line of noise of this length."""
    n, slots, columns = factors.features.shape
    numbers, counts = same_keys(factors.keys.reshape(-1))
    # The parts' variances. Slots of one field are one part, because a key is one feature wherever it stands.
    part_of_slot, variance, total = np.empty(slots, np.int64), np.zeros(OWN + slots), 1e-30
    blocks = (n + TOGETHER - 1) // TOGETHER
    alone = np.zeros(blocks * TOGETHER, np.float32)
    for j in range(slots):
        part_of_slot[j] = OWN + j
        for i in range(j):
            if factors.fields[i] == factors.fields[j]:
                part_of_slot[j] = min(part_of_slot[j], part_of_slot[i])
    for s in range(n):
        for j in range(slots):
            square = ZERO
            for d in range(columns):
                square += factors.features[s, j, d] * factors.features[s, j, d]
            if counts[numbers[s * slots + j]] > 1:
                variance[part_of_slot[j]] += square / n
            else:
                alone[s] += square
                total += square / n
    variance[VECTORS], variance[WEIGHTS] = spread_between(factors.vectors), spread_between(factors.weights)
    times, first, total = np.zeros(len(variance), np.int64), np.zeros(len(variance) + 1, np.int64), total + variance.sum()
    for p in range(len(variance)):
        if variance[p] > 0.0:
            times[p] = padded(np.int64(np.ceil(draws * (variance[p] / total))))
        first[p + 1] = first[p] + times[p]

    lines = np.zeros((blocks, first[-1], TOGETHER), np.float32)
    room = np.empty(WIDE, np.float32)
    for p, of_part in ((VECTORS, factors.vectors), (WEIGHTS, factors.weights)):
        if times[p] > 0:
            stirred, noise = stir(seed, of_part.shape[1] * times[p])
            fill_noise(np.uint64(p), stirred, noise)
            for s in range(n):
                add_draws(of_part[s], noise, times[p], s, first[p], lines, room)
    draw_features(factors, numbers, counts, part_of_slot, times, first, seed, lines, room)
    wanted, luck = TIMES * draws, mix(seed + GOLDEN)
    stirred, level = stir(luck, wanted)
    fill_noise(np.uint64(OWN), stirred, level)
    offsets = np.empty(wanted, np.int64)
    for i in range(wanted):
        luck = mix(luck + GOLDEN)
        offsets[i] = np.int64((luck >> S32) * np.uint64(noise_length - len(alone)) >> S32)
    for s in range(n):
        alone[s] = np.sqrt(alone[s])
    return Parts(lines, choose_lines(times, first, wanted, seed), factors.level[0] * level[:wanted], alone, offsets)


@jit
def draw_features(factors, numbers, counts, part_of_slot, times, first, seed, lines, room):
    """What several candidates have in common by their own features. MODIFIES: lines; and room, which is scratch."""
    slots, columns = factors.features.shape[1:]
    begins, keys, flat = np.zeros(len(counts) + 1, np.int64), factors.keys.reshape(-1), factors.features.reshape(-1)
    for i in range(len(counts)):
        begins[i + 1] = begins[i] + counts[i]
    members, at = np.empty(len(numbers), np.int64), begins[:-1].copy()
    for i in range(len(numbers)):
        members[at[numbers[i]]] = i
        at[numbers[i]] += 1
    most = columns * times.max()
    stirred, noise = stirred_dimensions(seed, (most + 3) // 4), np.empty(most + 4, np.float32)
    for number in range(len(counts)):
        if counts[number] > 1:
            one = members[begins[number]]
            p = part_of_slot[one % slots]
            if times[p] > 0:
                fill_noise(keys[one], stirred[: columns * times[p] // 4], noise)
                for i in range(begins[number], begins[number + 1]):
                    soon = np.uint32(members[min(i + SOON, len(members) - 1)]) * np.uint32(columns)
                    for line in range(0, columns, TOGETHER):
                        prefetch(flat, soon + np.uint32(line))
                    s, j = members[i] // slots, members[i] % slots
                    add_draws(factors.features[s, j], noise, times[p], s, first[p], lines, room)


@jit
def choose_lines(times, first, draws, seed):
    """Which lines make which whole draw: each line and its mirror image equally often, in random order."""
    chosen, used = np.empty((draws, len(times)), np.int32), 0
    for p in range(len(times)):
        if times[p] > 0:
            states, luck = 2 * times[p], seed + np.uint64(p + 1) * GOLDEN
            order = np.arange(states)
            for i in range(draws):
                step = i % states
                luck = mix(luck + GOLDEN)
                other = step + np.int64((luck >> S32) * np.uint64(states - step) >> S32)
                order[step], order[other] = order[other], order[step]
                line = first[p] + order[step] // 2
                chosen[i, used] = line if order[step] % 2 == 0 else -1 - line
            used += 1
    return chosen[:, :used].copy()


@jit
def rank_in_draws(parts, noise, base, scale, bids, kept, listed, begin, end, hits):
    """Rank the candidates in draws `begin` to `end`, and count which slot each of the listed ones gets.

    A candidate's CTR is Φ(base + scale deviation), recalibrated with the negative rate `kept`; without bids its order is that of
    what Φ is taken of. Among equals, the first comes first. MODIFIES: hits (listed, slots).
    """
    n, slots = len(base), hits.shape[1]
    level = np.zeros((2, len(parts.alone)), np.float32)
    for s in range(n):
        level[0, s], level[1, s] = base[s], scale[s]
    offered = bids.astype(np.float32)
    worths = np.empty((end - begin, len(parts.alone)), np.float32)
    add_lines(parts, noise, level[0], level[1], begin, end, worths)
    for i in range(end - begin):
        worth = worths[i, :n]
        if len(bids) > 0:
            for s in range(n):
                x, few = abs(worth[s]), np.float32(1.0 / kept)
                tail = density(x) * (x + excess(x)) / (ONE + x * x)
                ctr = tail if worth[s] < ZERO else ONE - tail
                worth[s] = offered[s] * ctr / (ctr + (ONE - ctr) * few)
        for q in range(len(listed)):
            slot = slot_of(worth, listed[q], slots)
            if slot < slots:
                hits[q, slot] += 1


@kernel
def add_lines(parts, noise, base, scale, begin, end, z):
    """base + scale deviation of all candidates in draws `begin` to `end`; base and scale are padded. MODIFIES: z (draws,
    candidates, padded)."""
    # Block by block: its lines stay in the nearest cache for all draws.
    lines, used, alone, width = parts.lines.reshape(-1), parts.chosen.shape[1], parts.alone, np.uint64(z.shape[1])
    size, both = np.uint64(parts.lines.shape[1] * TOGETHER), np.uint64(TOGETHER)
    for block in range(np.uint64(len(parts.lines))):
        at = block * both
        base_1, base_2, scale_1, scale_2 = eight(base, at), eight(base, at + EIGHT), eight(scale, at), eight(scale, at + EIGHT)
        alone_1, alone_2 = eight(alone, at), eight(alone, at + EIGHT)
        for i in range(begin, end):
            level, from_noise = all_eight(parts.level[i]), np.uint64(parts.offsets[i]) + at
            left = plus_product(level, alone_1, eight(noise, from_noise))
            right = plus_product(level, alone_2, eight(noise, from_noise + EIGHT))
            for p in range(used):
                line = parts.chosen[i, p]
                sign = all_eight(ONE if line >= 0 else -ONE)
                here = block * size + np.uint64(line if line >= 0 else -1 - line) * both
                left = plus_product(left, sign, eight(lines, here))
                right = plus_product(right, sign, eight(lines, here + EIGHT))
            to = np.uint64(i - begin) * width + at
            put_eight(z, to, plus_product(base_1, scale_1, left))
            put_eight(z, to + EIGHT, plus_product(base_2, scale_2, right))


@inlined
def slot_of(worth, s, slots):
    """How many candidates come before s; if many, as many as `slots` or more."""
    before = better_in(worth, 0, s, np.nextafter(worth[s], -INFINITY), slots)
    return before if before >= slots else before + better_in(worth, s + 1, len(worth), worth[s], slots - before)


@inlined
def better_in(worth, begin, end, least, enough):
    """How many candidates of a range are worth more than this; counting ends when it is enough."""
    count, at = 0, begin
    while at < end and count < enough:
        here = min(at + BLOCK, end)
        some = np.int32(0)
        for other in range(at, here):
            some += np.int32(worth[other] > least)
        count += int(some)
        at = here
    return count
