"""Hidden states -> logits: one small module a kind of head, and `Network`, the encoder with its heads.

`sentence` is one vector a sequence (B, H): the pooler's, or the first piece's state where the member has no pooler in
that place. `pieces` are the states of all pieces, (B, S, H), or (T, H) for a packed row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from litebert.config import HeadConfig, HeadKind, ModelConfig, UserError
from litebert.model.encoder import Encoder
from litebert.model.layers import ACTIVATIONS, Linear, Norm, initialise
from litebert.model.packing import Boundaries, first_piece


class MaskedLM(nn.Module):
    """dense, activation, norm, then the word table itself (tied) and a bias. ALBERT narrows to E first."""

    def __init__(self, hidden_size: int, width: int, vocab_size: int, activation: str, norm_eps: float) -> None:
        super().__init__()
        self.dense = Linear(hidden_size, width)
        self.activation = ACTIVATIONS[activation]
        self.norm = Norm(width, norm_eps)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, pieces: Tensor, table: Tensor, positions: Tensor | None = None) -> Tensor:
        """`positions` index the flattened pieces: only those are projected, a seventh of the work in pre-training."""
        if positions is not None:
            pieces = pieces.flatten(0, -2)[positions]  # (N, H)
        x = self.narrowed(pieces)
        return nn.functional.linear(x, table.to(x.dtype), self.bias.to(x.dtype))  # (N, V)

    def narrowed(self, pieces: Tensor) -> Tensor:
        """As wide as the word table, (N, E)."""
        x: Tensor = self.norm(self.activation(self.dense(pieces)))
        return x


class Sentence(nn.Module):
    """A vector a sequence -> scores: order or next, classes, a number, a choice."""

    def __init__(self, hidden_size: int, outputs: int, dropout: float, dense: str | None) -> None:
        super().__init__()
        self.dense = Linear(hidden_size, hidden_size) if dense else None
        self.activation = {"tanh": torch.tanh, "relu": torch.relu, None: None}[dense]
        self.dropout_first = nn.Dropout(dropout if dense == "tanh" else 0.0)  # RoBERTa drops before and after
        self.dropout = nn.Dropout(dropout)
        self.out = Linear(hidden_size, outputs)

    def forward(self, sentence: Tensor) -> Tensor:
        if self.dense is not None and self.activation is not None:
            sentence = self.activation(self.dense(self.dropout_first(sentence)))
        scores: Tensor = self.out(self.dropout(sentence))  # (B, outputs)
        return scores


class Pieces(nn.Module):
    """The state of each piece -> scores: its tag, or whether an answer starts or ends there."""

    def __init__(self, hidden_size: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.out = Linear(hidden_size, outputs)

    def forward(self, pieces: Tensor) -> Tensor:
        scores: Tensor = self.out(self.dropout(pieces))  # (B, S, outputs)
        return scores


@dataclass(frozen=True)
class Beam:
    """The likeliest starts, and for each its likeliest ends; log-probabilities and positions. Where fewer places are
    allowed than the beam is wide, the rest are places that are not, and their log-probability is below -1e30."""

    start: Tensor  # (B, K)
    start_at: Tensor
    end: Tensor  # (B, K, M)
    end_at: Tensor
    no_answer: Tensor  # (B,) logit


class SpanBeam(nn.Module):
    """SQuAD 2.0 as the ALBERT release does it, after XLNet: the end is chosen knowing the start, and a classifier says
    whether there is an answer at all (squad_utils.py, V2 model). `allowed` is True where a span may start or end."""

    def __init__(self, hidden_size: int, dropout: float, norm_eps: float) -> None:
        super().__init__()
        self.start = Linear(hidden_size, 1)
        self.end_dense = Linear(2 * hidden_size, hidden_size)
        self.end_norm = Norm(hidden_size, norm_eps)
        self.end = Linear(hidden_size, 1)
        self.answer_dense = Linear(2 * hidden_size, hidden_size)
        self.dropout = nn.Dropout(dropout)
        self.answer = Linear(hidden_size, 1, bias=False)

    def forward(self, pieces: Tensor, allowed: Tensor, start_at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Training: start and end logits (B, S), the end knowing the true start; and the no-answer logit (B,)."""
        start = self.start_logits(pieces, allowed)
        index = start_at[:, None, None].expand(-1, -1, pieces.shape[-1])
        gold = pieces.gather(1, index).expand_as(pieces)  # (B, S, H)
        return start, self.end_logits(pieces, gold, allowed), self.no_answer(pieces, start)

    def beam(self, pieces: Tensor, allowed: Tensor, starts: int = 5, ends: int = 5) -> Beam:
        length = pieces.shape[1]
        start = self.start_logits(pieces, allowed)
        best, at = start.log_softmax(-1).topk(min(starts, length))  # (B, K)
        index = at[:, :, None].expand(-1, -1, pieces.shape[-1])
        chosen = pieces.gather(1, index)  # (B, K, H)
        wide = pieces[:, None].expand(-1, at.shape[1], -1, -1)  # (B, K, S, H)
        end = self.end_logits(wide, chosen[:, :, None].expand_as(wide), allowed[:, None])  # (B, K, S)
        end_best, end_at = end.log_softmax(-1).topk(min(ends, length))
        return Beam(best, at, end_best, end_at, self.no_answer(pieces, start))

    def start_logits(self, pieces: Tensor, allowed: Tensor) -> Tensor:
        scores: Tensor = self.start(pieces).squeeze(-1)
        return _only(scores, allowed)

    def end_logits(self, pieces: Tensor, start_state: Tensor, allowed: Tensor) -> Tensor:
        x = torch.tanh(self.end_dense(torch.cat([pieces, start_state], -1)))
        scores: Tensor = self.end(self.end_norm(x)).squeeze(-1)
        return _only(scores, allowed)

    def no_answer(self, pieces: Tensor, start: Tensor) -> Tensor:
        weighted = torch.einsum("bs,bsh->bh", start.softmax(-1), pieces)
        x = torch.tanh(self.answer_dense(torch.cat([weighted, pieces[:, 0]], -1)))
        logit: Tensor = self.answer(self.dropout(x)).squeeze(-1)
        return logit  # (B,)


def _only(scores: Tensor, allowed: Tensor) -> Tensor:
    return scores.masked_fill(~allowed.bool(), torch.finfo(scores.dtype).min)


def widened(logits: Tensor) -> Tensor:
    """In float32 or wider, as losses and probabilities want them."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def sentence_shape(config: ModelConfig, kind: HeadKind) -> tuple[Literal["pooled", "first"], str | None]:
    """Which vector a sentence head reads, and the activation of its own dense layer if the member's head has one."""
    if config.family == "distilbert" and kind != "pair":
        return "first", "relu"
    if config.family == "roberta" and kind in ("classify", "regress"):
        return "first", "tanh"
    return "pooled", None


def build_head(config: ModelConfig, head: HeadConfig) -> nn.Module:
    match head.kind:
        case "mlm":
            width = config.embedding_size if config.family == "albert" else config.hidden_size
            if width != config.embedding_size:
                raise UserError(
                    f"a {config.family} masked-LM head is {width} wide and the word table {config.embedding_size}: "
                    "they must be equal; family 'albert' has the narrow head that factorised embeddings need"
                )
            activation = "gelu" if config.family == "roberta" else config.activation  # RoBERTa's head has its own
            return MaskedLM(config.hidden_size, width, config.vocab_size, activation, config.norm_eps)
        case "tag":
            return Pieces(config.hidden_size, len(head.labels), head.dropout)
        case "span":
            return Pieces(config.hidden_size, 2, head.dropout)
        case "span-beam":
            return SpanBeam(config.hidden_size, head.dropout, config.norm_eps)
        case kind:
            reads, dense = sentence_shape(config, kind)
            if reads == "pooled" and not config.pooler:
                raise UserError(f"a {kind} head of family {config.family!r} reads the pooler; set pooler = true")
            outputs = {"pair": 2, "classify": len(head.labels)}.get(kind, 1)
            return Sentence(config.hidden_size, outputs, head.dropout, dense)


class Network(nn.Module):
    """Encoder and heads: input_ids -> {kind of head: logits}."""

    def __init__(
        self, config: ModelConfig, heads: Sequence[HeadConfig] = (), generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.config, self.head_configs = config, tuple(heads)
        if len({head.kind for head in heads}) != len(heads):
            raise UserError(f"two heads of one kind: {', '.join(head.kind for head in heads)}")
        self.encoder = Encoder(config, generator)
        self.heads = nn.ModuleDict({head.kind: build_head(config, head) for head in heads})
        initialise(self.heads, config.init_std, generator)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        boundaries: Boundaries | None = None,
        passes: int | None = None,
        positions: Tensor | None = None,  # of the masked pieces, in the flattened batch
        allowed: Tensor | None = None,  # span-beam: where a span may start or end, and where this one starts
        start_at: Tensor | None = None,
    ) -> dict[str, Tensor]:
        states = self.encoder(input_ids, attention_mask, token_type_ids, boundaries=boundaries, passes=passes)
        logits: dict[str, Tensor] = {}
        for kind, head in self.heads.items():
            if kind == "mlm":
                logits[kind] = head(states, self.encoder.embeddings.words.weight, positions)
            elif kind in ("tag", "span"):
                logits[kind] = head(states)
            elif kind == "span-beam":
                if allowed is None or start_at is None or boundaries is not None:
                    raise UserError(
                        "span-beam trains on padded batches with `allowed` and `start_at`; to answer: `beam`"
                    )
                logits["start"], logits["end"], logits["no-answer"] = head(states, allowed, start_at)
            else:
                logits[kind] = head(self.sentence(states, kind, boundaries))
        return logits

    def sentence(self, states: Tensor, kind: str, boundaries: Boundaries | None = None) -> Tensor:
        """The vector that a sentence head of this kind reads."""
        reads, _ = sentence_shape(self.config, kind)  # type: ignore[arg-type]
        return self.encoder.pool(states, boundaries) if reads == "pooled" else first_piece(states, boundaries)
