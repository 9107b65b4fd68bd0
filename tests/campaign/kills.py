"""Kills at every step of every kind of write: a child process ends itself by SIGKILL before its n-th change of the disk."""

import itertools
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np

import pbodl
from pbodl.data.synthetic import World
from pbodl.errors import InputError
from pbodl.models.contract import State
from pbodl.models.snapshot import load_snapshot, rollback, snapshots
from pbodl.publishing.curves import Curves, read
from pbodl.publishing.publisher import Publisher
from pbodl.serving.models.follower import Follower
from pbodl.training.inspect.feature_names import NameStore, load_names
from tests.campaign import Finding
from tests.click_log import RICH, click_log
from tests.serving.services import state_of
from tests.training.logs import chunks
from tests.training.test_resume import Log

CHANGES = {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate"}  # audit events
STEPS = 400  # no write here takes more


def killed_before(step: int, work: Callable[[], object]) -> bool:
    """Do work in a forked process that dies before its change number `step` of the disk; returns whether it came so far."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            _die_before(step)
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "the child failed; its traceback is above"
    return False


def _die_before(step: int) -> None:
    left = iter(range(step))
    fsync = os.fsync

    def count() -> None:
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, arguments: tuple) -> None:
        opened = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if opened or event in CHANGES:
            count()

    def counted_fsync(descriptor: int) -> None:
        count()
        fsync(descriptor)

    os.fsync = counted_fsync
    sys.addaudithook(hook)


def at_every_step(work: Callable[[], object], check: Callable[[], object], start: Callable[[], object]) -> int:
    """Kill the work before each of its steps; after each kill, check what is left and start over. Returns the number of kills."""
    for step in range(STEPS):
        start()
        killed = killed_before(step, work)
        check()
        if not killed:
            assert step > 1, "the work changes nothing on the disk"
            return step
    raise AssertionError(f"the work took more than {STEPS} steps")


def bits(state: State) -> dict[str, bytes]:
    return {name: np.ascontiguousarray(array).tobytes() for name, array in state.items()}


def learned(rows: int) -> pbodl.FMMLP:
    model = pbodl.FMMLP(RICH, dim=3, hidden=(4,))
    model.learn(click_log(rows))
    return model


class Folders:
    """A new folder for every attempt."""

    def __init__(self, root: Path) -> None:
        self._root, self._numbers = root, itertools.count()
        self.here = root

    def new(self) -> Path:
        self.here = self._root / f"{next(self._numbers)}"
        self.here.mkdir(parents=True)
        return self.here


def nothing_is_left(folder: Path) -> None:
    """What the kill left behind goes with the next writer."""
    assert not list(folder.rglob(".writing*")), "what a killed writer left behind stays"


def snapshots_of_models(root: Path) -> Finding:
    folders, old, new = Folders(root), learned(50), learned(90)
    allowed = [bits(old.state()), bits(new.state())]

    def check() -> None:
        assert bits(pbodl.load(folders.here).state()) in allowed
        new.save(folders.here)
        nothing_is_left(folders.here)
        assert bits(pbodl.load(folders.here).state()) == allowed[1]

    kills = at_every_step(lambda: new.save(folders.here), check, lambda: old.save(folders.new()))
    return Finding("saving a snapshot", kills, "the old model or the new one, bit for bit")


def going_back(root: Path) -> Finding:
    folders, old, new = Folders(root), learned(50), learned(90)

    def start() -> None:
        old.save(folders.new())
        new.save(folders.here)

    def check() -> None:
        assert pbodl.load(folders.here).rows_learned in (50, 90)

    return Finding("`pbodl rollback`", at_every_step(lambda: rollback(folders.here), check, start), "the old model or the new one")


def publications(root: Path) -> Finding:
    folders, model = Folders(root), learned(60)
    allowed, more = [], [click_log(20, seed=seed) for seed in range(3)]
    for rows in more:
        allowed.append(bits(model.state()))
        model.learn(rows)
    allowed.append(bits(model.state()))

    def work() -> None:
        own = learned(60)
        publisher = Publisher(own, folders.here, full_every=0.0)
        publisher.publish()
        for rows in more:
            own.learn(rows)
            publisher.publish()

    def check() -> None:
        follower = Follower(folders.here)
        follower.poll()
        assert follower.damaged == 0
        assert follower.version is None or bits(state_of(follower.version)) in allowed
        before = 0 if follower.version is None else follower.version.number
        publisher = Publisher(model, folders.here)
        nothing_is_left(folders.here)
        assert publisher.publish() > before
        publisher.close()
        follower.poll()
        assert follower.version is not None and bits(state_of(follower.version)) == allowed[-1]

    return Finding("publishing full states and deltas", at_every_step(work, check, folders.new), "servers load what was published")


def curves(root: Path) -> Finding:
    folders = Folders(root)

    def work() -> None:
        own = Curves(folders.here, most=4)
        own.rewind(3)
        for rows in range(4, 20):
            own.append({"rows": rows})

    def start() -> None:
        own = Curves(folders.new(), most=4)
        for rows in range(1, 7):
            own.append({"rows": rows})

    def check() -> None:
        kept = [point["rows"] for point in read(folders.here)]
        assert kept == sorted(set(kept)) and kept[0] == 1
        Curves(folders.here).append({"rows": 100})
        assert read(folders.here)[-1]["rows"] == 100

    return Finding("writing and thinning the curves", at_every_step(work, check, start), "every point whole")


def names(root: Path) -> Finding:
    folders = Folders(root)
    old, new = NameStore(RICH), NameStore(RICH)
    old.add(chunks(click_log(30))[0].table)
    new.add(chunks(click_log(90))[0].table)

    def start() -> None:
        old.changed = True
        old.save(folders.new())

    def work() -> None:
        store = load_names(folders.here, RICH)
        assert store is not None
        store.add(chunks(click_log(90))[0].table)
        store.save(folders.here)

    def check() -> None:
        store = load_names(folders.here, RICH)
        assert store is not None and sorted(store.names()) in (sorted(old.names()), sorted(new.names()))

    return Finding("storing names of features", at_every_step(work, check, start), "the old names or the new ones")


def outputs(root: Path) -> Finding:
    folders = Folders(root)
    World(rows=300, days=1).write(root / "ref.csv")
    whole = (root / "ref.csv").read_bytes()

    def check() -> None:
        path = folders.here / "world.csv"
        assert not path.exists() or path.read_bytes() == whole
        World(rows=300, days=1).write(path)
        nothing_is_left(folders.here)

    kills = at_every_step(lambda: World(rows=300, days=1).write(folders.here / "world.csv"), check, folders.new)
    return Finding("`pbodl data synth`", kills, "no file, or a whole one")


def training(root: Path, seed: int = 1, kills: int = 40) -> Finding:
    """Kills before steps drawn at random of a whole run; each run is continued, and killed again, until it ends."""
    draws, log = random.Random(seed), Log(root)
    done = runs = 0
    while done < kills:
        run, runs = root / f"run{runs}", runs + 1
        while killed_before(draws.randrange(250), lambda run=run: log.train(run, bool(snapshots(run)))):
            done += 1
        log.assert_same(run)
        nothing_is_left(run)
    return Finding(f"`pbodl train`, before {done} drawn steps of {runs} runs", done, "the same bits as never stopped")


def processes(root: Path, seed: int = 2, kills: int = 12) -> Finding:
    """kill -9 of `pbodl train` at moments drawn at random."""
    draws, log = random.Random(seed), Log(root, 40)
    run, done = root / "run", 0
    while True:
        process = log.start(run)
        before = len(snapshots(run)) and _number(run)
        until = time.monotonic() + 60.0
        while process.poll() is None and _number(run) <= before and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(draws.random() * 0.2)
        if done < kills and process.poll() is None:
            process.send_signal(signal.SIGKILL)
            done += 1
        told = process.communicate(timeout=300)[1]
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, told
    log.assert_same(run)
    return Finding("`pbodl train`, kill -9 at drawn moments", done, "the same bits as never stopped")


def _number(run: Path) -> int:
    return max((int(path.name) for path in snapshots(run)), default=0)


def locks(root: Path) -> Finding:
    """A run whose holder was killed is free at once; one whose holder lives never is."""
    code = "import sys, time, pbodl.system.folder_lock as f; l = f.FolderLock(sys.argv[1], 'pbodl train'); print(1, flush=True)"
    model, attempts = learned(10), 10
    model.save(root)
    for _ in range(attempts):
        with subprocess.Popen([sys.executable, "-c", f"{code}; time.sleep(600)", str(root)], stdout=subprocess.PIPE) as other:
            assert other.stdout is not None and other.stdout.readline()
            try:
                model.save(root)
                raise AssertionError("two writers in one run")
            except InputError as error:
                assert f"process {other.pid}" in str(error)
            other.kill()
        model.save(root)
    assert load_snapshot(root).model.rows_learned == 10
    return Finding("the holder of a run's lock", attempts, "the second writer refused while it lives, let in when it is dead")


PARTS = (snapshots_of_models, going_back, publications, curves, names, outputs, training, processes, locks)
