"""Files with bytes flipped, cut, inserted or missing: what is read was once written, or it is refused in prose."""

import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import pbodl
from pbodl.errors import InputError
from pbodl.publishing.curves import Curves, read
from pbodl.publishing.publisher import Publisher
from pbodl.serving.models.follower import Follower
from pbodl.system.folder_lock import FILE as LOCK
from pbodl.training.config import check_config, read_config, to_toml
from pbodl.training.inspect.feature_names import NameStore, load_names
from tests.campaign import Finding
from tests.campaign.kills import bits, learned
from tests.click_log import RICH, click_log
from tests.serving.services import state_of
from tests.training.logs import chunks, small_config

ATTEMPTS = 300


def spoil(path: Path, draws: random.Random) -> None:
    """Damage a file in one of the ways in which disks and people do."""
    content = bytearray(path.read_bytes())
    at = draws.randrange(len(content) + 1)
    way = draws.randrange(7)
    if way == 0:
        path.unlink()
        return
    if way == 1:
        del content[at:]
    elif way == 2:
        content[at:at] = draws.randbytes(draws.randrange(1, 40))
    elif way == 3:
        del content[at : at + draws.randrange(1, 40)]
    elif way == 4:
        content[at : at + 4096] = bytes(len(content[at : at + 4096]))
    else:
        for _ in range(draws.randrange(1, 4)):
            if content:
                content[draws.randrange(len(content))] ^= 1 << draws.randrange(8)
    path.write_bytes(content)


def many_times(
    root: Path, seed: int, whole: Path, pick: Callable[[Path], list[Path]], check: Callable[[Path], bool]
) -> tuple[int, int]:
    """Damage copies of a folder; returns how many were read and how many refused."""
    draws, fine, refused = random.Random(seed), 0, 0
    for _ in range(ATTEMPTS):
        copy = root / "copy"
        shutil.copytree(whole, copy)
        spoil(draws.choice(sorted(pick(copy))), draws)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                fine += check(copy)
            except InputError:
                refused += 1
        shutil.rmtree(copy)
    return fine, refused


def snapshots_of_models(root: Path) -> Finding:
    old, new = learned(50), learned(90)
    old.save(root / "run")
    new.save(root / "run")
    allowed = [bits(old.state()), bits(new.state())]

    def check(run: Path) -> bool:
        assert bits(pbodl.load(run).state()) in allowed
        return True

    fine, refused = many_times(root, 1, root / "run", lambda run: [*run.glob("snapshots/*/*")], check)
    return Finding("snapshots", fine + refused, f"{fine} loaded, the model of before where needed; {refused} refused; none wrong")


def publications(root: Path) -> Finding:
    model, allowed = learned(60), []
    publisher = Publisher(model, root / "models")
    for seed in range(4):
        publisher.publish()
        allowed.append(bits(model.state()))
        model.learn(click_log(15, seed=seed))
    publisher.close()

    def check(folder: Path) -> bool:
        follower = Follower(folder)
        follower.poll()
        assert follower.version is None or bits(state_of(follower.version)) in allowed
        return follower.version is not None

    fine, refused = many_times(root, 2, root / "models", lambda folder: [*folder.glob("0*")], check)
    waiting = ATTEMPTS - fine - refused
    return Finding("publications", ATTEMPTS, f"{fine} served a version that was published, {waiting} waited; none wrong")


def curves(root: Path) -> Finding:
    for rows in range(1, 40):
        Curves(root / "run").append({"rows": rows})

    def check(run: Path) -> bool:
        seen = [point["rows"] for point in read(run)]
        assert seen == sorted(seen) and set(seen) <= set(range(1, 40))
        Curves(run).append({"rows": 100})
        assert read(run)[-1]["rows"] == 100
        return True

    fine, _ = many_times(root, 3, root / "run", lambda run: [run / "curves.jsonl"], check)
    assert fine == ATTEMPTS
    return Finding("curves.jsonl", fine, "all read on and written on; no wrong point")


def names(root: Path) -> Finding:
    store = NameStore(RICH)
    store.add(chunks(click_log(90))[0].table)
    (root / "run").mkdir()
    store.save(root / "run")
    right = store.names()

    def check(run: Path) -> bool:
        loaded = load_names(run, RICH)
        assert loaded is None or loaded.names() == right
        return True

    fine, refused = many_times(root, 4, root / "run", lambda run: [*run.glob("names.parquet*")], check)
    return Finding("names.parquet and its checksum", fine + refused, f"{refused} set aside; no wrong name")


def configurations(root: Path) -> Finding:
    (root / "run").mkdir()
    (root / "run" / "config.toml").write_text(to_toml(small_config()), encoding="utf-8")

    def check(run: Path) -> bool:
        check_config(read_config(run / "config.toml"))
        return True

    fine, refused = many_times(root, 5, root / "run", lambda run: [run / "config.toml"], check)
    return Finding("config.toml", fine + refused, f"{refused} refused in prose, {fine} still a configuration")


def lock_files(root: Path) -> Finding:
    learned(10).save(root / "run")

    def check(run: Path) -> bool:
        learned(12).save(run)
        return pbodl.load(run).rows_learned == 12

    fine, _ = many_times(root, 6, root / "run", lambda run: [run / LOCK], check)
    assert fine == ATTEMPTS
    return Finding("lock files", fine, "all saved: the content is only for people")


PARTS = (snapshots_of_models, publications, curves, names, configurations, lock_files)
