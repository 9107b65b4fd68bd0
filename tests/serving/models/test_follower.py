"""A follower holds the trainer's state bit for bit, whatever happens to the folder, and never a mixture."""

import shutil
import warnings

import pytest

import pbodl
from pbodl.publishing.model_folder import DELTA, FULL, FolderEntry, ModelFolder
from pbodl.publishing.publisher import Publisher
from pbodl.serving.models.follower import Follower
from tests.click_log import PLAIN, RICH
from tests.publishing.published import MODELS, assert_same_bits, damage, steps
from tests.serving.services import state_of


def assert_up_to_date(follower: Follower, model) -> None:
    assert follower.version is not None
    assert_same_bits(state_of(follower.version), model.state())
    assert follower.version.counters == model.metrics()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("every", [1, 3])
def test_full_and_deltas_are_the_trainers_state(tmp_path, name, every):
    """Every delta by itself, and several at a time; while all versions are held, and while none is."""
    model = MODELS[name]()
    publisher, follower, held = Publisher(model, tmp_path), Follower(tmp_path), []
    kinds = set()
    for i, rows in enumerate(steps()):
        model.learn(rows)
        publisher.publish()
        if i % every == 0:
            assert follower.poll()
            assert_up_to_date(follower, model)
            held.append((follower.version, state_of(follower.version)))
            held = held if i % 4 else []
        assert not follower.poll() or every > 1
        kinds |= {entry.kind for entry in publisher.folder.entries()}
    for version, state in held:
        assert_same_bits(state_of(version), state)
    assert kinds == {FULL, DELTA}
    assert follower.damaged == follower.missing == 0


def test_a_follower_that_starts_late_is_at_the_same_state(tmp_path):
    model = MODELS["ffm"]()
    publisher = Publisher(model, tmp_path)
    for rows in steps():
        model.learn(rows)
        publisher.publish()
    follower = Follower(tmp_path)
    follower.poll()
    assert_up_to_date(follower, model)


def test_a_version_that_is_held_never_changes(tmp_path):
    model = MODELS["fm"]()
    publisher, follower = Publisher(model, tmp_path), Follower(tmp_path)
    seen = []
    for rows in steps():
        model.learn(rows)
        publisher.publish()
        follower.poll()
        seen.append((follower.version, model.state()))
    for version, state in seen:
        assert_same_bits(state_of(version), state)


def test_two_tables_take_turns_when_nobody_holds_the_old_one(tmp_path):
    model = MODELS["fm"]()
    publisher, follower = Publisher(model, tmp_path), Follower(tmp_path)
    tables = set()
    for rows in steps():
        model.learn(rows)
        publisher.publish()
        follower.poll()
        tables.add(id(follower.version.table))
    assert len(tables) <= 3  # that of the full snapshot, a copy of it, and the two take turns
    assert_up_to_date(follower, model)


@pytest.mark.parametrize("trouble", ["damaged", "missing"])
def test_a_bad_delta_waits_for_the_next_full_snapshot(tmp_path, trouble):
    model = pbodl.FMMLP(RICH, dim=64, hidden=())  # large, so that its deltas are small beside it
    publisher, follower = Publisher(model, tmp_path), Follower(tmp_path)
    first, second, third, fourth, fifth = steps((200, 1, 1, 1, 1))
    model.learn(first)
    publisher.publish()
    follower.poll()
    before = model.state()
    model.learn(second)
    bad = FolderEntry(publisher.publish(), DELTA)
    model.learn(third)
    publisher.publish()
    damage(publisher.folder, bad) if trouble == "damaged" else publisher.folder.remove(bad)
    with pytest.warns(UserWarning, match=bad.name):
        assert not follower.poll()
    assert_same_bits(state_of(follower.version), before)
    with warnings.catch_warnings(action="error"):
        assert not follower.poll()  # said once
    model.learn(fourth)
    publisher.publish()
    assert not follower.poll()  # a sound delta of a version that it does not have
    assert_same_bits(state_of(follower.version), before)
    model.learn(fifth)
    publisher.publish(full=True)
    assert follower.poll()
    assert_up_to_date(follower, model)
    assert (follower.damaged, follower.missing) == ((1, 0) if trouble == "damaged" else (0, 1))


def test_a_damaged_full_snapshot_stops_nobody_who_follows(tmp_path):
    model = MODELS["fm"]()
    publisher, follower = Publisher(model, tmp_path, full_every=0.0), Follower(tmp_path)
    for i, rows in enumerate(steps()):
        model.learn(rows)
        version = publisher.publish()
        if i:
            damage(publisher.folder, FolderEntry(version, FULL))
        follower.poll()
        assert_up_to_date(follower, model)
    assert follower.damaged == 0


def test_who_starts_skips_a_damaged_full_snapshot(tmp_path):
    model = MODELS["fm"]()
    publisher = Publisher(model, tmp_path)
    for rows in steps()[:3]:
        model.learn(rows)
        publisher.publish()
    publisher.publish(full=True)
    model.learn(steps()[3])
    publisher.publish()
    damage(publisher.folder, FolderEntry(4, FULL))
    follower = Follower(tmp_path)
    with pytest.warns(UserWarning, match="checksum"):
        follower.poll()
    # From version 1 on by deltas; but a full snapshot alone leads over version 4.
    assert follower.version.number == 3
    publisher.publish(full=True)
    follower.poll()
    assert_up_to_date(follower, model)


def test_a_folder_begun_anew_is_followed_anew(tmp_path):
    first, second = MODELS["fm"](), MODELS["fm"]()
    follower, publisher = Follower(tmp_path), Publisher(first, tmp_path)
    for rows in steps()[:4]:
        first.learn(rows)
        publisher.publish()
    follower.poll()
    shutil.rmtree(tmp_path)
    # Another trainer, another order, and more versions than before: its deltas fit the table by their numbers alone.
    publisher = Publisher(second, tmp_path)
    for rows in reversed(steps()):
        second.learn(rows)
        publisher.publish()
        if publisher.version in (6, 10):
            with warnings.catch_warnings(action="ignore"):
                follower.poll()
            assert_up_to_date(follower, second)


def test_a_trainer_that_starts_again_is_followed(tmp_path):
    follower = Follower(tmp_path)
    for rows in steps()[:3]:
        model = MODELS["fm"]()
        model.learn(rows)
        Publisher(model, tmp_path).publish()
        assert follower.poll()
        assert_up_to_date(follower, model)
    assert follower.damaged == follower.missing == 0


def test_a_delta_of_another_model_is_refused(tmp_path):
    model = MODELS["fm"]()
    model.learn(steps()[0])
    publisher, follower = Publisher(model, tmp_path), Follower(tmp_path)
    publisher.publish()
    follower.poll()
    before = model.state()
    other = pbodl.FMMLP(model.schema, dim=3, hidden=(5, 4), seed=5)
    other.learn(steps()[0])
    other.row_prior = model.row_prior  # else the publisher notices, and writes all of it
    publisher.model = other
    other.learn(steps()[1])
    publisher.folder.remove(FolderEntry(publisher.publish(), FULL))
    with pytest.warns(UserWarning, match="another model"):
        assert not follower.poll()
    assert_same_bits(state_of(follower.version), before)


def test_an_address_is_followed(tmp_path):
    model = MODELS["sum"]()
    location = f"file://{tmp_path}/live"
    publisher, follower = Publisher(model, location), Follower(location)
    assert not follower.poll()
    assert (tmp_path / "live" / ".lock").exists()
    for rows in steps()[:4]:
        model.learn(rows)
        publisher.publish()
        assert follower.poll()
        assert_up_to_date(follower, model)


def test_a_runs_newest_snapshot(tmp_path):
    model = MODELS["fm"]()
    follower = Follower(tmp_path)
    assert not follower.poll()
    for number, rows in enumerate(steps()[:3], start=1):
        model.learn(rows)
        model.save(tmp_path)
        assert follower.poll()
        assert_up_to_date(follower, model)
        assert follower.version.number == number
        assert not follower.poll()


def test_a_damaged_snapshot_leaves_the_one_before_it(tmp_path):
    model = MODELS["fm"]()
    model.learn(steps()[0])
    model.save(tmp_path)
    state = model.state()
    follower = Follower(tmp_path)
    follower.poll()
    model.learn(steps()[1])
    path = model.save(tmp_path)
    (path / "model.safetensors").write_bytes(b"nonsense")
    with pytest.warns(UserWarning, match="refused"):
        assert not follower.poll()
    assert_same_bits(state_of(follower.version), state)


def test_publications_inside_a_run_take_over(tmp_path):
    model = MODELS["fm"]()
    model.learn(steps()[0])
    model.save(tmp_path)
    follower = Follower(tmp_path)
    follower.poll()
    publisher = Publisher(model, tmp_path / "published")
    for rows in steps()[1:4]:
        model.learn(rows)
        publisher.publish()
        assert follower.poll()
        assert_up_to_date(follower, model)
    assert isinstance(follower.folder, ModelFolder)


def test_other_models_are_served_whole(tmp_path):
    model = pbodl.AdPredictor(PLAIN)
    model.save(tmp_path)
    follower = Follower(tmp_path)
    assert follower.poll()
    assert follower.version is not None and follower.version.whole
    assert follower.version.counters == model.metrics()
