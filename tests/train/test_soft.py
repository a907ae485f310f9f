"""Soft targets: the loss and its slope, which is not left to autograd, are those of the definition."""

import pytest
import torch
import torch.nn.functional as F

from litebert.config import HeadConfig
from litebert.model.weights import build
from litebert.train import soft
from litebert.train.soft import soft_targets


@pytest.fixture
def two(small):
    """A student and a teacher, in float64."""
    return [build(small(family, vocab_size=50), [HeadConfig(kind="mlm")], 7).double() for family in ("albert", "bert")]


@pytest.mark.parametrize("at_once", [3, 4096])
@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_loss_and_every_gradient_are_those_of_autograd(two, at_once, temperature, monkeypatch):
    monkeypatch.setattr(soft, "AT_ONCE", at_once)
    student, teacher = two
    mine, theirs = (torch.randn(9, net.config.hidden_size, dtype=torch.float64) for net in two)
    where = torch.tensor([0, 2, 3, 4, 5, 6, 8])

    def plain(states):
        guess, target = (
            F.log_softmax(net.heads["mlm"](each[where], net.encoder.embeddings.words.weight) / temperature, -1)
            for net, each in ((student, states), (teacher, theirs))
        )
        return F.kl_div(guess, target.detach(), log_target=True, reduction="sum") * temperature**2

    def ours(states):
        return soft_targets(student, teacher, states, theirs, where, temperature)

    found = []
    for way in (plain, ours):
        student.zero_grad()
        states = mine.clone().requires_grad_()
        loss = way(states)
        (3 * loss).backward()
        slopes = {name: weight.grad for name, weight in student.named_parameters() if weight.grad is not None}
        found.append((loss.detach(), states.grad, slopes))
    (loss, states, slopes), (loss_ours, states_ours, slopes_ours) = found
    assert loss > 0
    torch.testing.assert_close(loss_ours, loss)
    torch.testing.assert_close(states_ours, states)
    assert slopes.keys() == slopes_ours.keys()
    assert {"heads.mlm.bias", "heads.mlm.dense.weight", "encoder.embeddings.words.weight"} <= slopes.keys()
    for name, slope in slopes.items():
        torch.testing.assert_close(slopes_ours[name], slope)
    assert all(weight.grad is None for weight in teacher.parameters())


def test_in_bf16_the_weight_of_the_loss_is_not_rounded(two):
    """One over thousands of pieces has more digits than bf16."""
    torch.manual_seed(0)
    student, teacher = (net.bfloat16() for net in two)
    mine, theirs = (torch.randn(256, net.config.hidden_size, dtype=torch.bfloat16) for net in (student, teacher))
    slopes = []
    for weight in (1.0, 1 / 31_001):
        states = mine.clone().requires_grad_()
        (soft_targets(student, teacher, states, theirs, torch.arange(256), 2.0) * weight).backward()
        slopes.append(states.grad.double().norm().item() / weight)
    assert slopes[1] == pytest.approx(slopes[0], rel=1e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_compiled_on_a_gpu_it_is_the_same():
    mine, theirs = torch.randn(2, 5, 40, device="cuda")
    for whole, quick in zip(
        soft.compared(mine, theirs, 2.0), torch.compile(soft.compared, dynamic=True)(mine, theirs, 2.0), strict=True
    ):
        torch.testing.assert_close(whole, quick)
