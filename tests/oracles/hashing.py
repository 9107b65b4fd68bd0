"""The hash of feature keys in Python's unbounded integers, from its description alone."""

MASK = 2**64 - 1


def finish(x: int) -> int:
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def hash_bytes(text: bytes, seed: int) -> int:
    state = (seed + 0x9E3779B97F4A7C15 * len(text)) & MASK
    for start in range(0, len(text), 8):
        word = int.from_bytes(text[start : start + 8], "little") * 0xD6E8FEB86659FD93 & MASK
        state ^= word ^ (word >> 32)
        state = ((state << 29 | state >> 35) & MASK) * 0xA0761D6478BD642F & MASK
    return finish(state)


def key(name: str, text: bytes) -> int:
    return hash_bytes(text, hash_bytes(name.encode(), 0x50424F444C000001))
