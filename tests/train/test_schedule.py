"""Phases, rates and budgets, and the recipes that ship."""

import pytest
import torch

from litebert.model.heads import Network
from litebert.recipe import Phase, load_recipe, recipe_names
from litebert.train.growth import sources, with_layers
from litebert.train.objective import pretraining_heads
from litebert.train.schedule import rate_at, stage_at, stages, steps_in


def test_phases_share_the_steps_and_each_has_one_at_least():
    plan = stages([Phase(share=0.55), Phase(share=0.22), Phase(share=0.23)], 1000)
    assert [(stage.first, stage.end) for stage in plan] == [(0, 550), (550, 770), (770, 1000)]
    tiny = stages([Phase(share=1000), Phase(share=1), Phase(share=1)], 3)
    assert [(stage.first, stage.end) for stage in tiny] == [(0, 1), (1, 2), (2, 3)]
    assert stage_at(plan, 550).number == 1


def test_the_rate_rises_to_its_peak_and_falls_to_nothing():
    plan = stages([Phase(rate=2.0, warmup=100)], 1000)
    rates = [rate_at(plan, step) for step in range(1000)]
    assert max(rates) == 2.0
    assert rates[:100] == sorted(rates[:100])
    assert rates[100:] == sorted(rates[100:], reverse=True)
    assert rates[0] > 0
    assert rates[-1] == pytest.approx(2.0 / 900)


def test_a_rate_that_is_held_falls_only_after():
    plan = stages([Phase(rate=1.0, warmup=0.1)], 100)
    rates = [rate_at(plan, step, 0.75) for step in range(100)]
    assert rates[10:76] == [1.0] * 66
    assert rates[-1] == pytest.approx(1 / 25)


def test_each_phase_has_its_own_peak_and_may_warm_up_again():
    plan = stages([Phase(rate=1.0), Phase(rate=0.5, warmup=4)], 40)
    assert rate_at(plan, 19, 1.0) == 1.0
    assert [rate_at(plan, step, 1.0) for step in (20, 21, 23, 24)] == [0.125, 0.25, 0.5, 0.5]


def test_a_warm_up_longer_than_its_phase_takes_all_of_it():
    plan = stages([Phase(rate=1.0, warmup=50, share=1), Phase(rate=1.0, share=3)], 40)
    assert [rate_at(plan, step, 1.0) for step in (0, 4, 9, 10)] == [0.1, 0.5, 1.0, 1.0]


def test_a_budget_is_filled():
    phases = [Phase(share=0.5), Phase(share=0.5)]
    steps = steps_in(phases, [0.01, 0.03], 60)
    assert 0.01 * steps / 2 + 0.03 * steps / 2 == pytest.approx(60, rel=0.01)
    assert steps_in(phases, [100.0, 100.0], 1) == 2


@pytest.mark.parametrize("name", [name for name in recipe_names() if name.startswith("pretrain/")])
def test_every_recipe_has_phases_that_its_model_can_run(name):
    recipe = load_recipe(name)
    assert recipe.run.steps or recipe.run.budget_minutes
    with torch.device("meta"):
        for phase in recipe.phases:
            assert max(phase.lengths) <= recipe.model.positions
            Network(with_layers(recipe.model, phase.passes), pretraining_heads(recipe.model, recipe.data))


def test_the_papers_recipes_say_what_the_papers_say():
    albert = load_recipe("albert-base-v1")
    assert (albert.run.steps, albert.optimizer.kind, albert.optimizer.clip) == (125_000, "lamb", 1.0)
    assert albert.phases == (Phase(length=512, batch=4096, rate=0.00176, warmup=3125),)
    assert (albert.data.mask.ngram, albert.data.mask.unit, albert.data.objective) == (3, "word", "sop")
    assert load_recipe("albert-base") == load_recipe("albert-base-v2")
    assert load_recipe("albert-base-v2").run.steps == 10_000_000
    bert = load_recipe("bert-large")
    assert [(phase.length, phase.batch, phase.share) for phase in bert.phases] == [(128, 256, 9), (512, 256, 1)]
    assert (bert.data.objective, bert.phases[0].warmup, bert.run.steps) == ("nsp", 10_000, 1_000_000)
    roberta = load_recipe("roberta-base")
    assert (roberta.data.layout, roberta.data.objective) == ("full-sentences", "mlm")
    assert (roberta.phases[0].rate, roberta.optimizer.betas, roberta.optimizer.clip) == (5e-4, (0.9, 0.98), 0.0)
    grown = load_recipe("albert-base-20min")
    shapes = [(phase.passes, phase.length) for phase in grown.phases]
    assert shapes == [(3, 128), (6, 128), (12, 128), (12, 512), (12, 128)]


@pytest.mark.parametrize(
    ("model", "kind", "expected"),
    [
        ({"sharing": "none"}, "ffn", [0, 1, 0, 1, 0]),
        ({"sharing": "all"}, "ffn", [0]),
        ({"sharing": "attention"}, "attention", [0]),
        ({"sharing": "attention"}, "ffn", [0, 1, 0, 1, 0]),
        ({"sharing": "all", "groups": 2}, "attention", [0, 1]),
        ({"sharing": "none", "inner_groups": 2}, "ffn", [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]),
    ],
)
def test_new_layers_start_from_the_old_ones(model, kind, expected, small):
    old, new = small(layers=2, **model), small(layers=5, **model)
    found = sources(old, new)
    assert [found[kind, number] for number in range(len(expected))] == expected
    assert (kind, len(expected)) not in found
