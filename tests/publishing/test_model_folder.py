"""Publications come back as they were written, from a path or an address; damaged ones are refused in prose."""

import json

import msgspec
import pytest

from pbodl.errors import InputError
from pbodl.publishing.model_folder import FULL, HEAD, FolderEntry, ModelFolder
from tests.publishing.published import MODELS, assert_same_bits, damage, steps

ENTRY = FolderEntry(1, FULL)


@pytest.fixture
def written(tmp_path):
    model = MODELS["fm"]()
    model.learn(steps()[0])
    folder = ModelFolder(tmp_path)
    folder.write(ENTRY, "lineage", model, model.state(), {})
    return folder, model


def test_there_and_back(written):
    folder, model = written
    publication = folder.read(ENTRY)
    assert_same_bits(publication.arrays, model.state())
    assert publication.manifest.schema == model.schema
    assert msgspec.convert(publication.manifest.spec, model.Spec) == model.spec
    assert publication.manifest.kind == "fm-mlp"


@pytest.mark.parametrize("scheme", ["file://", "mock://"])
def test_addresses(tmp_path, written, scheme):
    # Arrow's mock file system is in memory: it stands for the object stores, which have no rename either.
    _, model = written
    location = f"{scheme}{tmp_path}/by/address" if scheme == "file://" else "mock:///by/address"
    folder = ModelFolder(location)
    assert folder.entries() == []
    assert not folder.has(ENTRY)
    size = folder.write(ENTRY, "lineage", model, model.state(), {})
    assert folder.entries() == [ENTRY]
    assert folder.has(ENTRY)
    assert_same_bits(folder.read(ENTRY).arrays, model.state())
    if scheme == "file://":
        assert (tmp_path / "by" / "address" / ENTRY.name).stat().st_size == size
    folder.remove(ENTRY)
    folder.remove(ENTRY)  # it may be gone already
    assert folder.entries() == []


def test_an_address_that_is_none():
    with pytest.raises(InputError, match="nowhere://x"):
        ModelFolder("nowhere://x")


def test_other_files_are_none_of_our_business(written, tmp_path):
    folder, _ = written
    for name in (".writing-000000000002.delta", "notes.txt", "000000000002.zip", "x.full"):
        (tmp_path / name).write_text("something")
    assert folder.entries() == [ENTRY]


@pytest.mark.parametrize("at", [0, 3, 10, 30, 40, 500, -1])
def test_a_turned_bit_is_noticed_wherever_it_is(written, at):
    folder, _ = written
    damage(folder, ENTRY, at)
    with pytest.raises(InputError):
        folder.read(ENTRY)


@pytest.mark.parametrize("length", [0, 5, HEAD.size, 300, -1])
def test_a_file_cut_short_is_noticed(written, tmp_path, length):
    folder, _ = written
    path = tmp_path / ENTRY.name
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(InputError):
        folder.read(ENTRY)


def test_a_missing_file_is_an_error_of_the_input(written):
    folder, _ = written
    with pytest.raises(InputError, match="missing"):
        folder.read(FolderEntry(7, FULL))


def test_a_file_under_another_name_is_refused(written, tmp_path):
    folder, _ = written
    (tmp_path / ENTRY.name).rename(tmp_path / FolderEntry(2, FULL).name)
    with pytest.raises(InputError, match="holds version 1"):
        folder.read(FolderEntry(2, FULL))


def test_a_newer_format_asks_for_an_upgrade(written, monkeypatch):
    folder, model = written
    monkeypatch.setattr("pbodl.publishing.model_folder.EXACT", 3)
    folder.write(ENTRY, "lineage", model, model.state(), {})
    monkeypatch.undo()
    with pytest.raises(InputError, match="upgrade pbodl"):
        folder.read(ENTRY)


def test_the_manifest_can_be_read_by_eye(written, tmp_path):
    content = (tmp_path / ENTRY.name).read_bytes()
    _, _, length = HEAD.unpack_from(content)
    told = json.loads(content[HEAD.size : HEAD.size + length])
    assert told["version"] == 1
    assert told["schema"]["label"] == "click"
