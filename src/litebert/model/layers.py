"""The leaves: embeddings, self-attention, feed-forward. They take numbers and know no config.

Shapes at the right margin: B sequences, S pieces each, A heads of D, H hidden, E embedding. The same modules serve a
padded batch (B, S, …) and one packed row (T, …) of all its real pieces: only attention knows where a sequence ends.

Mixed precision is the type of what flows: a weight is cast to it where it is used, so the gradient of every use comes
back to the weight's own type before it is added to the others. A weight that 24 layers share is never summed in bf16.
"""

from collections.abc import Callable
from functools import partial
from itertools import groupby

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from litebert.model.packing import Boundaries, Mask, causal_mask

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


class Linear(nn.Linear):
    """In the type of what comes in."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.to(x.dtype), None if self.bias is None else self.bias.to(x.dtype))


class Norm(nn.LayerNorm):
    """In float32 or wider; out comes the type of what came in."""

    def forward(self, x: Tensor) -> Tensor:
        wide = torch.promote_types(x.dtype, torch.float32)
        weight, bias = self.weight.to(wide), self.bias.to(wide)
        return F.layer_norm(x.to(wide), self.normalized_shape, weight, bias, self.eps).to(x.dtype)


class Table(nn.Embedding):
    """Filled by `initialise` or from a file, not before: on the meta device PyTorch imports much code for that."""

    def reset_parameters(self) -> None:
        pass


class Embeddings(nn.Module):
    """Words, positions and token types at width E, normalised, then widened to H where the config says so."""

    def __init__(
        self,
        vocab_size: int,
        positions: int,
        token_types: int,
        embedding_size: int,
        hidden_size: int | None,  # None: E is H and no projection stands between
        dropout: float,
        norm_eps: float,
    ) -> None:
        super().__init__()
        self.words = Table(vocab_size, embedding_size)
        self.positions = Table(positions, embedding_size)
        self.types = Table(token_types, embedding_size) if token_types else None
        self.norm = Norm(embedding_size, norm_eps)
        self.dropout = nn.Dropout(dropout)
        self.project = Linear(embedding_size, hidden_size) if hidden_size is not None else None
        self.compute: torch.dtype | None = None  # what flows from here on; None: the type of the tables

    def forward(self, input_ids: Tensor, position_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
        x: Tensor = self.words(input_ids) + self.positions(position_ids)  # (B, S, E)
        if self.types is not None:
            x = x + (self.types.weight[0] if token_type_ids is None else self.types(token_type_ids))
        x = self.dropout(self.norm(x)).to(self.compute or x.dtype)
        return x if self.project is None else self.project(x)  # (B, S, H)


class SelfAttention(nn.Module):
    """Multi-head self-attention with its residual and norm (post-LN)."""

    def __init__(self, hidden_size: int, heads: int, dropout: float, attention_dropout: float, norm_eps: float) -> None:
        super().__init__()
        self.heads, self.attention_dropout = heads, attention_dropout
        self.qkv = Linear(hidden_size, 3 * hidden_size)
        self.out = Linear(hidden_size, hidden_size)
        self.dropout = nn.Dropout(dropout)
        self.norm = Norm(hidden_size, norm_eps)

    def forward(self, x: Tensor, mask: Mask, at: Tensor | None = None) -> Tensor:
        """`at` index the flattened pieces: all are seen, and only these go on, (N, H)."""
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, -1))  # (B, S, 3, A, D)
        rate = self.attention_dropout if self.training else 0.0
        if isinstance(mask, Boundaries):  # noqa: SIM108
            seen = packed_attention(qkv, mask, rate)  # (T, A, D)
        else:
            seen = padded_attention(qkv, mask, rate)  # (B, S, A, D)
        seen = seen.flatten(-2)
        if at is not None:
            x, seen = (each.flatten(0, -2).index_select(0, at) for each in (x, seen))
        out: Tensor = self.norm(x + self.dropout(self.out(seen)))  # (B, S, H)
        return out

    def maps(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """What `forward` weighs the values with: for pictures and matching losses, not for speed."""
        q, k, _ = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        scores = q.transpose(1, 2) @ k.permute(0, 2, 3, 1) / q.shape[-1] ** 0.5  # (B, A, S, S)
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        weights: Tensor = scores.softmax(-1).nan_to_num()  # a piece that may look nowhere looks nowhere
        return weights


class FeedForward(nn.Module):
    """H -> F -> H at every piece, with its residual and norm (post-LN)."""

    def __init__(self, hidden_size: int, ffn_size: int, activation: str, dropout: float, norm_eps: float) -> None:
        super().__init__()
        self.up = Linear(hidden_size, ffn_size)
        self.activation = ACTIVATIONS[activation]
        self.down = Linear(ffn_size, hidden_size)
        self.dropout = nn.Dropout(dropout)
        self.norm = Norm(hidden_size, norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        y = self.activation(self.up(x))  # (B, S, F)
        out: Tensor = self.norm(x + self.dropout(self.down(y)))  # (B, S, H)
        return out


def padded_attention(qkv: Tensor, mask: Tensor | None, dropout: float, causal: bool = False) -> Tensor:
    q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))  # (B, A, S, D)
    seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal)
    return seen.transpose(1, 2)  # (B, S, A, D)


def packed_attention(qkv: Tensor, rows: Boundaries, dropout: float) -> Tensor:
    """Each sequence of the row looks at itself only: (T, 3, A, D) -> (T, A, D).

    The full sequences at the front are one dense batch, for which the kernels are the quickest; the rest is ragged.
    """
    full = rows.offsets.shape[0] - rows.tail.shape[0]
    if not full:
        return ragged_attention(qkv, rows, rows.places, dropout)
    cut = full * rows.longest
    front, tail = torch.split(qkv, [cut, qkv.shape[0] - cut])
    dense = front.view(full, rows.longest, *front.shape[1:])
    seen = padded_attention(dense, None, dropout, rows.causal).flatten(0, 1)
    if rows.tail.shape[0] == 1:
        return seen
    return torch.cat([seen, ragged_attention(tail, rows, rows.places[cut:], dropout)])


def ragged_attention(qkv: Tensor, rows: Boundaries, places: Tensor, dropout: float) -> Tensor:
    """The sequences of a row's tail, each at its own length; `places` are their pieces' positions."""
    offsets, longest = rows.tail, rows.longest
    if qkv.is_cuda and qkv.dtype in (torch.bfloat16, torch.float16) and not dropout:
        from torch.nn.attention.varlen import varlen_attn

        q, k, v = qkv.unbind(1)
        window = (-1, 0) if rows.causal else (-1, -1)
        packed = varlen_attn(q, k, v, offsets, offsets, longest, longest, window_size=window)
        assert isinstance(packed, Tensor)
        return packed
    if qkv.is_cuda:  # float32 or attention dropout, which the kernel above does not have
        return widened_attention(qkv, rows, places, dropout)
    alike = [(size, len(list(run))) for size, run in groupby(offsets.diff().tolist()) if size]
    parts = torch.split(qkv, [size * many for size, many in alike])  # neighbours of one length are one dense batch
    dense = [
        padded_attention(part.view(many, size, *part.shape[1:]), None, dropout, rows.causal).flatten(0, 1)
        for part, (size, many) in zip(parts, alike, strict=True)
    ]
    return torch.cat(dense)


def widened_attention(qkv: Tensor, rows: Boundaries, places: Tensor, dropout: float) -> Tensor:
    """The same padded, for attention alone; nothing here waits for the device."""
    offsets, longest, count = rows.tail, rows.longest, qkv.shape[0]
    step, number = torch.arange(longest, device=qkv.device), torch.arange(count, device=qkv.device)
    cells = torch.searchsorted(offsets[1:].long(), number, right=True) * longest + places
    wide = qkv.new_zeros((offsets.shape[0] - 1) * longest, *qkv.shape[1:]).index_copy(0, cells, qkv)
    mask = (step < offsets.diff()[:, None].clamp(min=1))[:, None, None, :]  # a row that sees nothing would be nan
    if rows.causal:
        mask = mask & causal_mask(longest, qkv.device)
    seen = padded_attention(wide.view(-1, longest, *qkv.shape[1:]), mask, dropout)  # (N, longest, A, D)
    return seen.flatten(0, 1).index_select(0, cells)


def initialise(module: nn.Module, std: float, generator: torch.Generator | None = None) -> None:
    """Truncated normal at two deviations for every kernel and table, zero biases, unit norms: as the originals do."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.trunc_normal_(part.weight, std=std, a=-2 * std, b=2 * std, generator=generator)
        if isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
        if isinstance(part, nn.Linear | nn.LayerNorm) and part.bias is not None:
            nn.init.zeros_(part.bias)
