"""Building: the same bytes on any engine, after any kill; nothing done twice; damage noticed before training."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from litebert.config import UserError
from litebert.corpus import build as building
from litebert.corpus.build import BuildOptions, build
from litebert.corpus.encode import LONGEST, split_sentences
from litebert.corpus.engines import Local, Ray
from litebert.corpus.shards import MANIFEST, Corpus, id_type, read_manifest
from tests.corpus.samples import documents


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "text.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents("en", 400)))
    return path


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(building, "BLOCK", 20_000)


def digest(folder):
    files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


OPTIONS = BuildOptions(held_out=0.1)


def test_shards_hold_every_sentence_of_every_document_in_order(texts, tokenizer, tmp_path):
    manifest = build([texts], tokenizer(), tmp_path / "out", OPTIONS, Local(1))
    assert len(manifest["blocks"]) > 3
    found = {}
    for part in ("train", "held-out"):
        corpus = Corpus(tmp_path / "out", part)
        for shard in corpus.shards:
            ends = [0, *shard.sentence_ends.tolist()]
            sentences = [tuple(shard.ids[a:b].tolist()) for a, b in pairwise(ends)]
            borders = [0, *shard.document_ends.tolist()]
            found.setdefault(part, []).extend(sentences[a:b] for a, b in pairwise(borders))
    expected = [
        [tuple(tokenizer().ids([sentence])[0].tolist()) for sentence in split_sentences(text, "en")]
        for text in documents("en", 400)
    ]
    assert sorted(found["train"] + found["held-out"]) == sorted(expected)
    assert [each for each in expected if each in found["train"]] == found["train"]
    assert 0.05 < len(found["held-out"]) / 400 < 0.15
    assert manifest["counts"]["documents"] == 400
    assert manifest["counts"]["pieces"] == sum(len(s) for d in expected for s in d)


@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "bpe"])
def test_a_sentence_inside_a_document_begins_a_word_of_its_own(kind, texts, tokenizer, tmp_path):
    tok = tokenizer(kind)
    build([texts], tok, tmp_path / "out", BuildOptions(held_out=0.0), Local(1))
    for shard in Corpus(tmp_path / "out").shards:
        starts = np.concatenate([[0], shard.sentence_ends[:-1]]).astype(int)
        documents_start = np.concatenate([[0], shard.document_ends[:-1]]).astype(int)
        inside = np.delete(starts, documents_start)
        assert tok.word_start_table[shard.ids[inside]].all()
    text = tok.decode(shard.ids[: int(shard.sentence_ends[1])].tolist())
    first, second = split_sentences(documents("en", 400)[-len(shard.document_ends)], "en")[:2]
    if kind == "bpe":
        assert text == f"{first} {second}"


@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "bpe"])
def test_the_bytes_do_not_depend_on_the_number_of_workers(kind, texts, tokenizer, tmp_path):
    for workers in (1, 2, 3):
        build([texts], tokenizer(kind), tmp_path / str(workers), OPTIONS, Local(workers))
    assert digest(tmp_path / "1") == digest(tmp_path / "2") == digest(tmp_path / "3")


def test_a_local_ray_gives_the_same_bytes(texts, tokenizer, tmp_path):
    pytest.importorskip("ray", reason="a Ray cluster needs: pip install 'litebert[ray]'")
    build([texts], tokenizer(), tmp_path / "local", OPTIONS, Local(1))
    build([texts], tokenizer(), tmp_path / "ray", OPTIONS, Ray("local"))
    assert digest(tmp_path / "local") == digest(tmp_path / "ray")


def test_without_ray_the_extra_is_named(texts, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'litebert\[ray\]'"):
        build([texts], tokenizer(), tmp_path / "out", OPTIONS, Ray("local"))


def test_run_again_it_does_nothing(texts, tokenizer, tmp_path):
    build([texts], tokenizer(), tmp_path / "out", OPTIONS, Local(1))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    said = []
    build([texts], tokenizer(), tmp_path / "out", OPTIONS, Local(1), say=said.append)
    assert not said
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before


SCRIPT = """
import sys, time
from litebert.corpus import build as building
from litebert.corpus.engines import Local
from litebert.text.tokenizer import Tokenizer
if __name__ == "__main__":
    building.BLOCK = 20_000
    say = lambda progress: (print(progress.blocks, flush=True), time.sleep(0.1))
    tokenizer = Tokenizer.load(sys.argv[2])
    options, engine = building.BuildOptions(held_out=0.1), Local(int(sys.argv[4]))
    building.build([sys.argv[1]], tokenizer, sys.argv[3], options, engine, say)
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_killed_at_ten_random_moments_it_goes_on_to_the_same_bytes(workers, texts, tokenizer, tmp_path):
    build([texts], tokenizer(), tmp_path / "whole", OPTIONS, Local(1))
    tokenizer().save(tmp_path / "tok")
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "script.py", "text.jsonl", "tok", "out", str(workers)]
    draw, kills = random.Random(workers), 0
    for _ in range(10):
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, start_new_session=True)
        for _ in range(draw.choice([0, 0, 1, 1, 2, 3])):
            process.stdout.readline()
        time.sleep(draw.uniform(0, 0.1))
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.communicate()
    assert kills >= 5  # a slow machine may let it finish before the tenth
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert digest(tmp_path / "out") == digest(tmp_path / "whole")
    assert not (tmp_path / "out" / "building").exists()


def test_workers_leave_when_the_main_process_is_killed(texts, tokenizer, tmp_path):
    tokenizer().save(tmp_path / "tok")
    (tmp_path / "script.py").write_text(SCRIPT.replace("time.sleep(0.1)", "time.sleep(60)"))
    command = [sys.executable, "script.py", "text.jsonl", "tok", "out", "2"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, start_new_session=True)
    process.stdout.readline()  # a block is done: the workers are up
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) >= 2
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 20
    while any(alive(child) for child in children) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(alive(child) for child in children)


def alive(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False


def test_other_inputs_options_or_tokenizers_are_refused(texts, tokenizer, tmp_path):
    build([texts], tokenizer(), tmp_path / "out", OPTIONS, Local(1))
    with pytest.raises(UserError, match="holds shards of other options; choose another --to"):
        build([texts], tokenizer(), tmp_path / "out", BuildOptions(held_out=0.2), Local(1))
    with pytest.raises(UserError, match="holds shards of other tokenizer"):
        build([texts], tokenizer("bpe"), tmp_path / "out", OPTIONS, Local(1))
    texts.write_text(texts.read_text() + '{"text": "One more. And another."}\n')
    with pytest.raises(UserError, match="holds shards of other inputs"):
        build([texts], tokenizer(), tmp_path / "out", OPTIONS, Local(1))


def test_a_damaged_or_missing_shard_stops_before_training_and_is_built_again(texts, tokenizer, tmp_path):
    out = tmp_path / "out"
    build([texts], tokenizer(), out, OPTIONS, Local(1))
    whole = digest(out)
    shard = sorted(out.glob("train-*.shard"))[1]
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    with pytest.raises(UserError, match=rf"{shard.name} is not what was written: its checksum differs"):
        Corpus(out)
    shard.write_bytes(content[:-4])
    with pytest.raises(UserError, match=rf"{shard.name} has \d+ bytes, not \d+"):
        Corpus(out)
    shard.unlink()
    with pytest.raises(UserError, match=rf"{shard.name} is missing"):
        Corpus(out)
    said = []
    build([texts], tokenizer(), out, OPTIONS, Local(1), say=said.append)
    assert len(said) == 1  # that block alone
    assert digest(out) == whole


@pytest.mark.parametrize("check", [True, False])
def test_a_shard_that_may_not_be_read_is_one_line(check, corpus, monkeypatch):
    def deny(path, *rest, **more):
        if str(path).endswith(".shard"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *rest, **more)

    folder, real = corpus(), open
    monkeypatch.setattr("builtins.open", deny)
    with pytest.raises(UserError, match=r"cannot read the shard .*train-000000\.shard: Permission denied; mend that"):
        Corpus(folder, check=check)


def test_another_tokenizer_stops_before_training(corpus, tokenizer):
    opened = Corpus(corpus())
    opened.check_tokenizer(tokenizer().checksum)
    with pytest.raises(UserError, match="was made with another tokenizer"):
        opened.check_tokenizer(tokenizer("bpe").checksum)


def test_a_manifest_that_cannot_be_read_or_leads_outside_is_one_line(corpus, tmp_path):
    with pytest.raises(UserError, match=r"no shards under .*; make them with: litebert corpus build"):
        Corpus(tmp_path)
    manifest = read_manifest(corpus())
    for change, sentence in [
        ({"format": 9}, "format 9; this version of litebert reads 1"),
        ({"blocks": 3}, "is not a manifest that can be read"),
        ({"tokenizer": {}}, "is not a manifest that can be read"),
    ]:
        (tmp_path / MANIFEST).write_text(json.dumps(manifest | change))
        with pytest.raises(UserError, match=sentence):
            Corpus(tmp_path)
    evil = manifest["blocks"][0]["train"] | {"file": "../secret"}
    (tmp_path / MANIFEST).write_text(
        json.dumps(manifest | {"blocks": [{"train": evil, "held-out": None, "counts": {}}]})
    )
    with pytest.raises(UserError, match="only files beside it are read"):
        Corpus(tmp_path)


@pytest.mark.parametrize(
    ("which", "kept", "counts"),
    [
        ("none", ["a.\nb.", "c.\nb.", "a.\nb.", "b.", "d."], {}),
        ("documents", ["a.\nb.", "c.\nb.", "b.", "d."], {"duplicate documents": 1}),
        (
            "paragraphs",
            ["a.\nb.", "c.", "d."],
            {"duplicate paragraphs": 4, "documents of duplicate paragraphs alone": 2},
        ),
        ("both", ["a.\nb.", "c.", "d."], {"duplicate documents": 1, "duplicate paragraphs": 2}),
    ],
)
def test_duplicates_are_dropped_on_request_and_counted(which, kept, counts, tokenizer, tmp_path):
    words = {"a.": "The harbour.", "b.": "Rain fell.", "c.": "They found.", "d.": "He sold."}
    given = ["a.\nb.", "c.\nb.", "a.\nb.", "b.", "d."]
    say = lambda text: "\n".join(words[part] for part in text.split("\n"))  # noqa: E731
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"text": say(text)}) + "\n" for text in given))
    options = BuildOptions(held_out=0.0, drop_duplicates=which)
    manifest = build([tmp_path / "t.jsonl"], tokenizer(), tmp_path / "out", options, Local(1))
    corpus = Corpus(tmp_path / "out")
    assert corpus.documents == len(kept)
    assert tokenizer().decode(corpus.shards[0].ids.tolist()).split() == say("\n".join(kept)).lower().split()
    for name, count in counts.items():
        assert manifest["counts"][name] == count


def test_documents_that_hold_a_benchmark_are_left_out_and_counted(texts, tokenizer, tmp_path):
    benchmark = tmp_path / "bench.tsv"
    benchmark.write_text("1\tThe old clock struck seven, although everyone knew it was half past eight.\n")
    holding = sum("old clock struck" in text for text in documents("en", 400))
    options = BuildOptions(held_out=0.0, decontaminate=(str(benchmark),))
    manifest = build([texts], tokenizer(), tmp_path / "out", options, Local(1))
    assert 0 < holding < 400
    assert manifest["counts"]["contaminated documents"] == holding
    assert manifest["counts"]["documents"] == 400 - holding


def test_bad_rows_are_counted_in_the_manifest(tokenizer, tmp_path):
    (tmp_path / "t.jsonl").write_text('{"text": "The harbour. Rain."}\nnot json\n{"text": ""}\n')
    with pytest.raises(UserError, match="row 2: not JSON"):
        build([tmp_path / "t.jsonl"], tokenizer(), tmp_path / "a", BuildOptions(), Local(1))
    manifest = build(
        [tmp_path / "t.jsonl"], tokenizer(), tmp_path / "b", BuildOptions(held_out=0, skip_bad=True), Local(1)
    )
    assert manifest["counts"]["bad: not JSON"] == 1
    assert manifest["counts"]["bad: empty"] == 1


def test_a_corpus_without_a_document_is_refused(tokenizer, tmp_path):
    (tmp_path / "t.jsonl").write_text('{"text": " "}\n')
    with pytest.raises(UserError, match=r"nothing to train on in .*: there is no document"):
        build([tmp_path / "t.jsonl"], tokenizer(), tmp_path / "out", BuildOptions(), Local(1))


def test_a_corpus_that_is_all_held_out_says_so(texts, tokenizer, tmp_path):
    with pytest.raises(UserError, match="every document was held out"):
        build([texts], tokenizer(), tmp_path / "out", BuildOptions(held_out=0.999999999), Local(1))


def test_the_advice_of_an_error_can_be_followed_in_the_same_folder(tokenizer, tmp_path):
    (tmp_path / "t.jsonl").write_text('{"text": "The harbour. Rain."}\nnot json\n')
    with pytest.raises(UserError, match="--skip-bad"):
        build([tmp_path / "t.jsonl"], tokenizer(), tmp_path / "out", BuildOptions(held_out=0), Local(1))
    build([tmp_path / "t.jsonl"], tokenizer(), tmp_path / "out", BuildOptions(held_out=0, skip_bad=True), Local(1))


def test_records_of_another_build_are_never_taken_over(texts, tokenizer, tmp_path, monkeypatch):
    out = tmp_path / "out"
    build([texts], tokenizer(), out, OPTIONS, Local(1))
    next(iter(out.glob("train-*.shard"))).unlink()
    written = []

    def die(path, data):
        written.append(path.name)
        if path.name == "plan.json":
            raise KeyboardInterrupt
        return real(path, data)

    real = building.replace_file
    monkeypatch.setattr(building, "replace_file", die)
    with pytest.raises(KeyboardInterrupt):  # while the old records are laid out for repair, before their plan
        build([texts], tokenizer(), out, OPTIONS, Local(1))
    assert len(written) > 2
    monkeypatch.setattr(building, "replace_file", real)
    build([texts], tokenizer(), out, OPTIONS, Local(1))
    build([texts], tokenizer(), tmp_path / "clean", OPTIONS, Local(1))
    assert digest(out) == digest(tmp_path / "clean")


def test_a_kill_between_the_manifest_and_the_clearing_up_leaves_nothing(texts, tokenizer, tmp_path, monkeypatch):
    real = building.replace_file

    def die_after_the_manifest(path, data):
        real(path, data)
        if path.name == MANIFEST:
            raise KeyboardInterrupt

    out = tmp_path / "out"
    monkeypatch.setattr(building, "replace_file", die_after_the_manifest)
    with pytest.raises(KeyboardInterrupt):
        build([texts], tokenizer(), out, OPTIONS, Local(1))
    assert (out / "building").exists()
    monkeypatch.setattr(building, "replace_file", real)
    build([texts], tokenizer(), out, OPTIONS, Local(1))
    build([texts], tokenizer(), tmp_path / "clean", OPTIONS, Local(1))
    assert digest(out) == digest(tmp_path / "clean")


def test_two_builds_do_not_write_one_folder(texts, tokenizer, tmp_path):
    (tmp_path / "out").mkdir()
    with building.alone(tmp_path / "out"), pytest.raises(UserError, match="another process is writing"):
        build([texts], tokenizer(), tmp_path / "out", OPTIONS, Local(1))
    build([texts], tokenizer(), tmp_path / "out", OPTIONS, Local(1))


def test_what_a_killed_search_for_duplicates_left_is_cleared(texts, tokenizer, tmp_path):
    options = BuildOptions(held_out=0.1, drop_duplicates="both")
    build([texts], tokenizer(), tmp_path / "clean", options, Local(1))
    out = tmp_path / "out"

    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build([texts], tokenizer(), out, options, Local(1), say=stop)
    (out / "building" / "duplicates-left").mkdir()
    build([texts], tokenizer(), out, options, Local(1))
    assert digest(out) == digest(tmp_path / "clean")


def test_a_sentence_without_end_is_cut_between_words_and_counted(tokenizer, tmp_path):
    words = "harbour master counted the boats twice before breakfast and " * 200
    (tmp_path / "t.jsonl").write_text(json.dumps({"text": words}) + "\n")
    manifest = build([tmp_path / "t.jsonl"], tokenizer(), tmp_path / "out", BuildOptions(held_out=0), Local(1))
    assert manifest["counts"]["sentences cut"] == 1
    corpus = Corpus(tmp_path / "out")
    shard = corpus.shards[0]
    assert (np.diff([0, *shard.sentence_ends.tolist()]) <= LONGEST).all()
    starts = [0, *shard.sentence_ends[:-1].tolist()]
    assert tokenizer().word_start_table[shard.ids[starts]].all()
    assert tokenizer().decode(shard.ids.tolist()).split() == words.split()


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"seed": -1}, "seed = -1 must be a whole number from 0"),
        ({"language": "german"}, "language = 'german' is no code such as en, de or hi"),
        ({"held_out": 1.0}, "held_out = 1.0 must be at least 0 and below 1"),
    ],
)
def test_impossible_options_are_one_line(values, sentence):
    with pytest.raises(UserError, match=sentence):
        BuildOptions(**values)


def test_a_tokenizer_without_an_unknown_piece_can_build(texts, tmp_path, data):
    from litebert.text.tokenizer import Tokenizer

    gpt2 = Tokenizer.load(data / "tokenizers" / "gpt2-tokenizer.json")
    manifest = build([texts], gpt2, tmp_path / "out", OPTIONS, Local(1))
    assert manifest["counts"]["unknown pieces"] == 0


def test_a_folder_that_cannot_be_written_is_one_line(texts, tokenizer, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        build([texts], tokenizer(), tmp_path / "file", OPTIONS, Local(1))


def test_large_vocabularies_take_wider_ids():
    assert id_type(65536) == np.uint16
    assert id_type(65537) == np.uint32


def test_a_document_is_held_out_for_what_it_says_not_for_where_it_stands(texts, tokenizer, tmp_path):
    lines = texts.read_text().splitlines(keepends=True)
    (tmp_path / "turned.jsonl").write_text("".join(reversed(lines)))
    sides = []
    for name in ("text.jsonl", "turned.jsonl"):
        build([tmp_path / name], tokenizer(), tmp_path / f"{name}-out", OPTIONS, Local(1))
        corpus = Corpus(tmp_path / f"{name}-out", "held-out")
        sides.append((corpus.documents, corpus.sentences, corpus.pieces))
    assert sides[0] == sides[1]
