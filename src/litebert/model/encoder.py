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
from litebert.model.layers import Boundaries, Embeddings, FeedForward, Mask, SelfAttention, causal_mask, initialise

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
        group = layer * groups // layers
        for block in range(inner):
            shared, own = group * inner + block, layer * inner + block
            plan.append(
                (shared if sharing in ("attention", "all") else own, shared if sharing in ("ffn", "all") else own)
            )
    return plan


class Trunk(nn.Module):
    """The stack of layers: a plan, and as many attentions and feed-forwards as it names."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.plan = sharing_plan(config.layers, config.sharing, config.groups, config.inner_groups)
        self.attention = nn.ModuleList(
            SelfAttention(
                config.hidden_size,
                config.heads,
                config.dropout,
                config.attention_dropout,
                config.norm_eps,
                config.causal,
            )
            for _ in {a for a, _ in self.plan}
        )
        self.ffn = nn.ModuleList(
            FeedForward(config.hidden_size, config.ffn_size, config.activation, config.dropout, config.norm_eps)
            for _ in {f for _, f in self.plan}
        )
        self.one_pass = config.inner_groups if config.sharing == "all" and config.groups == 1 else None

    def forward(self, x: Tensor, mask: Mask, passes: int | None = None) -> Tensor:
        for a, f in self.walk(passes):
            x = self.ffn[f](self.attention[a](x, mask))
        return x

    def hidden_states(self, x: Tensor, mask: Mask, passes: int | None = None) -> list[Tensor]:
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
        return self.plan[: self.one_pass] * passes


class Encoder(nn.Module):
    """Embeddings, trunk and, where the member has one, a pooler."""

    def __init__(self, config: ModelConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(
            config.vocab_size,
            config.positions + config.position_offset,
            config.token_types,
            config.embedding_size,
            config.hidden_size if config.projects else None,
            config.dropout,
            config.norm_eps,
        )
        self.trunk = Trunk(config)
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size) if config.pooler else None
        initialise(self, config.init_std, generator)

    def forward(
        self,
        input_ids: Tensor,  #                        (B, S), or (T,) with boundaries
        attention_mask: Tensor | None = None,  #     (B, S): 1 real, 0 padding
        token_type_ids: Tensor | None = None,  #     as input_ids
        *,
        boundaries: Boundaries | None = None,
        passes: int | None = None,
    ) -> Tensor:
        mask = self.mask(input_ids, attention_mask, boundaries)
        x = self.embed(input_ids, attention_mask, token_type_ids, boundaries)
        states: Tensor = self.trunk(x, mask, passes)
        return states  # (B, S, H) or (T, H)

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
        mask = self.mask(input_ids, attention_mask, boundaries)
        x = self.embed(input_ids, attention_mask, token_type_ids, boundaries)
        return self.trunk.hidden_states(x, mask, passes)

    def pool(self, states: Tensor, boundaries: Boundaries | None = None) -> Tensor:
        """One vector a sequence, from its first piece."""
        if self.pooler is None:
            raise UserError("this encoder has no pooler; set pooler = true, or use the first piece's state")
        return torch.tanh(self.pooler(first_piece(states, boundaries)))  # (B, H)

    def embed(
        self, input_ids: Tensor, attention_mask: Tensor | None, token_type_ids: Tensor | None, rows: Boundaries | None
    ) -> Tensor:
        longest = max(rows.lengths) if rows else input_ids.shape[-1]
        if longest > self.config.positions:
            raise UserError(
                f"a sequence of {longest} pieces does not fit the model's {self.config.positions} positions"
            )
        if rows:
            position_ids = rows.positions()
        elif self.config.position_offset and attention_mask is not None:  # RoBERTa counts real pieces only
            position_ids = (attention_mask.long().cumsum(1) - 1).clamp(min=0)
        else:
            position_ids = torch.arange(longest, device=input_ids.device).expand_as(input_ids)
        x: Tensor = self.embeddings(input_ids, position_ids + self.config.position_offset, token_type_ids)
        return x

    def mask(self, input_ids: Tensor, attention_mask: Tensor | None, rows: Boundaries | None) -> Mask:
        if rows is not None:
            if attention_mask is not None or input_ids.shape != (sum(rows.lengths),):
                raise UserError("boundaries go with one packed row of pieces, without an attention_mask")
            return rows
        if input_ids.dim() != 2:
            raise UserError(
                f"input_ids of shape {tuple(input_ids.shape)}: give (batch, length), or (pieces,) with boundaries"
            )
        if attention_mask is None:
            return None
        if attention_mask.shape != input_ids.shape:
            raise UserError(
                f"attention_mask {tuple(attention_mask.shape)} does not match input_ids {tuple(input_ids.shape)}"
            )
        seen = attention_mask.bool()[:, None, None, :]  # (B, 1, 1, S)
        return seen & causal_mask(input_ids.shape[1], input_ids.device) if self.config.causal else seen


def first_piece(states: Tensor, boundaries: Boundaries | None = None) -> Tensor:
    return states[:, 0] if boundaries is None else states[boundaries.offsets[:-1].long()]  # (B, H)


def pack(input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Boundaries]:
    """A padded batch as one row of its real pieces; use it on token types and labels too."""
    lengths = attention_mask.sum(1).tolist()
    if not all(lengths):
        raise UserError(f"row {lengths.index(0)} of the batch is nothing but padding")
    return input_ids[attention_mask.bool()], Boundaries.of(lengths, input_ids.device)


def unpack(packed: Tensor, attention_mask: Tensor) -> Tensor:
    """The reverse of `pack`: zeros where the padding was."""
    wide = packed.new_zeros(*attention_mask.shape, *packed.shape[1:])
    return wide.index_put((attention_mask.bool(),), packed)


def attention_maps(
    encoder: Encoder, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
) -> list[Tensor]:
    """Who looks at whom: one (B, A, S, S) a layer."""
    mask = encoder.mask(input_ids, attention_mask, None)
    assert not isinstance(mask, Boundaries)
    x = encoder.embed(input_ids, attention_mask, token_type_ids, None)
    maps = []
    for a, f in encoder.trunk.plan:
        attention = encoder.trunk.attention[a]
        assert isinstance(attention, SelfAttention)
        maps.append(attention.maps(x, mask))
        x = encoder.trunk.ffn[f](attention(x, mask))
    return maps
