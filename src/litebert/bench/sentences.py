"""`litebert bench sentences`: the splitter we use and others, if installed: megabytes a second, what is lost, German.

A splitter is lossless if its sentences, joined, are the text again but for white space. The German lines have eight
sentence ends among dates, abbreviations and ordinals that are none; a splitter is right if it finds just those.
"""

import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from litebert.config import UserError
from litebert.corpus.clean import paragraphs

GERMAN = [
    ["Am 3. Oktober 1990 wurde gefeiert.", "Das Wetter war gut."],
    ["Er wohnt z. B. in der Hauptstr. 5 in Köln.", "Sie nicht."],
    ["Prof. Dr. Müller kam um 18.30 Uhr.", "Alle warteten."],
    ["Der 2. Weltkrieg endete 1945.", "Danach begann der Wiederaufbau."],
]
Splitter = Callable[[str, str], list[str]]


def splitters() -> dict[str, Splitter]:
    found: dict[str, Splitter] = {}
    try:
        from sentencex import segment

        found["sentencex"] = lambda language, text: list(segment(language, text))
    except ImportError:
        pass
    try:
        import blingfire

        found["blingfire"] = lambda _, text: blingfire.text_to_sentences(text).split("\n")
    except ImportError:
        pass
    try:
        import pysbd

        made = {language: pysbd.Segmenter(language=language, clean=False) for language in ("en", "de")}
        found["pysbd"] = lambda language, text: list(made[language].segment(text))
    except ImportError:
        pass
    return found


def bench_sentences(
    texts: Iterable[str], most: int = 2000, budget: float = 10.0, say: Callable[[str], object] = lambda _: None
) -> dict[str, Any]:
    """A row a splitter; a slow one is stopped after `budget` seconds and rated on what it got through."""
    sample = list(islice((line for text in texts for line in paragraphs(text)), most))
    if not sample:
        raise UserError("no text to measure on; give a file with some")
    rows = []
    for name, split in splitters().items():
        say(name)
        size, lost, start = 0, 0, time.perf_counter()
        for text in sample:
            sentences = split("en", text)
            lost += "".join("".join(sentences).split()) != "".join(text.split())
            size += len(text.encode())
            if time.perf_counter() - start > budget:
                break
        taken = time.perf_counter() - start
        german = sum([part.strip() for part in split("de", " ".join(line))] == line for line in GERMAN)
        rows.append(
            {"splitter": name, "mb_per_second": size / 1e6 / taken, "texts_not_lossless": lost, "german_right": german}
        )
    return {"bench": "sentences", "texts": len(sample), "german_lines": len(GERMAN), "rows": rows}
