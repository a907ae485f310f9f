"""The family in one page: input_ids -> hidden states.

BERT is `sharing="none"`, ALBERT is `sharing="all"`, and every row of the sharing ablation lies between. All of them are
the same trunk walking another plan, and a weight that several layers share exists once.

>>> from litebert.config import PRESETS
>>> for name in ("albert-tiny", "bert-tiny"):
...     encoder = Encoder(PRESETS[name])
...     states = encoder(torch.tensor([[2, 17, 3]]))
...     print(name, tuple(states.shape), tuple(encoder.pool(states).shape))
albert-tiny (1, 3, 128) (1, 128)
bert-tiny (1, 3, 128) (1, 128)
"""

import torch
from torch import Tensor, nn

from litebert.config import ModelConfig, Sharing, UserError
from litebert.model.layers import Embeddings, FeedForward, Linear, SelfAttention, initialise
from litebert.model.packing import Boundaries, Mask, first_piece, visible

Plan = list[tuple[int, int]]


def sharing_plan(layers: int, sharing: Sharing, groups: int = 1, inner: int = 1) -> Plan:
    """Which attention and which feed-forward runs at each layer.

    >>> sharing_plan(4, "none")
    [(0, 0), (1, 1), (2, 2), (3, 3)]
    >>> sharing_plan(4, "attention")
    [(0, 0), (0, 1), (0, 2), (0, 3)]
    >>> sharing_plan(4, "all", groups=2)
    [(0, 0), (0, 0), (1, 1), (1, 1)]
    >>> sharing_plan(2, "all", inner=2)
    [(0, 0), (1, 1), (0, 0), (1, 1)]
    """
    plan = []
    for layer in range(layers):
        for block in range(inner):
            own, shared = layer * inner + block, layer * groups // layers * inner + block
            attention = shared if sharing in ("attention", "all") else own
            ffn = shared if sharing in ("ffn", "all") else own
            plan.append((attention, ffn))
    return plan


def plan_of(config: ModelConfig) -> Plan:
    return sharing_plan(config.layers, config.sharing, config.groups, config.inner_groups)


class Trunk(nn.Module):
    """The stack of layers: a plan, and as many attentions and feed-forwards as it names."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.plan = plan_of(config)
        self.one_pass = self.plan[: config.inner_groups] if config.one_layer else None
        c, attentions, ffns = config, {a for a, _ in self.plan}, {f for _, f in self.plan}
        self.attention = nn.ModuleList(
            SelfAttention(c.hidden_size, c.heads, c.dropout, c.attention_dropout, c.norm_eps) for _ in attentions
        )
        self.ffn = nn.ModuleList(
            FeedForward(c.hidden_size, c.ffn_size, c.activation, c.dropout, c.norm_eps) for _ in ffns
        )

    def forward(self, x: Tensor, mask: Mask, passes: int | None = None) -> Tensor:
        for a, f in self.walk(passes):
            x = self.ffn[f](self.attention[a](x, mask))
        return x

    def at(self, places: Tensor, x: Tensor, mask: Mask, passes: int | None = None) -> Tensor:
        """What `forward` gives at these of the flattened pieces: the last layer is finished for no others."""
        *walk, (a, f) = self.walk(passes)
        for before, after in walk:
            x = self.ffn[after](self.attention[before](x, mask))
        found: Tensor = self.ffn[f](self.attention[a](x, mask, places))
        return found

    def states(self, x: Tensor, mask: Mask, passes: int | None = None) -> list[Tensor]:
        """What goes into the first layer, then what comes out of each."""
        states = [x]
        for a, f in self.walk(passes):
            states.append(self.ffn[f](self.attention[a](states[-1], mask)))
        return states

    def walk(self, passes: int | None) -> Plan:
        """The plan; or, where one layer is all there is, that layer as often as the caller likes."""
        if passes is None:
            return self.plan
        if self.one_pass is None:
            raise UserError(
                f"passes = {passes} needs a trunk whose layers are all the same one (sharing 'all', 1 group)"
            )
        if passes < 1:
            raise UserError(f"passes = {passes} must be at least 1")
        return self.one_pass * passes


class Encoder(nn.Module):
    """Embeddings, trunk and, where the member has one, a pooler."""

    def __init__(self, config: ModelConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = c = config
        wide = c.hidden_size if c.projects else None
        positions = c.positions + c.position_offset
        self.embeddings = Embeddings(
            c.vocab_size, positions, c.token_types, c.embedding_size, wide, c.dropout, c.norm_eps
        )
        self.trunk = Trunk(c)
        self.pooler = Linear(c.hidden_size, c.hidden_size) if c.pooler else None
        initialise(self, c.init_std, generator)

    def forward(
        self,
        input_ids: Tensor,  #                        (B, S), or (T,) with boundaries
        attention_mask: Tensor | None = None,  #     (B, S): 1 real, 0 padding
        token_type_ids: Tensor | None = None,  #     as input_ids
        *,
        boundaries: Boundaries | None = None,
        passes: int | None = None,
    ) -> Tensor:
        x, mask = self.embed(input_ids, attention_mask, token_type_ids, boundaries)
        states: Tensor = self.trunk(x, mask, passes)
        return states  # (B, S, H) or (T, H)

    def states_at(
        self,
        places: Tensor,  # (N,) of the flattened pieces
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        boundaries: Boundaries | None = None,
        passes: int | None = None,
    ) -> Tensor:
        """(N, H): what `forward` gives there, for less. Pre-training reads a sixth of the pieces."""
        x, mask = self.embed(input_ids, attention_mask, token_type_ids, boundaries)
        return self.trunk.at(places, x, mask, passes)

    def hidden_states(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        boundaries: Boundaries | None = None,
        passes: int | None = None,
    ) -> list[Tensor]:
        """The trunk's input and the output of each layer: depth + 1 tensors, the last what `forward` gives."""
        x, mask = self.embed(input_ids, attention_mask, token_type_ids, boundaries)
        return self.trunk.states(x, mask, passes)

    def pool(self, states: Tensor, boundaries: Boundaries | None = None) -> Tensor:
        """One vector a sequence, from its first piece."""
        if self.pooler is None:
            raise UserError("this encoder has no pooler; set pooler = true, or use the first piece's state")
        return torch.tanh(self.pooler(first_piece(states, boundaries)))  # (B, H)

    def embed(
        self, input_ids: Tensor, attention_mask: Tensor | None, token_type_ids: Tensor | None, rows: Boundaries | None
    ) -> tuple[Tensor, Mask]:
        """The trunk's input, and who may look at whom."""
        config = self.config
        mask = visible(input_ids, attention_mask, rows, config.causal)
        longest = rows.longest if rows else input_ids.shape[-1]
        if longest > config.positions:
            raise UserError(f"a sequence of {longest} pieces does not fit the model's {config.positions} positions")
        if token_type_ids is not None and token_type_ids.shape != input_ids.shape:
            raise UserError(
                f"token_type_ids {tuple(token_type_ids.shape)} are not of input_ids' {tuple(input_ids.shape)}"
            )
        if rows:
            positions = rows.places
        elif config.position_offset:  # RoBERTa counts the pieces that are not padding (fairseq, make_positions)
            real = (input_ids != config.pad_id).long()
            positions = real.cumsum(1) * real - 1
        else:
            positions = torch.arange(longest, device=input_ids.device).expand_as(input_ids)
        x: Tensor = self.embeddings(input_ids, positions + config.position_offset, token_type_ids)
        return x, mask


def attention_maps(
    encoder: Encoder,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    token_type_ids: Tensor | None = None,
    passes: int | None = None,
) -> list[Tensor]:
    """Who looks at whom: one (B, A, S, S) a layer."""
    x, mask = encoder.embed(input_ids, attention_mask, token_type_ids, None)
    walk = zip(encoder.trunk.walk(passes), encoder.trunk.states(x, mask, passes), strict=False)
    return [encoder.trunk.attention[a].maps(state, mask) for (a, _), state in walk]  # type: ignore[operator]
