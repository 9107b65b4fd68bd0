"""Is a live model the model of its log? Held-out log loss of a model that learned a stream, minus that of one that learned the log.

python -m benchmarks.online_is_offline --seeds 3 --kinds pair-fm fm-mlp adpredictor
python -m benchmarks.online_is_offline --cases soon late8 --worlds fast
"""

import argparse
import functools
import tempfile
import time
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.late_streams import Case, Impressions, changed, fast_world, score, stream, synthetic_world
from pbodl.streaming.sources.event_source import StreamPosition
from pbodl.streaming.stream_learner import StreamLearner, StreamOptions
from pbodl.training.config import Config, check_config
from pbodl.training.run import learn_rows, new_model

CASES = {
    "soon": Case(),
    "late8": Case(late=0.08, options={"late": "2h"}),
    "late17": Case(late=0.17, options={"late": "2h"}),
    "outage": Case(outage=(12, 14), options={"late": "2h"}),
    "outage-late-1h": Case(outage=(12, 14), options={"late": "1h"}),
    "outage-late-3h": Case(outage=(12, 14), options={"late": "3h"}),
    "restarts": Case(late=0.08, options={"late": "2h"}, restart=0.5),
    "window-1h": Case(options={"window": "1h", "late": "2h"}),
    "window-1h-late17": Case(late=0.17, options={"window": "1h", "late": "2h"}),
    "17-a-second": Case(faster=10.0),
    "17-a-second-late17": Case(faster=10.0, late=0.17, options={"late": "2h"}),
    "half-life": Case(training={"half_life": "1000 rows"}),
    "ahead": Case(changes="ahead"),
    "bots": Case(changes="bots"),
    "clicking-bots": Case(changes="clicking-bots"),
    "falls": Case(changes="falls"),
    "rises": Case(changes="rises"),
    "capacity-200": Case(options={"capacity": 200}),
    "ctr-1": Case(ctr=0.01, late=0.17, options={"late": "2h"}),
    "rate-.3": Case(late=0.08, options={"late": "2h"}, training={"negative_rate": 0.3}),
    "rate-.1-sets": Case(late=0.08, options={"late": "2h"}, training={"negative_rate": 0.1, "sets": 2}),
}
WORLDS = {"synthetic": synthetic_world, "fast": fast_world}


@functools.lru_cache(2)
def world_of(make: str, seed: int, rows: int, ctr: float) -> Impressions:
    """A world; the last two are kept."""
    return WORLDS[make](seed, rows, **({"ctr": ctr} if ctr < 0.1 else {}))


def settings(world: Impressions, kind: str, case: Case) -> Config:
    return check_config({"schema": msgspec.to_builtins(world.schema), "model": {"kind": kind}, "training": dict(case.training)})


def offline(config: Config, world: Impressions) -> tuple[object, float]:
    """The model that learned the log with final labels, and its progressive log loss."""
    log = world.rows.rows(0, world.stream)
    model = new_model(config, log)
    sums = np.zeros(2)
    for start in range(0, len(log), 5000):
        kept, predicted, weights = learn_rows(model, log.rows(start, start + 5000), start)
        assert kept.clicks is not None
        p = np.clip(predicted, 1e-12, 1 - 1e-12)
        sums += (weights @ -np.where(kept.clicks > 0, np.log(p), np.log1p(-p)), weights.sum())
    return model, float(sums[0] / sums[1])


def online(config: Config, world: Impressions, case: Case, seed: int) -> StreamLearner:
    """The learner after the stream."""
    with tempfile.TemporaryDirectory() as name:
        folder, options = Path(name), StreamOptions(**case.options)
        learner = StreamLearner.start(config, folder, options, StreamPosition())
        next_end = None
        for events in stream(world, case, seed):
            learner.take(learner.screened(events), StreamPosition())
            now = float(events.times[-1])
            if case.restart and now > (next_end or now - 1):
                learner.save()
                learner = StreamLearner.resume(config, folder, options)
                next_end = now + 3600.0 * case.restart
        return learner


def compare(make: str, kind: str, name: str, seed: int, rows: int) -> None:
    """Print a line of the table."""
    case = CASES[name]
    world = changed(world_of(make, seed, rows, case.ctr), case, seed)
    config = settings(world, kind, case)
    model, progressive = offline(config, world)
    began = time.process_time()
    learner = online(config, world, case, seed)
    spent = time.process_time() - began
    log, live = score(model, world), score(learner.model, world)
    counts = learner.metrics()
    served = (counts["log_loss"] or np.nan) - progressive
    cells = [f"{make} {seed}", kind, name, f"{log.loss:.4f} ({log.level:.3f})", f"{live.loss - log.loss:+.4f}"]
    cells += [f"{live.level / log.level:.3f}", f"{served:+.4f}", str(counts["outages"]), f"{spent:.1f} s"]
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[3])
    parser.add_argument("--kinds", nargs="+", default=["pair-fm", "fm-mlp", "adpredictor"])
    parser.add_argument("--cases", nargs="+", default=list(CASES))
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS))
    parser.add_argument("--rows", type=int, default=225_000)
    arguments = parser.parse_args()
    columns = ("world, seed", "model", "case", "the log's loss (level)", "online minus offline", "level, over the log's")
    columns += ("as served", "outages", "CPU")
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for seed in arguments.seeds:
        for make in arguments.worlds:
            for name in arguments.cases:
                for kind in arguments.kinds:
                    compare(make, kind, name, seed, arguments.rows)


if __name__ == "__main__":
    main()
