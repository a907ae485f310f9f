"""The served answer is the local answer, for every kind of head, alone or among others; every option is read."""

import json
import random
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from litebert.infer.ask import answer_many, choose_many
from litebert.serve.bodies import replies
from tests.serve.conftest import HEADS
from tests.toys import WORDS

TEXTS = ["the film was fine .", "a book by ann , of london", "who wrote it ?"]
MASKED = ["the [MASK] was [MASK] .", "a [MASK]"]
PASSAGE = "the book was by ann in london and the film was by bob ."
LOCAL = {  # name of the model: what is asked over HTTP, and the same from Python
    "filler": ("fill", {"texts": MASKED}, lambda model: [
        [[asdict(guess) for guess in mask] for mask in model.fill(text)] for text in MASKED]),
    "classify": ("classify", {"texts": [*TEXTS, ["a", "film"]]}, lambda model: model.classify([*TEXTS, ("a", "film")])),
    "several": ("classify", {"texts": TEXTS}, lambda model: model.classify(TEXTS)),
    "regress": ("classify", {"texts": TEXTS}, lambda model: model.classify(TEXTS)),
    "tag": ("tag", {"texts": [TEXTS[0], ["ann", "went", "to", "rome"]]}, lambda model: model.tag(
        [TEXTS[0], ["ann", "went", "to", "rome"]])),
    "answer": ("answer", {"question": "who wrote it ?", "passage": PASSAGE}, lambda model: [
        model.answer("who wrote it ?", PASSAGE)]),
    "unsure": ("answer", {"question": "who wrote it ?", "passage": PASSAGE}, lambda model: [
        model.answer("who wrote it ?", PASSAGE)]),
    "choice": ("choose", {"passage": PASSAGE, "options": ["ann", "bob", "eve"]}, lambda model: [
        model.choose(PASSAGE, ["ann", "bob", "eve"])]),
}  # fmt: skip


def close(mine, theirs):
    """Equal, numbers up to float noise."""
    if isinstance(mine, dict):
        return mine.keys() == theirs.keys() and all(close(mine[key], theirs[key]) for key in mine)
    if isinstance(mine, list | tuple):
        return len(mine) == len(theirs) and all(close(a, b) for a, b in zip(mine, theirs, strict=True))
    return mine == (pytest.approx(theirs, abs=2e-5) if isinstance(theirs, float) else theirs)


def local(model, ask):
    said = ask(model)
    return [asdict(each) if not isinstance(each, list) else each for each in said]


@pytest.mark.parametrize("name", list(HEADS))
def test_the_served_answer_is_the_local_answer(name, here, models):
    ask, body, mine = LOCAL[name]
    found = here().ask(ask, model=name, **body)
    assert found.status_code == 200, found.text
    assert found.json()["model"] == name
    assert close(found.json()["answers"], local(models[name], mine))


@pytest.mark.parametrize("pool", ["mean", "first", "pooler"])
def test_served_vectors_are_the_local_vectors(pool, here, models):
    found = here().ask("embed", model="filler", texts=TEXTS, pool=pool, normalise=True).json()["answers"]
    assert np.allclose(found, models["filler"].embed(TEXTS, pool, normalise=True), atol=1e-5)


def test_many_at_once_get_what_each_gets_alone(here, models):
    """Batched with requests of other lengths, models, questions and options, no answer changes."""
    rng = random.Random(0)
    asks = []
    for _ in range(60):
        text = " ".join(rng.choice(WORDS[:30]) for _ in range(rng.randint(1, 40)))
        name = rng.choice(["classify", "several", "regress"])
        asks.append(("classify", {"model": name, "texts": [text, "a film"], "passes": rng.choice([None, 1, 4])}))
        asks.append(("answer", {"model": "answer", "question": "who ?", "passage": text}))
        asks.append(("fill", {"texts": [f"{text} [MASK]"], "top": 3}))
        asks.append(("choose", {"passage": text, "options": ["a film", text, "fine"][: rng.randint(2, 3)]}))
    server = here(pieces=300, wait=20, per_client=0)
    together = server.at_once(asks)
    items = server.get("/metrics").text
    batches = float(
        next(line for line in items.splitlines() if line.startswith("litebert_batch_items_count")).split()[1]
    )
    assert batches < 0.7 * len(asks), "nothing was batched, so this shows nothing"
    for (ask, body), found in zip(asks, together, strict=True):
        assert found.status_code == 200
        model = models[found.json()["model"]]
        if ask == "classify":
            mine = [asdict(each) for each in model.classify(body["texts"], passes=body["passes"])]
        elif ask == "answer":
            mine = [asdict(each) for each in answer_many(model, [(body["question"], body["passage"])])]
        elif ask == "choose":
            mine = [asdict(each) for each in choose_many(model, [(body["passage"], *body["options"])])]
        else:
            mine = [[[asdict(guess) for guess in mask] for mask in model.fill(body["texts"][0], 3)]]
        assert close(found.json()["answers"], mine)


def test_one_bad_text_among_many_spoils_no_other(here):
    server = here(wait=20)
    asks = (
        [("fill", {"texts": ["the [MASK]"]})] * 5
        + [("fill", {"texts": ["no mask"]})]
        + [("fill", {"texts": ["a [MASK]"]})] * 5
    )
    codes = [found.status_code for found in server.at_once(asks)]
    assert codes == [200] * 5 + [422] + [200] * 5


@pytest.mark.parametrize(("ask", "body", "change"), [
    ("fill", {"texts": ["the [MASK]"]}, {"top": 2}),
    ("fill", {"texts": ["the [MASK]"]}, {"passes": 1}),
    ("classify", {"model": "classify", "texts": TEXTS}, {"passes": 1}),
    ("classify", {"model": "classify", "texts": TEXTS}, {"settle": 0.9}),
    ("classify", {"model": "classify", "texts": TEXTS, "settle": 0.9}, {"from_passes": 3}),
    ("classify", {"model": "classify", "texts": TEXTS}, {"model": "several"}),
    ("tag", {"texts": ["ann went to rome", "in london"]}, {"passes": 1}),
    ("answer", {"question": "who ?", "passage": PASSAGE}, {"passes": 1}),
    ("answer", {"question": "who ?", "passage": PASSAGE}, {"model": "unsure"}),
    ("choose", {"passage": PASSAGE, "options": ["ann", "bob"]}, {"passes": 1}),
    ("choose", {"passage": PASSAGE, "options": ["ann", "bob"]}, {"settle": 0.9}),
    ("embed", {"texts": TEXTS}, {"pool": "first"}),
    ("embed", {"texts": TEXTS}, {"layers": "sum2"}),
    ("embed", {"texts": TEXTS}, {"length": 8}),
    ("embed", {"texts": TEXTS}, {"normalise": True}),
    ("embed", {"texts": TEXTS}, {"passes": 2}),
    ("look", {"text": "the film"}, {"layer": 1}),
    ("look", {"text": "the film"}, {"head": 2}),
    ("look", {"text": "the film"}, {"passes": 2}),
])  # fmt: skip
def test_every_option_of_a_request_changes_its_answer(ask, body, change, here):
    server = here()
    plain, changed = server.ask(ask, **body), server.ask(ask, **{**body, **change})
    assert plain.status_code == changed.status_code == 200, changed.text
    assert plain.json() != changed.json()


def test_pieces_say_where_they_stand(here, models):
    text = "The films, unheard-of"
    (found,) = here().ask("pieces", texts=[text]).json()["answers"]
    assert [each["piece"] for each in found][:4] == ["[CLS]", "the", "film", "##s"]
    assert [text[each["start"] : each["end"]] for each in found[1:4]] == ["The", "film", "s"]
    assert [each["special"] for each in found] == [True, *[False] * (len(found) - 2), True]


def test_pictures_are_the_models_own_numbers(here, models):
    import torch

    from litebert.model.encoder import attention_maps

    model = models["filler"]
    (found,) = here().ask("look", model="filler", text="the film was fine", layer=2).json()["answers"]
    ids = torch.tensor([model.tokenizer.encode("the film was fine").input_ids])
    maps = attention_maps(model.encoder, ids)
    assert np.allclose(found["attention"], maps[1][0].mean(0).detach(), atol=1e-4)
    states = torch.cat(model.encoder.hidden_states(ids))
    alike = torch.cosine_similarity(states[:, None], states[None], dim=-1).mean(-1)
    assert np.allclose(found["similarity"], alike.detach(), atol=1e-4)
    assert (found["layers"], found["heads"], len(found["pieces"])) == (4, 4, 6)
    (cut,) = here().ask("look", model="filler", text="the film " * 200).json()["answers"]
    assert (len(cut["pieces"]), cut["lost"]) == (64, 402 - 64)


def test_models_are_known_by_name_and_by_what_they_can(here):
    server = here()
    about = {each["name"]: each for each in server.get("/v1/models").json()["models"]}
    assert set(about) == set(HEADS)
    assert about["filler"]["asks"] == ["fill", "embed", "pieces", "look"]
    assert about["tag"]["asks"] == ["tag", "embed", "pieces", "look"]
    assert (about["classify"]["labels"], about["classify"]["dial"], about["classify"]["layers"]) == (
        ["bad", "good"],
        True,
        4,
    )
    assert server.ask("fill", texts=["a [MASK]"]).json()["model"] == "filler"
    assert server.ask("classify", texts=["a"]).json()["model"] == "classify"  # the first that can
    for body, status, words in (
        ({"model": "nobody", "texts": ["a"]}, 404, "no model 'nobody'; there are: filler, classify"),
        (
            {"model": "tag", "texts": ["a"]},
            422,
            "tag has no head to classify; those that have: classify, several, regress",
        ),
    ):
        found = server.ask("classify", **body)
        assert found.status_code == status
        assert words in found.json()["error"]["message"]


def test_only_what_some_model_can_is_offered(here, models):
    paths = json.loads(here(served={"filler": models["filler"]}).get("/openapi.json").text)["paths"]
    assert {path for path in paths if path.startswith("/v1/")} == {
        "/v1/fill", "/v1/embed", "/v1/pieces", "/v1/look", "/v1/models"}  # fmt: skip


@pytest.mark.parametrize(("ask", "body"), [
    ("fill", {"texts": ["a [MASK]"]}),
    ("tag", {"texts": ["a film"]}),
    ("answer", {"question": "who ?", "passage": PASSAGE}),
    ("choose", {"passage": PASSAGE, "options": ["ann", "bob"]}),
])  # fmt: skip
def test_what_no_model_can_is_refused_with_what_they_can(ask, body, here, models):
    server = here(served={"mine": models["classify"], "other": models["regress"]})
    for name in (None, "mine"):
        found = server.ask(ask, model=name, **body)
        assert (found.status_code, found.json()["error"]["code"]) == (422, "wrong_model")
        assert found.json()["error"]["message"] == (
            f"no model here has a head to {ask}; there are, and can be asked: "
            "mine (classify, embed, pieces, look); other (classify, embed, pieces, look)"
        )
    assert server.ask(ask, model="nobody", **body).json()["error"]["code"] == "no_such_model"


def test_served_tags_come_with_their_words(here, models):
    text = "Ann went to Rome."
    reply = here().ask("tag", model="tag", texts=[text]).json()
    replies()["tag"].model_validate(reply)  # what OpenAPI says of it
    (found,) = reply["answers"]
    assert [word["text"] for word in found["words"]] == ["Ann", "went", "to", "Rome", "."]
    assert [text[word["start"] : word["end"]] for word in found["words"]] == [word["text"] for word in found["words"]]
    assert [word["tag"] for word in found["words"]] == found["value"]
    assert len(found["entities"]) == found["value"].count("B-LOC")


def test_what_the_documentation_says_to_send_is_answered(here):
    page = (Path(__file__).parents[2] / "docs/serving.md").read_text()
    found = re.findall(r"^curl localhost:8000(/\S+) +-H '(\S+): (\S+)' -d '(.*)'$", page, re.MULTILINE)
    assert len(found) == 3
    for path, header, value, body in found:
        reply = here().send("POST", path, content=body.encode(), headers={header: value})
        assert reply.status_code == 200, reply.text
    snippet = re.search(r"server\.post\(\"(/\S+)\", json=(\{.*?\})\)", page)
    body = json.loads(snippet[2]) | {"model": "classify", "passes": 3}  # ours have another name, and fewer layers
    assert here().send("POST", snippet[1], json=body).json()["answers"][0]["value"] in ("bad", "good")


def test_a_precision_decides_how_the_models_answer(here, folders, models):
    from litebert.infer.model import load
    from litebert.serve.models import load_all

    text = "the film was fine ."
    quick = here(served=load_all([str(folders["classify"])], "cpu", "int8"))
    served = quick.ask("classify", texts=[text]).json()["answers"][0]["probabilities"]
    assert served == pytest.approx(
        load(folders["classify"], precision="int8").classify([text])[0].probabilities, abs=1e-6
    )
    exact = models["classify"].classify([text])[0].probabilities
    assert served == pytest.approx(exact, abs=0.1)
    assert served != pytest.approx(exact, abs=1e-7)
    refused = quick.ask("look", text=text)
    assert refused.status_code == 422
    assert "without a precision" in refused.json()["error"]["message"]
