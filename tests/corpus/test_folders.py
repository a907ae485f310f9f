"""Where text lies: in hidden and linked folders, around the folder that is written, under names of any bytes."""

import errno
import json
import os

import pytest

from litebert.config import UserError
from litebert.corpus.build import BuildOptions, build
from litebert.corpus.engines import Local
from litebert.corpus.read import find_sources
from litebert.corpus.shards import read_manifest

OPTIONS = BuildOptions(held_out=0.0)


def write(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"The harbour master counted {name}. Rain fell.")
    return folder


def found(given, below, leave=()):
    return [os.path.relpath(source.path, below) for source in find_sources([given], leave)]


def test_what_is_hidden_in_a_folder_is_no_text_unless_it_is_asked_for(tmp_path):
    folder = write(tmp_path / ".home" / "in", "b.txt", "a/.git/x.txt", "a/.git/y/x.txt", ".x.txt", "a/x.txt")
    assert found(folder, folder) == ["a/x.txt", "b.txt"]
    assert found(folder / "a" / ".git", folder) == ["a/.git/x.txt", "a/.git/y/x.txt"]
    assert found(folder / ".x.txt", folder) == [".x.txt"]


def test_linked_folders_are_read_and_no_folder_twice(tmp_path):
    folder = write(tmp_path / "in", "b/1.txt", "b/c/2.txt", "z.txt")
    write(tmp_path / "far", "3.txt", "deep/4.txt")
    (folder / "a").symlink_to(folder / "b")  # the same text, by a name that comes first
    (folder / "far").symlink_to(tmp_path / "far")
    (folder / "here").symlink_to(folder)
    (folder / "nowhere").symlink_to(tmp_path / "nowhere")
    (tmp_path / "far" / "round").symlink_to(tmp_path / "far")
    assert found(folder, folder) == ["b/1.txt", "b/c/2.txt", "far/3.txt", "far/deep/4.txt", "z.txt"]


def test_files_are_read_in_the_order_of_their_paths(tmp_path, monkeypatch):
    folder = write(tmp_path, "b/1.txt", "b.txt", "b-c/1.txt", "B/1.txt", "a/b/c.txt", "a/b.txt")
    before = sorted(str(file) for file in folder.rglob("*") if file.is_file())
    assert [source.path for source in find_sources([folder])] == before
    monkeypatch.chdir(folder)
    assert [source.path for source in find_sources(["."])] == [os.path.relpath(path) for path in before]


def test_folders_of_others_are_passed_over_but_a_failing_disk_is_said(tmp_path, monkeypatch):
    folder, real = write(tmp_path, "a.txt", "closed/b.txt"), os.scandir

    def fail(error):
        def scandir(path):
            if str(path).endswith("closed"):
                raise OSError(error, os.strerror(error), str(path))
            return real(path)

        monkeypatch.setattr(os, "scandir", scandir)

    fail(errno.EACCES)
    assert found(folder, folder) == ["a.txt"]
    fail(errno.EIO)
    with pytest.raises(UserError, match=r"cannot read .*closed: Input/output error"):
        find_sources([folder])


def test_what_is_left_out_is_read_where_it_is_asked_for(tmp_path):
    folder = write(tmp_path, "a.txt", "out/b.txt", "out/own/c.txt")
    out, own = folder / "out", folder / "out" / "own"
    assert found(folder, folder, [out, own]) == ["a.txt"]
    assert found(folder / "**" / "*.txt", folder, [out, own]) == ["a.txt"]
    assert found(folder.as_uri(), f"file://{folder}", [out, own]) == ["a.txt"]
    assert found(out, folder, [out, own]) == ["out/b.txt"]
    assert found(own, folder, [out]) == found(own / "c.txt", folder, [out, own]) == ["out/own/c.txt"]


@pytest.mark.parametrize("given", [["in"], ["in/*"], ["in/a.txt", "in/shards"]], ids=["folder", "pattern", "shell"])
def test_a_build_into_its_own_input_goes_on_after_a_kill_and_can_be_run_again(given, tokenizer, tmp_path, monkeypatch):
    monkeypatch.chdir(write(tmp_path, "in/a.txt"))

    def stop(_):
        raise KeyboardInterrupt

    def run(say=lambda _: None):
        return build(
            [each for each in given if each != to or os.path.exists(to)], tokenizer(), to, OPTIONS, Local(1), say
        )

    to = "in/shards"
    with pytest.raises(KeyboardInterrupt):
        run(stop)
    assert [each["name"] for each in run()["inputs"]] == ["a.txt"]
    assert run() == read_manifest(tmp_path / to)


def test_text_and_shards_can_share_a_folder(tokenizer, tmp_path):
    write(tmp_path, "a.txt", "more/b.txt")
    for _ in range(2):
        manifest = build([tmp_path], tokenizer(), tmp_path, OPTIONS, Local(1))
        assert [each["name"] for each in manifest["inputs"]] == ["a.txt", "b.txt"]
    (tmp_path / "a.txt").unlink()
    (tmp_path / "more" / "b.txt").unlink()
    with pytest.raises(UserError, match="nothing to read at"):
        build([tmp_path], tokenizer(), tmp_path, OPTIONS, Local(1))


def test_a_file_name_of_any_bytes_is_built_and_named_in_the_manifest(tokenizer, tmp_path):
    text, benchmark = (tmp_path / os.fsdecode(name) for name in (b"caf\xe9.txt", b"\xfcber \xc3\xbc.txt"))
    try:
        text.write_text("The harbour master counted. Rain fell.")
    except OSError:
        pytest.skip("this file system takes UTF-8 alone")
    benchmark.write_text("one two three four five six seven eight nine")
    options = BuildOptions(held_out=0.0, decontaminate=(str(benchmark),))
    for _ in range(2):
        manifest = build([text], tokenizer(), tmp_path / "out", options, Local(1))
    assert manifest["inputs"][0]["name"] == r"caf\xe9.txt"
    assert manifest["options"]["decontaminate"][0]["name"] == r"\xfcber ü.txt"
    assert json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8")) == manifest
