"""SQuAD's questions as windows: answers come back as the passage writes them, and each piece has one speaker."""

import json
from dataclasses import replace

import pytest

from litebert.config import UserError
from litebert.tasks.example import Answer, Example
from litebert.tasks.metrics import normalise_answer
from litebert.tasks.squad import NO_ANSWER, answer_text, read_squad, windows
from litebert.text.tokenizer import Tokenizer
from tests.corpus.conftest import tokenizer

__all__ = ["tokenizer"]

PASSAGE = "The Café Müller opened in 1,987 near the old harbour. It was “famous” for its soup; nobody knew why."


def example(answer=None, passage=PASSAGE, question="When did it open?"):
    target = () if answer is None else (Answer(answer, passage.index(answer)),)
    return Example(key="1", texts=(question, passage), target=target, where="f, question 1")


@pytest.mark.parametrize("name", ["albert-spiece.model", "bert-base-uncased-vocab.txt", "gpt2-tokenizer.json"])
def test_real_answers_survive_windows_and_offsets(name, data):
    """For at least 99.5 % of the questions a gold span comes back equal to a gold answer; every fifth one here."""
    loaded = Tokenizer.load(data / "tokenizers" / name)
    questions = list(read_squad(data / "squad" / "dev-v1.1.json.xz"))
    assert len(questions) == 10570
    kept = 0
    for question in questions[::5]:
        golds = {normalise_answer(answer.text) for answer in question.target}
        kept += any(
            normalise_answer(answer_text(question.texts[1], window, window.start, window.end)) in golds
            for answer in dict.fromkeys(question.target)
            for window in windows(loaded, replace(question, target=(answer,)))
            if window.start != NO_ANSWER
        )
    assert kept >= 0.995 * len(questions[::5])


def test_questions_without_an_answer_have_none(data):
    questions = list(read_squad(data / "squad" / "dev-v2.0.json.xz"))
    assert len(questions) == 11873
    assert sum(not question.target for question in questions) == 5945


@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "bpe"])
@pytest.mark.parametrize("answer", ["1,987", "Café Müller", "“famous”", "soup", "The"])
def test_an_answer_is_cut_from_the_original_text(kind, answer, tokenizer):
    (window,) = windows(tokenizer(kind, "en"), example(answer), length=384)
    found = answer_text(PASSAGE, window, window.start, window.end)
    assert answer in found
    assert len(found) <= len(answer) + 2  # whole pieces: a quotation mark may stick


@pytest.mark.parametrize("stride", [5, 16, 1000])
def test_windows_cover_the_passage_and_each_piece_has_one_speaker(stride, tokenizer):
    made = tokenizer("unigram", "en")
    found = windows(made, example("soup"), length=64, stride=stride)
    assert len(found) > 1
    assert all(len(window.input_ids) <= 64 for window in found)
    whole = windows(made, example("soup"), length=512)[0].offsets
    seen = [(span, speaks) for window in found for span, speaks in zip(window.offsets, window.spoken, strict=True)]
    assert {span for span, _ in seen} == set(whole)
    for span in set(whole):
        if whole.count(span) == 1:
            assert sum(speaks for other, speaks in seen if other == span) == 1
    holds = [window for window in found if window.start != NO_ANSWER]
    assert holds
    assert all("soup" in answer_text(PASSAGE, window, window.start, window.end) for window in holds)
    without = [window for window in found if window.start == NO_ANSWER]
    assert all(window.end == NO_ANSWER for window in without)


def test_the_speaker_has_the_most_context(tokenizer):
    """As the original scripts decide: the smaller side, plus a hundredth of the window's length."""
    found = windows(tokenizer("unigram", "en"), example(), length=64, stride=10)
    starts = [number * 10 for number in range(len(found))]
    sizes = [len(window.offsets) for window in found]
    for number, window in enumerate(found):
        for inside, speaks in enumerate(window.spoken):
            piece = starts[number] + inside
            scores = [
                min(piece - start, start + size - 1 - piece) + 0.01 * size if start <= piece < start + size else -1
                for start, size in zip(starts, sizes, strict=True)
            ]
            assert speaks == (scores.index(max(scores)) == number)


def test_types_specials_and_where_an_answer_may_be(tokenizer):
    made = tokenizer("wordpiece", "en")
    (window,) = windows(made, example("soup"))
    ids = window.input_ids
    assert (ids[0], ids[-1]) == (made.cls_id, made.sep_id)
    assert ids[window.first - 1] == made.sep_id
    assert window.token_type_ids.tolist() == [0] * window.first + [1] * (len(ids) - window.first)
    assert [at for at, yes in enumerate(window.allowed) if yes] == [0, *range(window.first, len(ids) - 1)]


def test_a_long_question_is_cut(tokenizer):
    made = tokenizer("unigram", "en")
    long = example("soup", question="why " * 300)
    assert windows(made, long, length=384)[0].first == 64 + 2
    with pytest.raises(UserError, match="f, question 1: a question of 64 pieces leaves no room for its passage in 60"):
        windows(made, long, length=60)


@pytest.mark.parametrize("content", ["{", "[]", '{"data": [{"paragraphs": [{"qas": [{"id": 1}]}]}]}', '{"data": 3}'])
def test_a_file_that_is_not_squads_is_one_line(content, tmp_path):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(UserError, match="is not a SQuAD file"):
        list(read_squad(tmp_path / "a.json"))


def test_what_the_file_says_is_what_is_read(tmp_path):
    question = {"id": "q", "question": " Who? ", "answers": [{"text": "b", "answer_start": 2}], "is_impossible": False}
    impossible = {"id": "r", "question": "When?", "answers": [], "plausible_answers": [], "is_impossible": True}
    file = {"version": "v2.0", "data": [{"paragraphs": [{"context": "a b c", "qas": [question, impossible]}]}]}
    (tmp_path / "a.json").write_text(json.dumps(file))
    first, second = read_squad(tmp_path / "a.json")
    assert (first.key, first.texts, first.target) == ("q", ("Who?", "a b c"), (Answer("b", 2),))
    assert second.target == ()
