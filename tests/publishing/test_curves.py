"""Live figures on disk: whole lines, numbers that go up, a file that stays small, and readers that miss nothing."""

import json

import pytest

from pbodl.publishing.curves import FILE, CurveReader, Curves, read


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
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"n": 2, "rows"')
        file.flush()
        assert len(reader.lines()) == 1
        file.write(b": 5}\n")
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
