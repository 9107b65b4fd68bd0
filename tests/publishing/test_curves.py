"""Live figures on disk: whole lines, numbers that go up, a file that stays small, and readers that miss nothing."""

import json
import random
import warnings

import pytest

from pbodl.publishing.curves import FILE, CurveReader, Curves, read, sealed_line
from tests.commands.disks import fill, small_disk


def point(rows: int) -> dict:
    return {"rows": rows, "models": {"fm": {"window": {"auc": 0.7}}}}


def test_points_come_back_in_order_with_their_numbers(tmp_path):
    curves = Curves(tmp_path / "run")
    assert [curves.append(point(rows)) for rows in (10, 20, 30)] == [1, 2, 3]
    assert read(tmp_path / "run") == [{"n": n, **point(10 * n)} for n in (1, 2, 3)]
    assert [one["n"] for one in read(tmp_path / "run", after=2)] == [3]
    assert read(tmp_path / "run", after=3) == []


def test_a_run_without_figures_has_none(tmp_path):
    assert read(tmp_path) == [] and read(tmp_path / "nowhere") == []


def test_numbers_go_on_in_a_new_process(tmp_path):
    Curves(tmp_path).append(point(1))
    assert Curves(tmp_path).append(point(2)) == 2


def test_the_file_stays_small_and_keeps_its_ends(tmp_path):
    curves = Curves(tmp_path, most=40)
    for rows in range(1, 501):
        curves.append(point(rows))
        assert len((tmp_path / FILE).read_bytes().splitlines()) <= 80
    kept = [one["rows"] for one in read(tmp_path)]
    assert kept == sorted(set(kept)) and kept[0] == 1
    assert kept[-10:] == list(range(491, 501))


def test_a_reader_misses_nothing_while_the_file_is_thinned_out(tmp_path):
    curves, reader, seen = Curves(tmp_path, most=8), CurveReader(tmp_path), []
    for rows in range(1, 101):
        number = curves.append(point(rows))
        seen += [json.loads(line)["n"] for line in reader.lines(after=seen[-1] if seen else 0)]
        assert seen[-1] == number
    assert seen == list(range(1, 101))


def test_a_line_in_the_middle_of_being_written_is_left_for_later(tmp_path):
    Curves(tmp_path).append(point(1))
    reader = CurveReader(tmp_path)
    line = sealed_line(b'{"n": 2, "rows": 5}\n')
    with (tmp_path / FILE).open("ab") as file:
        file.write(line[:15])
        file.flush()
        assert len(reader.lines()) == 1
        file.write(line[15:])
    assert [json.loads(line)["rows"] for line in reader.lines(after=1)] == [5]


def test_what_a_crash_left_behind_is_dropped(tmp_path):
    Curves(tmp_path).append(point(1))
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"n": 2, "ro')
    Curves(tmp_path).append(point(2))
    assert [one["rows"] for one in read(tmp_path)] == [1, 2]


def test_rewinding_drops_what_will_be_learned_again(tmp_path):
    curves = Curves(tmp_path)
    for rows in (10, 20, 30):
        curves.append(point(rows))
    curves.rewind(20)
    assert curves.append(point(25)) == 4
    assert [(one["n"], one["rows"]) for one in read(tmp_path)] == [(1, 10), (2, 20), (4, 25)]


def test_not_a_number_is_refused(tmp_path):
    with pytest.raises(ValueError):
        Curves(tmp_path).append({"rows": float("nan")})
    assert read(tmp_path) == []


def test_a_damaged_file_is_set_aside_and_its_good_points_stay(tmp_path):
    curves = Curves(tmp_path)
    for rows in (10, 20, 30, 40):
        curves.append(point(rows))
    lines = (tmp_path / FILE).read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b"0.7", b"0.9")  # still JSON, and wrong
    lines[2] = b"\x00\xff garbage\n"
    (tmp_path / FILE).write_bytes(b"".join(lines))
    assert [one["rows"] for one in read(tmp_path)] == [10, 40]
    with pytest.warns(
        UserWarning, match=r"curves.jsonl is damaged; it is set aside as curves.jsonl.damaged, and 2 good points stay"
    ):
        Curves(tmp_path).rewind(100)
    assert Curves(tmp_path).append(point(50)) == 5
    assert [one["rows"] for one in read(tmp_path)] == [10, 40, 50]
    assert (tmp_path / f"{FILE}.damaged").read_bytes() == b"".join(lines)


@pytest.mark.parametrize("seed", range(20))
def test_no_damage_stops_a_writer_or_a_reader(tmp_path, seed):
    """Bytes flipped, cut, inserted: what is read was written, in order, and the numbers go on."""
    draws = random.Random(seed)
    curves = Curves(tmp_path)
    for rows in range(1, 30):
        curves.append(point(rows))
    content = bytearray((tmp_path / FILE).read_bytes())
    for _ in range(draws.randrange(1, 6)):
        at = draws.randrange(len(content))
        content[at : at + draws.choice((0, 1, 1, 40))] = draws.randbytes(draws.choice((0, 1, 1, 30)))
    (tmp_path / FILE).write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        number = Curves(tmp_path).append(point(100))
    kept = [(one["n"], one["rows"]) for one in read(tmp_path)]
    assert kept[-1] == (number, 100) and kept == sorted(kept)
    assert all(n == rows for n, rows in kept[:-1])


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path):
    with small_disk(tmp_path / "disk", "64k") as disk:
        curves = Curves(disk)
        curves.append(point(1))
        fill(disk)
        for _ in range(3):
            with pytest.raises(OSError, match="No space left"):
                curves.append({"rows": 2, "text": "x" * 8000})
        assert read(disk) == [{"n": 1, **point(1)}]
        (disk / "filler").unlink()
        assert curves.append(point(3)) == 2
        assert [one["rows"] for one in read(disk)] == [1, 3]


def test_a_folder_in_its_place_stops_nothing(tmp_path):
    (tmp_path / FILE).mkdir()
    assert read(tmp_path) == []
    with pytest.warns(UserWarning, match="set aside"):
        Curves(tmp_path).append(point(1))
    assert len(read(tmp_path)) == 1
