"""Settings: presets, recipes, `--set`, and one line for each mistake."""

import tomllib
from dataclasses import fields

import pytest

from litebert.config import PRESETS, ModelConfig, UserError, preset
from litebert.model.heads import Network
from litebert.recipe import TuneRecipe, apply_sets, load_recipe, recipe_names
from litebert.strict import parse, to_toml

NAN = float("nan")


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_builds(name):
    import torch

    with torch.device("meta"):
        network = Network(PRESETS[name])
    assert len(network.encoder.trunk.plan) == PRESETS[name].depth


def test_the_presets_are_the_family():
    sizes = ("base", "large", "xlarge", "xxlarge")
    for size in sizes:
        assert PRESETS[f"albert-{size}"] == PRESETS[f"albert-{size}-v2"]
        v1, v2 = PRESETS[f"albert-{size}-v1"], PRESETS[f"albert-{size}-v2"]
        assert (v1.activation, v2.activation) == ("gelu", "gelu_tanh")
        assert v2.dropout == v2.attention_dropout == 0
        assert v1.dropout == v1.attention_dropout == (0.0 if size == "xxlarge" else 0.1)
    others = {"bert-base", "bert-large", "bert-xlarge", "roberta-base", "roberta-large", "distilbert-base"}
    assert others | {"distilroberta-base", "albert-tiny", "albert-small"} <= set(PRESETS)


@pytest.mark.parametrize("name", [name for name in recipe_names() if name.startswith("pretrain/")])
def test_every_shipped_recipe_parses_and_builds(name):
    import torch

    with torch.device("meta"):
        Network(load_recipe(name).model)
    assert load_recipe(name.split("/")[1]) == load_recipe(name)


def test_a_recipe_is_found_by_path_and_changed_by_set(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[model]\npreset = "albert-base"\nlayers = 3\nsharing = "ffn"\n')
    recipe = load_recipe(str(file), ["model.layers=5", "model.activation=relu", "model.dropout=0"])
    assert (recipe.model.layers, recipe.model.sharing, recipe.model.activation) == (5, "ffn", "relu")
    assert recipe.model.dropout == 0.0
    assert isinstance(recipe.model.dropout, float)
    assert recipe.model.hidden_size == 768


def test_a_phase_masks_what_the_data_section_says_unless_it_says_otherwise(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(
        '[model]\npreset = "albert-tiny"\n[data.mask]\nrate = 0.2\n[[phases]]\nmask_rate = 0.3\n[[phases]]\n'
    )
    recipe = load_recipe(str(file))
    assert [recipe.examples(phase).mask.rate for phase in recipe.phases] == [0.3, 0.2]


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ({"heds": 12}, "unknown key 'heds' in [model]; did you mean 'heads'?"),
        ({"zzz": 12}, "unknown key 'zzz' in [model]; allowed: family, vocab_size"),
        ({"layers": "twelve"}, "model.layers takes a whole number, not 'twelve'"),
        ({"layers": True}, "model.layers takes a whole number, not True"),
        ({"layers": 2.5}, "model.layers takes a whole number, not 2.5"),
        ({"dropout": "no"}, "model.dropout takes a number, not 'no'"),
        ({"pooler": 1}, "model.pooler takes true or false, not 1"),
        ({"sharing": "al"}, "model.sharing = 'al'; did you mean 'all'?"),
        ({"sharing": "zz"}, "model.sharing = 'zz'; allowed: none, attention, ffn, all"),
        ({"preset": "albert-bsae"}, "unknown preset 'albert-bsae'; did you mean 'albert-base'?"),
        ({"preset": 3}, "preset takes a name, not 3"),
        ({"heads": 7}, "[model]: hidden_size = 768 does not divide into heads = 7; the nearest is 6"),
        ({"groups": 13}, "[model]: groups = 13 is more than layers = 12; each group needs a layer"),
        ({"sharing": "none", "groups": 2}, "[model]: groups = 2 says nothing with sharing = 'none'"),
        ({"layers": 0}, "[model]: layers = 0 must be at least 1"),
        ({"dropout": 1}, "[model]: dropout = 1.0 must be at least 0 and below 1"),
        ({"norm_eps": 0}, "[model]: norm_eps = 0.0 must be above 0"),
        ({"pad_id": 30000}, "[model]: pad_id = 30000 is outside the vocabulary of 30000 pieces"),
    ],
)
def test_a_mistake_in_a_recipe_is_one_line_with_the_remedy(model, sentence):
    with pytest.raises(UserError) as problem:
        apply_sets({"model": model}, [])
    assert str(problem.value).startswith(sentence)
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize(
    ("sets", "sentence"),
    [
        (["model.layers"], "--set 'model.layers' is not section.key=value"),
        (["=3"], "--set '=3' is not section.key=value"),
        (["model.layers.more=3", "model.layers=4"], "model.layers takes a whole number"),
        (["modle.layers=3"], "unknown key 'modle' in the recipe; did you mean 'model'?"),
        (["model.preset.x=1"], "--set 'model.preset.x=1': preset is a value, not a section"),
    ],
)
def test_a_mistake_in_set_is_one_line(sets, sentence):
    with pytest.raises(UserError) as problem:
        apply_sets({"model": {"preset": "albert-base"}}, sets[:1])
    assert str(problem.value).startswith(sentence)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("cpu-dmeo", "no recipe 'cpu-dmeo'; did you mean 'cpu-demo'?"),
        ("nowhere.toml", "no recipe file nowhere.toml; the recipes by name: "),
    ],
)
def test_a_recipe_that_is_not_there_names_its_neighbour(name, sentence):
    with pytest.raises(UserError) as problem:
        load_recipe(name)
    assert str(problem.value).startswith(sentence)


@pytest.mark.parametrize(("content", "sentence"), [(b"[model", "is not TOML"), (b"\xff", "cannot read the recipe")])
def test_a_recipe_that_cannot_be_read_is_one_line(content, sentence, tmp_path):
    (tmp_path / "bad.toml").write_bytes(content)
    with pytest.raises(UserError, match=sentence):
        load_recipe(str(tmp_path / "bad.toml"))


def test_a_recipe_without_a_model_says_so():
    with pytest.raises(UserError, match="the recipe lacks 'model'"):
        apply_sets({}, [])
    with pytest.raises(UserError, match=r"model is a section, \[model\], not 3"):
        apply_sets({"model": 3}, [])


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"sharing": "al"}, "sharing = 'al'; did you mean 'all'?"),
        ({"projection": "never"}, "projection = 'never'; allowed: where-needed, always"),
        ({"activation": "mish"}, "activation = 'mish'; allowed: gelu"),
        ({"layers": "3"}, "layers takes a whole number, not '3'"),
        ({"layers": 2.5}, "layers takes a whole number, not 2.5"),
        ({"token_types": 2**62}, "token_types = 4611686018427387904 is more than"),
    ],
)
def test_settings_made_in_python_are_held_to_the_same(values, sentence):
    with pytest.raises(UserError) as problem:
        ModelConfig(**values)
    assert str(problem.value).startswith(sentence)


@pytest.mark.parametrize(
    "change",
    [
        {"optimizer": {"weight_decay": NAN}},
        {"optimizer": {"betas": [0.9, NAN]}},
        {"tune": {"epochs": NAN}},
        {"tune": {"warmup": NAN}},
        {"tune": {"rate": NAN}},
        {"tune": {"rate": float("inf")}},
        {"tune": {"rate": 10**400}},
    ],
    ids=lambda change: f"{change}"[:40],
)
def test_a_number_that_is_none_is_refused(change):
    with pytest.raises(UserError, match=r"takes a number, not (nan|inf|one so large)$"):
        parse(TuneRecipe, {"model": "m"} | change)
    with pytest.raises(UserError, match=r"run\.budget_minutes takes a number, not nan"):
        load_recipe("cpu-demo", ["run.steps=0", "run.budget_minutes=nan"])


@pytest.mark.parametrize("seed", [-1, 1 << 63, 10**23])
def test_a_seed_that_no_generator_takes_is_refused(seed):
    said = rf"seed = {seed} must be a whole number from 0 to 2\*\*63 - 1"
    for change in ({"tune": {"seed": seed}}, {"task": {"split_seed": seed}}):
        with pytest.raises(UserError, match=said):
            parse(TuneRecipe, {"model": "m"} | change)
    with pytest.raises(UserError, match=said):
        load_recipe("cpu-demo", [f"run.seed={seed}"])


@pytest.mark.parametrize(
    "name", ["runs/😀", 'a "quoted" one', "back\\slash\\u0041", "\x00\b\t\n\r\x1f\x7f\x85\u2028", "naïve"]
)
def test_a_recipe_is_written_as_it_is_read(name):
    tuned = parse(TuneRecipe, {"model": name, "task": {"train": name, "texts": [name, "plain"]}})
    assert parse(TuneRecipe, tomllib.loads(to_toml(tuned))) == tuned
    recipe = apply_sets({"model": {"preset": "albert-base"}, "data": {"shards": name}}, ["optimizer.eps=1e-9"])
    assert apply_sets(tomllib.loads(to_toml(recipe)), []) == recipe


def test_a_path_that_is_not_utf8_is_one_line():
    with pytest.raises(
        UserError, match=r"^'caf\\udce9' is not UTF-8, and a recipe is; give the file or folder another"
    ):
        to_toml(parse(TuneRecipe, {"model": "caf\udce9"}))


FLIPS = {
    "family": "bert",
    "vocab_size": 98,
    "embedding_size": 32,
    "hidden_size": 64,
    "ffn_size": 40,
    "layers": 3,
    "heads": 2,
    "sharing": "ffn",
    "groups": 2,
    "inner_groups": 2,
    "positions": 39,
    "position_offset": 1,
    "token_types": 1,
    "activation": "relu",
    "norm_eps": 1e-2,
    "dropout": 0.3,
    "attention_dropout": 0.3,
    "projection": "always",
    "pooler": False,
    "causal": True,
    "pad_id": 7,
    "init_std": 0.1,
}


@pytest.mark.parametrize("name", [field.name for field in fields(ModelConfig)])
def test_flipping_any_setting_of_a_model_changes_what_it_is_or_what_it_answers(name, small):
    import torch

    from litebert.config import HeadConfig
    from litebert.model.weights import build

    base = {"pad_id": {"position_offset": 1}, "projection": {"embedding_size": 32}}.get(name, {})
    heads = [] if name == "pooler" else [HeadConfig(kind="mlm")]
    if name == "family":  # the families differ in their heads
        base = {"embedding_size": 32, "pooler": False, "family": "roberta", "activation": "relu"}
    ids = torch.tensor([[2, 7, 9, 11, 3], [2, 9, 7, 3, 0]])
    seen = []
    for values in (base, base | {name: FLIPS[name]}):
        network = build(small(**({"family": "albert"} | values)), heads, seed=1).train()
        torch.manual_seed(0)
        state = network.encoder(ids, (ids != 0).long())
        extra = network(ids)["mlm"] if heads else state
        seen.append(({n: tuple(p.shape) for n, p in network.state_dict().items()}, state, extra))
    changed = (
        seen[0][0] != seen[1][0] or not torch.equal(seen[0][1], seen[1][1]) or not torch.equal(seen[0][2], seen[1][2])
    )
    assert changed, f"{name} does nothing"


def test_configs_are_values():
    assert preset("albert-base") == parse(ModelConfig, {"preset": "albert-base"})
    with pytest.raises(AttributeError):
        preset("albert-base").layers = 3  # type: ignore[misc]
