"""CSV files as people have them: any delimiter, with and without a header, values that span lines."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbodl import Field, InputError, Schema
from pbodl.data.log.csv_layout import delimiter_of, looks_like_data, sniffed_delimiter
from pbodl.data.log.log_reader import open_log

NAMES = ["click", "ad", "words"]
SCHEMA = Schema(label="click", fields=[Field("ad"), Field("words", kind="multi")])
HEADERLESS = Schema(label="click", columns=NAMES, fields=SCHEMA.fields)
ROWS = [[str(n % 2), f"a{n % 3}", "x|y" if n % 2 else "z"] for n in range(20)]


def written(path, rows, delimiter=",", line_end="\n", mark=False):
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator=line_end).writerows(rows)
    path.write_bytes((b"\xef\xbb\xbf" if mark else b"") + text.getvalue().encode())
    return path


def batch(path, schema, **options):
    with open_log(path, schema, **options) as reader:
        (chunk,) = reader
    return chunk.batch


@pytest.mark.parametrize("delimiter", list(",\t;|"))
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [False, True])
def test_delimiters_headers_and_marks_change_nothing(tmp_path, delimiter, line_end, mark):
    rows = [[*row[:2], row[2].replace("|", "")] for row in ROWS] if delimiter == "|" else ROWS
    ref = batch(written(tmp_path / "ref.csv", [NAMES, *rows]), SCHEMA)
    for name, content, schema in (
        ("a.txt", [NAMES, *rows], SCHEMA),
        ("b.tsv", rows, HEADERLESS),
        ("c", [NAMES, *rows], HEADERLESS),
    ):
        comp = batch(written(tmp_path / name, content, delimiter, line_end, mark), schema)
        assert comp.keys.tolist() == ref.keys.tolist()
        assert comp.clicks.tolist() == ref.clicks.tolist()


def test_rows_without_an_outcome_need_no_label_column(tmp_path):
    ref = batch(written(tmp_path / "a.csv", ROWS), HEADERLESS, labelled=False)
    comp = batch(written(tmp_path / "b.csv", [row[1:] for row in ROWS]), HEADERLESS, labelled=False)
    assert comp.keys.tolist() == ref.keys.tolist()
    with pytest.raises(InputError, match="no column 'click', which the schema names as its label"):
        batch(tmp_path / "b.csv", HEADERLESS)


@given(st.lists(st.text(st.sampled_from('ab",\n\r;'), max_size=6), min_size=1, max_size=8), st.integers(1, 4))
def test_values_with_line_ends_against_pythons_reader(tmp_path_factory, texts, size):
    texts = [text.replace("\r\n", "\n").replace("\r", "") for text in texts]
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    with open(path, "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([["click", "ad"], *([n % 2, text] for n, text in enumerate(texts))])
    with open_log(path, Schema(label="click", fields=[Field("ad")]), batch_rows=size) as reader:
        chunks = list(reader)
    assert [value for chunk in chunks for value in chunk.table.column("ad").to_pylist()] == texts
    for number, chunk in enumerate(chunks):
        with open_log(path, Schema(label="click", fields=[Field("ad")]), batch_rows=size, start=chunk.position) as reader:
            assert [c.table.to_pylist() for c in reader] == [c.table.to_pylist() for c in chunks[number + 1 :]]


def test_a_stray_quote_spoils_its_line_alone_among_rows_that_span_lines(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('click,ad\n1,"a\nb"\n0,"c\n1,d\n0,"e\n\nf"\n1,"g\nh"\n')
    bad_rows = tmp_path / "bad"
    with open_log(path, Schema(label="click", fields=[Field("ad")]), bad_rows="skip", bad_rows_file=bad_rows) as reader:
        (chunk,) = reader
    assert chunk.table.column("ad").to_pylist() == ["a\nb", "d", "e\n\nf", "g\nh"]
    assert [bad.number for bad in chunk.bad] == [4]
    path.write_text('click,ad\n1,"a\nb"\n2,"c\nd"\n')
    with pytest.raises(InputError, match="line 4: label 'click' holds '2'"):
        batch(path, Schema(label="click", fields=[Field("ad")]))


@pytest.mark.parametrize(
    ("lines", "columns", "ref"),
    [
        (["a,b|c\n", "1,2|3\n"], None, ","),
        (["1\t2\ta|b|c|d\n", "1\t2\ta\n"], None, "\t"),
        (["a;b,c\n", "1;2\n"], 2, ";"),
        (["one\n", "1\n"], None, ","),
    ],
)
def test_sniffing(lines, columns, ref):
    assert sniffed_delimiter(lines, columns) == ref


def test_refusals(tmp_path):
    with pytest.raises(InputError, match="the delimiter is 'ab'; it must be one ASCII character, or one of 'comma', 'tab'"):
        delimiter_of("ab")
    with pytest.raises(
        InputError, match=r"first line of .* has 1 values, but 3 columns are named; check `columns` and `delimiter`"
    ):
        schema = Schema(label="click", columns=["click", "ad", "c"], fields=[Field("ad")], delimiter=";")
        batch(written(tmp_path / "a.csv", [["0", "a", "x", "y"]]), schema)
    with pytest.raises(InputError, match="columns names 'a' twice"):
        Schema(label="click", columns=["a", "a"], fields=[Field("a")])


def test_a_forgotten_list_of_columns(tmp_path):
    with pytest.raises(
        InputError, match=r"no column 'ad'.* The first line looks like values, not names: name the columns with --col"
    ):
        batch(written(tmp_path / "a.csv", ROWS), SCHEMA)


def test_numbers_and_gaps_are_no_names():
    assert looks_like_data(["click", "3.5"])
    assert looks_like_data(["click", "", ""])
    assert not looks_like_data(["", "click"])  # an index without a name
    assert not looks_like_data(["1", "2"])
