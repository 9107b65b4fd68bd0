"""Mixing the bits of 64-bit integers: one bijection, and the constants that hashes, draws, tables and shards share.

All arithmetic is modulo 2⁶⁴ on `np.uint64`, so the results are the same on every machine. Changing a constant changes every key,
every initial draw and every shard: the golden values of the tests keep them as they are.
"""

import numpy as np

from pbodl._jit import inlined

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ over the golden ratio: its multiples spread evenly
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
S27, S30, S31 = (np.uint64(n) for n in (27, 30, 31))


@inlined
def mix(x):
    """A bijection in which every bit of `x` affects every bit of the result."""
    x = (x ^ (x >> S30)) * MIX_1
    x = (x ^ (x >> S27)) * MIX_2
    return x ^ (x >> S31)
