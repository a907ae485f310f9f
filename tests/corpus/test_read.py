"""Reading: every format and compression, and one line with file and row for whatever is broken."""

import bz2
import csv
import gzip
import io
import json
import lzma

import pytest

from litebert.config import UserError
from litebert.corpus.read import Bad, checksum, find_sources, open_bytes, read_documents

TEXTS = ["First line.\nSecond line, with a comma.", "Über Äpfel.", 'Third: "quoted".']


def as_text() -> bytes:
    return "\n\n".join(TEXTS).encode() + b"\n"


def as_jsonl(column: str = "text") -> bytes:
    return "".join(
        json.dumps({"id": i, column: text}, ensure_ascii=False) + "\n" for i, text in enumerate(TEXTS)
    ).encode()


def as_csv(column: str = "text") -> bytes:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["id", column])
    writer.writerows(enumerate(TEXTS))
    return out.getvalue().encode()


def as_tsv() -> bytes:
    return "\n".join(["id\ttext", *(f"{i}\t{text.replace(chr(10), ' ')}" for i, text in enumerate(TEXTS))]).encode()


def as_parquet(column: str = "text") -> bytes:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    sink = io.BytesIO()
    parquet.write_table(arrow.table({"id": [0, 1, 2], column: TEXTS}), sink)
    return sink.getvalue()


def zstd(content: bytes) -> bytes:
    return pytest.importorskip("zstandard").ZstdCompressor().compress(content)


FORMATS = {"a.txt": as_text, "a.jsonl": as_jsonl, "a.csv": as_csv, "a.tsv": as_tsv, "a.parquet": as_parquet}
PACK = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstd}


def read(*inputs, column="text", skip=False):
    bad = Bad(skip=skip)
    return list(read_documents(find_sources(inputs), column, bad)), bad


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_reads_plain_and_compressed(name, packing, tmp_path):
    if name == "a.parquet" and packing:
        pytest.skip("Parquet compresses inside")
    path = tmp_path / (name + packing)
    path.write_bytes(PACK[packing](FORMATS[name]()))
    texts, _ = read(path)
    assert [" ".join(text.split()) for text in texts] == [" ".join(text.split()) for text in TEXTS]


@pytest.mark.parametrize("name", ["a.TXT", "a.JSONL.GZ", "a.Csv", "a.TSV.gz"])
def test_an_ending_in_capitals_is_that_ending(name, tmp_path):
    content = FORMATS[name.lower().removesuffix(".gz")]()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.lower().endswith(".gz") else content)
    assert [" ".join(text.split()) for text in read(tmp_path)[0]] == [" ".join(text.split()) for text in TEXTS]


@pytest.mark.parametrize(("name", "make"), [("a.jsonl", as_jsonl), ("a.csv", as_csv), ("a.parquet", as_parquet)])
def test_the_text_column_is_chosen_by_name(name, make, tmp_path):
    (tmp_path / name).write_bytes(make("body"))
    assert read(tmp_path / name, column="body")[0] == TEXTS
    with pytest.raises(UserError, match=r"no column .bdy.; did you mean .body."):
        read(tmp_path / name, column="bdy")


def test_folders_and_patterns_are_read_in_the_order_of_their_names(tmp_path):
    for name in ("b/2.txt", "b/1.txt", "a.txt", "b/.hidden.txt", "b/picture.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    assert [source.name for source in find_sources([tmp_path / "b", tmp_path / "a.txt"])] == ["1.txt", "2.txt", "a.txt"]
    assert [source.name for source in find_sources([str(tmp_path / "**/*.txt")])] == ["a.txt", "1.txt", "2.txt"]


def test_urls_are_read_through_fsspec():
    fsspec = pytest.importorskip("fsspec")
    files = fsspec.filesystem("memory")
    for name in ("one", "two", ".git/three"):
        with files.open(f"/corpus/{name}.txt.gz", "wb") as file:
            file.write(gzip.compress(f"Document {name}.".encode()))
    try:
        assert read("memory://corpus/*.gz")[0] == ["Document one.", "Document two."]
        assert read("memory://corpus")[0] == ["Document one.", "Document two."]
        assert checksum(find_sources(["memory://corpus/one.txt.gz"])[0])[0] > 0
    finally:
        files.rm("/corpus", recursive=True)


BROKEN = [
    ("a.jsonl", b'{"text": "good"}\n{"text": \n{"text": "fine"}\n', "a.jsonl, row 2: not JSON", "not JSON", 2),
    ("a.jsonl", b'{"text": "good"}\n[1]\n', "a.jsonl, row 2: not a JSON object but list", "not JSON", 1),
    ("a.jsonl", b'{"text": "good"}\n{"txt": "x"}\n', "row 2: no column 'text'; did you mean 'txt'?", "no column", 1),
    ("a.jsonl", b'{"text": "good"}\n{"text": 7}\n', "row 2: 'text' holds int, not text", "not text", 1),
    ("a.jsonl", b'{"text": "good"}\n{"text": "\xff"}\n', "row 2: byte 0xff at 10 is not UTF-8", "encoding", 1),
    ("a.txt", b"good\n\nb\xe4d\n\nfine\n", "a.txt, row 3: byte 0xe4 at 1 is not UTF-8", "encoding", 2),
    ("a.csv", b"text,n\ngood,1\nbad\nfine,2\n", "a.csv, row 3: 1 fields where there should be 2", "fields", 2),
    ("a.csv", b"text,n\ngood,1\nb\xe4d,2\nfine,3\n", "a.csv, row 3: byte 0xe4 at 1 is not UTF-8", "encoding", 2),
    (
        "a.jsonl",
        b'{"text": "good"}\n{"text": "\\ud800x"}\n',
        "row 2: 'text' holds half a surrogate pair",
        "not Unicode",
        1,
    ),
    ("a.csv", b'text,n\ngood,1\n"never closed,2\nfine,3\n', "a.csv, row 3: a quote opens here that", "not CSV", 1),
    (
        "a.json",
        b'[{"text": "good"}]',
        "a.json, row 1: a list of all rows; write each on a line of its own",
        "not JSON",
        0,
    ),
    ("a.json", b'[\n{"text": "good"}\n', "a.json, row 1: a list of all rows; write each on a", "not JSON", 1),
    ("a.csv", b"text,n\rgood,1\r", "a.csv, row 1: a bare carriage return; quote its field or, if all", "not CSV", 0),
    ("a.txt.gz", gzip.compress(b"good\n\n" * 3000, mtime=0)[:-20], "breaks off here", "broken file", None),
    ("a.txt.xz", lzma.compress(b"good\n\n" * 3000)[:-20], "breaks off here", "broken file", None),
    ("a.txt.bz2", bz2.compress(b"good\n\n" * 3000)[:-20], "breaks off here", "broken file", None),
    ("a.txt.gz", b"not gzip at all", "a.txt.gz, row 1: the file breaks off here", "broken file", 0),
    ("a.parquet", b"not parquet", "a.parquet, row 1: not Parquet, or broken", "broken file", 0),
]


@pytest.mark.parametrize(("name", "content", "sentence", "kind", "left"), BROKEN)
def test_a_broken_row_names_its_file_and_row_or_is_counted(name, content, sentence, kind, left, tmp_path):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as problem:
        read(tmp_path / name)
    assert sentence in str(problem.value)
    assert "--skip-bad" in str(problem.value)
    assert "\n" not in str(problem.value)
    texts, bad = read(tmp_path / name, skip=True)
    assert bad.counts[kind] == 1
    assert sentence in bad.first[0]
    if left is not None:
        assert len(texts) == left


LINES = [f"{number * 7919 % 104729} and {number * number % 99991}" for number in range(30_000)]


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        (lambda packed: packed[: len(packed) // 2], "the last frame has no end"),
        (lambda packed: packed[:-1], "the last frame has no end"),
        (lambda packed: packed + packed[:9], "the last frame has no end"),
        (lambda packed: packed[:-1000] + bytes(1000), "zstd decompress"),
        (lambda packed: packed + b"no frame", "Unknown frame descriptor"),
    ],
    ids=["half", "without its last byte", "without most of its second frame", "zeros inside", "something behind"],
)
def test_zstd_that_breaks_off_or_is_damaged_is_as_broken_as_gzip(damaged, why, tmp_path):
    path = tmp_path / "a.txt.zst"
    path.write_bytes(damaged(zstd("\n\n".join(LINES).encode())))
    with pytest.raises(UserError, match=rf"a\.txt\.zst, row \d+: the file breaks off here \(.*{why}") as problem:
        read(path)
    assert "--skip-bad" in str(problem.value)
    texts, bad = read(path, skip=True)
    assert bad.counts == {"broken file": 1}
    assert texts[:-1] == LINES[: len(texts) - 1]
    assert len(texts) > 500
    with pytest.raises(UserError, match="is broken"):
        open_bytes(path)


def test_what_is_no_zstd_at_all_is_one_line(tmp_path):
    pytest.importorskip("zstandard")
    (tmp_path / "a.txt.zst").write_bytes(b"not zstd at all")
    with pytest.raises(UserError, match=r"a\.txt\.zst, row 1: the file breaks off here"):
        read(tmp_path / "a.txt.zst")


def test_zstd_of_several_frames_and_of_the_widest_window_is_read_to_its_end(tmp_path):
    last = b"\n\nthe end"
    widest = b"\x28\xb5\x2f\xfd\x00\xa8" + (len(last) << 3 | 1).to_bytes(3, "little") + last  # RFC 8878, 3.1.1
    skippable = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
    packed = b"".join(zstd(f"{line}\n\n".encode()) for line in LINES[:500])
    (tmp_path / "a.txt.zst").write_bytes(packed + skippable + widest)
    assert read(tmp_path / "a.txt.zst")[0] == [*LINES[:500], "the end"]


def test_a_parquet_row_that_is_not_utf8_is_named_and_it_alone_is_left_out(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    cells = [f"text {number}".encode() for number in range(3000)]
    cells[1], cells[2100] = b"b\xe4d", b"worse\xff"
    column = arrow.array(cells, arrow.binary()).view(arrow.string())
    parquet.write_table(arrow.table({"text": column}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a\.parquet, row 2: byte 0xe4 at 1 is not UTF-8; .*--skip-bad"):
        read(tmp_path / "a.parquet")
    texts, bad = read(tmp_path / "a.parquet", skip=True)
    assert texts == [f"text {number}" for number in range(3000) if number not in (1, 2100)]
    assert bad.counts == {"encoding": 2}
    assert "row 2101: byte 0xff at 5 is not UTF-8" in bad.first[1]


def test_a_parquet_column_whose_name_is_not_utf8_is_one_line(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "a.parquet").write_bytes(as_parquet("column").replace(b"column", b"c\xf6lumn"))
    with pytest.raises(UserError, match=r"a\.parquet, row 1: not Parquet, or broken"):
        read(tmp_path / "a.parquet")


def test_a_byte_order_mark_is_no_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfFirst.\r\n\r\nSecond.\r\n")
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbftext,n\r\n"one\r\nline, two",1\r\n')
    assert read(tmp_path / "a.txt")[0] == ["First.", "Second."]
    assert [text.split() for text in read(tmp_path / "a.csv")[0]] == [["one", "line,", "two"]]


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_a_csv_is_read_by_what_stands_between_the_names_of_its_header(mark, tmp_path):
    rows = [["id", "text"], ["1", '"a, b; c\td"'], ["2", "plain"]]
    packed = gzip.compress("".join(f"{mark.join(row)}\r\n" for row in rows).encode("utf-8-sig"))
    (tmp_path / "a.csv.gz").write_bytes(packed)
    assert read(tmp_path / "a.csv.gz")[0] == ["a, b; c\td", "plain"]


def test_a_csv_is_read_as_excel_writes_it(tmp_path):
    """With a line that says what stands between fields, and with names of several lines."""
    for begin in ("sep=;\r\nid;text\r\n", '"id\r\n(of ours)";text\r\n'):
        (tmp_path / "a.csv").write_bytes(f"{begin}1;one, two\r\n".encode("utf-8-sig"))
        assert read(tmp_path / "a.csv")[0] == ["one, two"]
    (tmp_path / "a.csv").write_text('"text;never closed\n' + "1;2\n" * 1000)
    with pytest.raises(UserError, match="row 1: a quote opens here that nothing closes"):
        read(tmp_path / "a.csv")


def test_a_row_that_does_not_fit_says_by_which_mark(tmp_path):
    (tmp_path / "a.csv").write_text("text;n\ngood;1\nbad\n")
    with pytest.raises(UserError, match=r"row 3: 1 fields where there should be 2, by the semicolons of the"):
        read(tmp_path / "a.csv")


def test_a_header_that_is_not_utf8_is_counted_once(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"\xff\ntext;n\ngood;1\n")
    texts, bad = read(tmp_path / "a.csv", skip=True)
    assert texts == ["good"]
    assert bad.counts == {"encoding": 1}


def test_quotes_in_tsv_are_characters(tmp_path):
    (tmp_path / "a.tsv").write_text('text\tn\n"open quote\t1\nnext\t2\n')
    assert read(tmp_path / "a.tsv")[0] == ['"open quote', "next"]
    (tmp_path / "a.tsv.csv").write_text("text,n\nx,1\n")
    assert read(tmp_path / "a.tsv.csv")[0] == ["x"]


@pytest.mark.parametrize("url", ["foo://x.txt", "memory://nowhere/x.txt.gz"])
def test_a_url_that_cannot_be_read_is_one_line(url):
    with pytest.raises(UserError, match=r"cannot read|nothing to read|No such file") as problem:
        read(url)
    assert "\n" not in str(problem.value)


def test_an_empty_file_is_said_and_empty_texts_are_counted(tmp_path):
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(UserError, match="the file holds no text"):
        read(tmp_path / "a.txt")
    assert read(tmp_path / "a.txt", skip=True)[1].counts["empty file"] == 1
    (tmp_path / "b.jsonl").write_text('{"text": "  "}\n{"text": "x"}\n')
    texts, bad = read(tmp_path / "b.jsonl")
    assert texts == ["x"]
    assert bad.counts["empty"] == 1


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("nowhere.txt", "no file or folder"),
        ("*.nothing", "nothing to read at"),
        ("image.png", "is of no kind that can be read: .txt"),
        ("same.txt", "is named twice"),
    ],
)
def test_inputs_that_lead_nowhere_are_one_line(given, sentence, tmp_path):
    for name in ("image.png", "same.txt"):
        (tmp_path / name).write_text("x")
    with pytest.raises(UserError, match=sentence):
        find_sources([tmp_path / given] * (2 if given == "same.txt" else 1))


@pytest.mark.parametrize(("package", "name"), [("zstandard", "a.txt.zst"), ("pyarrow", "a.parquet")])
def test_a_missing_package_names_the_extra(package, name, tmp_path, monkeypatch):
    import sys

    (tmp_path / name).write_bytes(b"x")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=r"pip install 'litebert\[corpus\]'"):
        read(tmp_path / name)
