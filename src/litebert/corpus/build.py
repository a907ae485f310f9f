"""Documents -> a folder of shards: on this machine's cores or a Ray cluster, the same bytes either way.

The main process reads and cuts the stream of documents into blocks of a fixed size; each block is split, tokenized and
returned by a worker and written by the main process, as two shards (train and held-out) and a record. Whatever a killed
build has recorded stays; the next one reads past it. The manifest, written last, says that the folder is complete.
"""

import hashlib
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from litebert.config import UserError, seed_range
from litebert.corpus.clean import Duplicates, paragraphs
from litebert.corpus.encode import LONGEST, Encoded, Settings
from litebert.corpus.engines import Engine
from litebert.corpus.read import Bad, Source, checksum, find_sources, read_documents
from litebert.corpus.shards import MANIFEST, PARTS, ShardInfo, file_checksum, manifest_bytes, read_manifest
from litebert.files import alone, read_json, replace_file
from litebert.text.tokenizer import Tokenizer

BLOCK = 8_000_000  # characters: a shard of about four megabytes
WORK, PLAN, TOKENIZER = "building", "plan.json", "tokenizer"


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """What the shards depend on beside the text and the tokenizer."""

    column: str = "text"
    language: str = "en"
    held_out: float = 0.025  # share of the documents that is set aside
    seed: int = 0
    drop_duplicates: Literal["none", "documents", "paragraphs", "both"] = "none"
    decontaminate: tuple[str, ...] = ()
    skip_bad: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.held_out < 1:
            raise UserError(f"held_out = {self.held_out} must be at least 0 and below 1")
        seed_range(self, "seed")
        if not re.fullmatch("[a-z]{2,3}", self.language):
            raise UserError(f"language = {self.language!r} is no code such as en, de or hi")


@dataclass(frozen=True)
class Progress:
    """Said after each block."""

    blocks: int
    documents: int
    characters: int


def build(
    inputs: Sequence[str | Path],
    tokenizer: Tokenizer,
    to: str | Path,
    options: BuildOptions,
    engine: Engine,
    say: Callable[[Progress], object] = lambda _: None,
    bad: Bad | None = None,
) -> dict[str, Any]:
    """The manifest of the finished folder. Run again, it does nothing; after a kill, it goes on."""
    folder = Path(to)
    made = [folder / name for name in (MANIFEST, WORK, TOKENIZER)]  # no text even where text shares the folder
    sources = find_sources(inputs, leave=[folder, *made])
    bad = bad or Bad(skip=options.skip_bad)
    fingerprint = _fingerprint(sources, tokenizer, options)
    try:
        with alone(folder):
            done = _earlier(folder, fingerprint)
            if not (folder / MANIFEST).exists():
                tokenizer.save(folder / TOKENIZER)
                records, dropped = _build_blocks(folder, sources, tokenizer, options, engine, bad, done, say)
                counts = Counter({f"bad: {kind}": n for kind, n in sorted(bad.counts.items())}) + dropped
                if not any(record["train"] for record in records):
                    why = (
                        "every document was held out" if any(r["held-out"] for r in records) else "there is no document"
                    )
                    raise UserError(f"nothing to train on in {', '.join(source.path for source in sources)}: {why}")
                replace_file(folder / MANIFEST, manifest_bytes(fingerprint, records, dict(counts)))
                shutil.rmtree(folder / WORK)
    except OSError as problem:
        raise UserError(f"cannot write {folder}: {problem.strerror or problem}; what is built stays") from None
    return read_manifest(folder)


def _fingerprint(sources: Sequence[Source], tokenizer: Tokenizer, options: BuildOptions) -> dict[str, Any]:
    """Everything that decides the bytes."""
    inputs = []
    for source in sources:
        size, digest = checksum(source)
        inputs.append({"name": _utf8(source.name), "bytes": size, "sha256": digest})
    settings = asdict(options)
    benchmarks = [{"name": _utf8(Path(file).name), "sha256": _file_digest(file)} for file in options.decontaminate]
    settings |= {"decontaminate": benchmarks, "block": BLOCK, "longest": LONGEST}
    return {
        "tokenizer": {"sha256": tokenizer.checksum, "vocab_size": len(tokenizer), "kind": tokenizer.kind},
        "inputs": inputs,
        "options": settings,
    }


def _utf8(name: str) -> str:
    """A file's name may be any bytes; JSON takes text."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _file_digest(file: str) -> str:
    if not Path(file).is_file():
        raise UserError(f"no benchmark file {file}")
    return file_checksum(Path(file))


def _earlier(folder: Path, fingerprint: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """The blocks that an earlier build of the very same has left, by number. Afterwards a manifest stands only where
    nothing is left to do, and a plan only beside records that are its own."""
    work, manifest = folder / WORK, folder / MANIFEST
    records: dict[int, dict[str, Any]] = {}
    before: dict[str, Any] | None = None
    if manifest.exists():
        found = read_manifest(folder)
        records, before = dict(enumerate(found["blocks"])), {key: found.get(key) for key in fingerprint}
    elif (work / PLAN).exists():
        before = read_json(work / PLAN)
        records = {int(file.stem): read_json(file) for file in work.glob("[0-9]*.json")}
    same = json.loads(json.dumps(fingerprint))
    if records and before != same:
        differs = next(key for key in ("tokenizer", "options", "inputs") if (before or {}).get(key) != same[key])
        raise UserError(f"{folder} holds shards of other {differs}; choose another --to, or delete it")
    whole = {number: record for number, record in records.items() if _intact(folder, record)}
    if manifest.exists() and len(whole) == len(records):
        shutil.rmtree(work, ignore_errors=True)  # a kill may have come between the manifest and the clearing up
        return whole
    if before == same and not manifest.exists():
        for number in set(records) - set(whole):
            _record(folder, number).unlink()
        for left in work.glob("duplicates-*"):
            shutil.rmtree(left)
        return whole
    shutil.rmtree(work, ignore_errors=True)  # records of no plan, or of one that came to nothing
    work.mkdir()
    for number, record in whole.items():
        replace_file(_record(folder, number), json.dumps(record).encode())
    replace_file(work / PLAN, json.dumps(fingerprint).encode())
    manifest.unlink(missing_ok=True)
    return whole


def _intact(folder: Path, record: Mapping[str, Any]) -> bool:
    for part in PARTS:
        if record[part]:
            path = folder / record[part]["file"]
            if not path.is_file() or file_checksum(path) != record[part]["sha256"]:
                return False
    return True


def _record(folder: Path, number: int) -> Path:
    return folder / WORK / f"{number:06d}.json"


def _build_blocks(
    folder: Path,
    sources: Sequence[Source],
    tokenizer: Tokenizer,
    options: BuildOptions,
    engine: Engine,
    bad: Bad,
    done: dict[int, dict[str, Any]],
    say: Callable[[Progress], object],
) -> tuple[list[dict[str, Any]], Counter[str]]:
    settings = Settings.of(tokenizer, options.language, options.held_out, options.seed, options.decontaminate)
    dropped: Counter[str] = Counter()
    records = dict(done)
    stream = _documents(folder, sources, options, bad, dropped)
    todo = ((number, texts) for number, texts in enumerate(blocks(stream)) if number not in done)
    total = Progress(len(done), 0, 0)
    for number, encoded in engine.run(settings, todo):
        records[number] = _write(folder, number, encoded)
        total = replace(
            total,
            blocks=total.blocks + 1,
            documents=total.documents + encoded.counts["documents"],
            characters=total.characters + encoded.counts["characters"],
        )
        say(total)
    return [records[number] for number in sorted(records)], dropped


def _write(folder: Path, number: int, encoded: Encoded) -> dict[str, Any]:
    """The shards first, then the record that vouches for them."""
    record: dict[str, Any] = {"counts": dict(encoded.counts)}
    for part, shard in encoded.parts.items():
        record[part] = None
        if shard.documents:
            info = ShardInfo(
                file=f"{part}-{number:06d}.shard",
                documents=shard.documents,
                sentences=shard.sentences,
                pieces=shard.pieces,
                sha256=hashlib.sha256(shard.content).hexdigest(),
            )
            replace_file(folder / info.file, shard.content)
            record[part] = asdict(info)
    replace_file(_record(folder, number), json.dumps(record).encode())
    return record


def blocks(documents: Iterator[str]) -> Iterator[list[str]]:
    """Consecutive documents, at least BLOCK characters of them; borders follow from the text alone."""
    block: list[str] = []
    size = 0
    for text in documents:
        block.append(text)
        size += len(text)
        if size >= BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


def _documents(
    folder: Path, sources: Sequence[Source], options: BuildOptions, bad: Bad, dropped: Counter[str]
) -> Iterator[str]:
    """The texts, without what has been there before if that is asked for."""
    if options.drop_duplicates == "none":
        yield from read_documents(sources, options.column, bad)
        return
    whole, parts = Duplicates(folder / WORK), Duplicates(folder / WORK)
    for text in read_documents(sources, options.column, Bad(skip=options.skip_bad)):
        whole.add(text)
        for paragraph in paragraphs(text) if options.drop_duplicates != "documents" else ():
            parts.add(paragraph)
    whole.close()
    parts.close()
    number = 0
    for index, text in enumerate(read_documents(sources, options.column, bad)):
        lines = paragraphs(text)
        first, number = number, number + len(lines)
        if options.drop_duplicates != "paragraphs" and whole[index]:
            dropped["duplicate documents"] += 1
            continue
        if options.drop_duplicates != "documents":
            kept = [line for offset, line in enumerate(lines) if not parts[first + offset]]
            dropped["duplicate paragraphs"] += len(lines) - len(kept)
            if not kept:
                dropped["documents of duplicate paragraphs alone"] += 1
                continue
            text = "\n".join(kept)
        yield text
