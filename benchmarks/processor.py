"""What it costs to compile for x86-64-v3 and not for the processor at hand, as ratios of speed (pinned to native).

    python -m benchmarks.processor [ROUNDS]

One process for each, which take turns; CPU time of the process, medians of the rounds, with their quartiles. Run with `worker` as
argument, this module is one of these processes: it reads the name of a kind, and writes seconds of learning, predicting, scoring.
"""

import json
import os
import subprocess
import sys
import time

import numpy as np

KINDS = ("pair-fm", "fm-mlp", "ffm-mlp", "deep-probit", "sparse-mlp", "adpredictor", "ftrl", "matchbox")
ROWS, CALL, CANDIDATES, REQUESTS = 60_000, 4096, 1000, 9
FAST = ("pair-fm", "adpredictor", "ftrl")  # these learn all rows, the others a third of them
TASKS = ("learning", "predicting", "serving")


def worker() -> None:
    from benchmarks.workload import make_workload
    from pbodl.models.contract import Model
    from pbodl.models.deep_probit import DeepProbit
    from pbodl.serving.scoring.predictor import Predictor

    workload = make_workload(ROWS)
    schema, parts = workload.schema, workload.parts(ROWS, CALL)
    print("ready", flush=True)
    for kind in sys.stdin:
        known = Model.kinds[kind.strip()]
        model = known.from_spec(schema, known.Spec())
        used = parts if kind.strip() in FAST else parts[: len(parts) // 3]
        model.learn(parts[0].rows(0, 100)), model.predict(parts[0].rows(0, 100))
        learning = _cpu(lambda: [model.learn(part) for part in used])  # noqa: B023
        seconds = [learning, _cpu(lambda: [model.predict(part) for part in used]), float("nan")]  # noqa: B023
        if isinstance(model, DeepProbit):
            predictor = Predictor.of(model)
            encoder, names = predictor.encoder, predictor.encoder.own_columns
            own = encoder.encode_own([tuple(f"v{n * 31 % 997}" for _ in names) for n in range(CANDIDATES)])
            shared = encoder.encode_shared(dict.fromkeys(set(encoder.shared_names) - {"time"}, "v1"))
            predictor.score_encoded(shared, own)
            seconds[2] = _cpu(lambda: [predictor.score_encoded(shared, own) for _ in range(REQUESTS)])  # noqa: B023
        print(json.dumps(seconds), flush=True)


def _cpu(work) -> float:
    start = time.thread_time()
    work()
    return time.thread_time() - start


def main(rounds: int) -> None:
    processes = []
    for cpu in ("x86-64-v3", "native"):
        command = [sys.executable, "-m", "benchmarks.processor", "worker"]
        environment = {**os.environ, "PBODL_CPU": cpu}
        processes.append(subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        assert processes[-1].stdout.readline() == "ready\n"
    print(f"| kind | {' | '.join(TASKS)} |\n|---|{'--:|' * len(TASKS)}")
    for kind in KINDS:
        seconds = np.empty((rounds + 1, 2, len(TASKS)))
        for done in range(rounds + 1):
            for number in (0, 1) if done % 2 else (1, 0):
                processes[number].stdin.write(f"{kind}\n")
                processes[number].stdin.flush()
                seconds[done, number] = json.loads(processes[number].stdout.readline())
        low, middle, high = np.quantile(seconds[1:, 1] / seconds[1:, 0], (0.25, 0.5, 0.75), axis=0)
        cells = [f"{m:.2f} ({a:.2f} to {b:.2f})" if m == m else "" for a, m, b in zip(low, middle, high, strict=True)]
        print(f"| {kind} | {' | '.join(cells)} |", flush=True)
    for process in processes:
        process.stdin.close()


if __name__ == "__main__":
    worker() if sys.argv[1:] == ["worker"] else main(int((sys.argv[1:] or ["15"])[0]))
