"""The table as a dict of key -> [values, last_seen], in order of arrival."""


class NaiveTable:
    def __init__(self, capacity: int | None = None) -> None:
        self.rows: dict[int, list] = {}
        self.capacity = capacity
        self.evicted = self.expired = 0

    def find(self, keys: list[int]) -> list[int]:
        order = {key: row for row, key in enumerate(self.rows)}
        return [order.get(key, -1) for key in keys]

    def insert(self, keys: list[int]) -> list[int]:
        for key in keys:
            self.rows.setdefault(key, [None, 0.0])
        return self.find(keys)

    def insert_samples(self, samples: list[list[int]], start: int) -> tuple[list[int], int]:
        rows: list[int] = []
        for number in range(start, len(samples)):
            unseen = {*samples[number]} - {*self.rows}
            if self.capacity is not None and unseen and len(self.rows) + len(unseen) > self.capacity:
                return rows, number
            rows += self.insert(samples[number])
        return rows, len(samples)

    def evict(self, scores: list[float], n: int) -> None:
        worst = sorted(zip(scores, range(len(scores)), strict=True))[:n]
        self._drop({row for _, row in worst})
        self.evicted += len(worst)

    def remove_older(self, before: float) -> None:
        old = {row for row, (_, seen) in enumerate(self.rows.values()) if seen < before}
        self._drop(old)
        self.expired += len(old)

    def _drop(self, rows: set[int]) -> None:
        self.rows = {key: kept for row, (key, kept) in enumerate(self.rows.items()) if row not in rows}
