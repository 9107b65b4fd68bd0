"""The price of serving a model in shares: a router with two servers of shares beside one server, under the same load, in turns.

    python -m benchmarks.routing --rounds 6 --seconds 10

Each round loads first the one, then the other (`benchmarks.load`: requests go out at fixed moments). The trainer publishes every
few seconds, so that the router has to fetch rows anew; `--every 0` leaves the model as it is. Figures are medians over the rounds.
"""

import argparse
import statistics
import tempfile
import time
from contextlib import ExitStack

import httpx
import msgspec

from benchmarks.ads import Traffic
from benchmarks.serve import Load, Server, Trainer, figures, generator

SHARES = 2


def check_same(urls: dict[str, str]) -> None:
    """All give the same bytes for the same request, once they serve the same version."""
    requests = [msgspec.json.encode(Traffic(seed).request(200)) for seed in range(5)]
    for body in requests:
        for _ in range(600):
            given = {httpx.post(f"{url}/v1/score", content=body, headers={"Content-Type": "application/json"}).content
                     for url in urls.values()}  # fmt: skip
            if len(given) == 1:
                break
            time.sleep(0.1)
        assert len(given) == 1, "the router answers something else than the server"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds per load")
    parser.add_argument("--rows", type=int, default=200_000, help="rows to learn first")
    parser.add_argument("--candidates", type=int, default=1000)
    parser.add_argument("--rate", type=int, default=20, help="requests per second")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between publications; 0: none")
    given = parser.parse_args()
    load = Load(given.candidates, given.rate, 10.0)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        place = f"{folder}/model"
        trainer = Trainer(place, given.rows, same_priority=False)
        urls = {"one server": stack.enter_context(Server(place))}
        parts = [f"{number}/{SHARES}" for number in range(SHARES)]
        shares = [stack.enter_context(Server(place, "--shard", part)) for part in parts]
        named = [word for url in shares for word in ("--shard", url)]
        urls["router"] = stack.enter_context(Server(place, *named, command=("route",)))
        check_same(urls)
        trainer.publisher.every = given.every
        seen: dict[str, list[dict[str, float]]] = {name: [] for name in urls}
        for _ in range(given.rounds):
            for name, url in urls.items():
                running = generator(url, load, given.seconds)
                while running.process.poll() is None:
                    trainer.step() if given.every else time.sleep(0.05)
                seen[name].append(figures(running, load))
        print(f"{given.candidates} candidates at {given.rate} requests/s, {given.rounds} rounds of {given.seconds:g} s, "
              f"a version every {given.every:g} s\n")  # fmt: skip
        print("| | p50 ms | p90 ms | p99 ms | failures |\n|---|---|---|---|---|")
        for name, rounds in seen.items():
            told = [f"{statistics.median(one[key] for one in rounds):.2f}" for key in ("p50", "p90", "p99")]
            print(f"| {name} | {' | '.join(told)} | {sum(sum(one['failures'].values()) for one in rounds)} |")
        ratios = [statistics.median(r[key] / o[key] for r, o in zip(seen["router"], seen["one server"], strict=True))
                  for key in ("p50", "p90", "p99")]  # fmt: skip
        print("| ratio | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " | |")
        check_same(urls)


if __name__ == "__main__":
    main()
