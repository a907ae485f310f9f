"""A network on a CPU -> the same on its quickest kernels: the trunk in float32, bf16 or int8, weights packed once.

oneDNN multiplies by a matrix that was laid out for it beforehand, adds the bias and applies the activation in one go. A
shared layer is packed once, whatever the number of its passes. Everything that reads a network works as before; what
trains, saves or looks into a layer needs the weights themselves, and says so.

int8: weights in 127 steps either way for each output, in 63 where the CPU could not add them up (`infer/cpu.py`); what
they meet in 255 steps between its own extremes, where the first piece of a text has steps of its own
(`infer/first.py`).
"""

import ctypes
import gc
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from litebert.config import UserError
from litebert.infer.cpu import finest, has_bf16
from litebert.infer.first import Ends, Factors, factors
from litebert.infer.graph import in_steps
from litebert.infer.loop import looped
from litebert.model.encoder import Encoder, Trunk
from litebert.model.heads import Network
from litebert.model.layers import FeedForward, SelfAttention, packed_attention, padded_attention
from litebert.model.packing import Boundaries, Mask

Precision = Literal["fp32", "bf16", "int8"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16", "int8")
Product = Callable[[Tensor, Tensor | None], Tensor]  # x · W + b, and what is to be added to it
FUSED = {"gelu": ("gelu", "none"), "gelu_tanh": ("gelu", "tanh"), "relu": ("relu", "")}  # post-operations of oneDNN


def quicken(network: Network, precision: str, ends: Ends | None = None) -> Network:
    """In place; the network then only answers. `ends`: the pieces that its texts begin and end with."""
    if precision not in PRECISIONS:
        raise UserError(f"precision = {precision!r}; allowed: {', '.join(PRECISIONS)}")
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        raise UserError(f"precision = {precision!r} needs a PyTorch with oneDNN, and this one has none; leave it out")
    if precision == "bf16" and not has_bf16():
        raise UserError(
            "precision = 'bf16' needs a CPU that multiplies it (x86: AVX512 or avx_ne_convert); fp32 and int8 work here"
        )
    network.eval().requires_grad_(False)
    network.encoder.embeddings.compute = torch.bfloat16 if precision == "bf16" else torch.float32
    apart = factors(network.encoder, ends if precision == "int8" else None)
    network.encoder = QuickEncoder(network.encoder, precision, apart)
    give_back()
    return network


def give_back() -> None:
    """The memory of what was packed, to the system: glibc would keep it for this process."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def is_quick(network: Network) -> bool:
    return isinstance(network.encoder.trunk, QuickTrunk)


def place(network: Network, device: torch.device | str, usual: torch.dtype) -> Network:
    """There, in that type, ready to answer; one that was packed stays as it is."""
    if not is_quick(network):
        network.encoder.embeddings.compute = usual
    elif torch.device(device).type != "cpu":
        raise UserError(f"this model is packed for a CPU, and was asked on {device}; load it without a precision")
    return network.to(device).eval()


class QuickEncoder(Encoder):
    """What it is made of, with packed layers; where that is quicker, sequences that are equally long go through one
    loop."""

    def __init__(self, encoder: Encoder, precision: Precision, apart: Factors) -> None:
        nn.Module.__init__(self)
        self.config, self.embeddings, self.pooler = encoder.config, encoder.embeddings, encoder.pooler
        self.looped = looped(encoder, precision, apart)
        self.trunk = QuickTrunk(encoder, precision, apart)
        self.train(encoder.training)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        boundaries: Boundaries | None = None,
        passes: int | None = None,
    ) -> Tensor:
        loop = self.looped if attention_mask is None else None
        sizes = None if loop is None else loop.takes(input_ids, token_type_ids, boundaries)
        if loop is None or sizes is None:
            return super().forward(input_ids, attention_mask, token_type_ids, boundaries=boundaries, passes=passes)
        times = len(self.trunk.walk(passes)) // self.config.inner_groups
        types = [None] * len(sizes) if token_type_ids is None else in_parts(token_type_ids, sizes)
        made = [loop(*both, times).flatten(0, 1) for both in zip(in_parts(input_ids, sizes), types, strict=True)]
        return (made[0] if len(made) == 1 else torch.cat(made)).view(*input_ids.shape, -1)


def in_parts(row: Tensor, sizes: Sequence[tuple[int, int]]) -> list[Tensor]:
    """A row of pieces, or a batch, as one batch after the other."""
    parts = torch.split(row.flatten(), [rows * length for rows, length in sizes])
    return [part.view(size) for part, size in zip(parts, sizes, strict=True)]


class QuickTrunk(Trunk):
    """The same walk over packed layers."""

    def __init__(self, encoder: Encoder, precision: Precision, apart: Factors) -> None:
        nn.Module.__init__(self)
        trunk, activation = encoder.trunk, encoder.config.activation
        self.plan, self.one_pass = trunk.plan, trunk.one_pass
        pairs: Any = zip(trunk.attention, apart.attention, strict=True)
        layers: Any = [QuickAttention(layer, precision, factor) for layer, factor in pairs]
        self.attention = layers
        pairs = zip(trunk.ffn, apart.ffn, strict=True)
        layers = [QuickFeedForward(layer, precision, activation, factor) for layer, factor in pairs]
        self.ffn = layers

    def forward(self, x: Tensor, mask: Mask, passes: int | None = None) -> Tensor:
        return deque(self.each(x, mask, passes), maxlen=1)[0]

    def states(self, x: Tensor, mask: Mask, passes: int | None = None) -> list[Tensor]:
        return [x, *self.each(x, mask, passes)]

    def each(self, x: Tensor, mask: Mask, passes: int | None) -> Iterator[Tensor]:
        """What comes out of each layer."""
        rows = first_rows(x, mask)
        for a, f in self.walk(passes):
            x = self.ffn[f](self.attention[a](x, mask, rows), rows)
            yield x


def first_rows(x: Tensor, mask: Mask) -> Tensor:
    """Where texts begin, among all pieces."""
    if isinstance(mask, Boundaries):
        return mask.offsets[:-1].long()
    return torch.arange(0, x.shape[0] * x.shape[1], x.shape[1])


class QuickAttention:
    def __init__(self, layer: SelfAttention, precision: Precision, factor: float) -> None:
        self.heads = layer.heads
        self.qkv, self.out = Apart(packed(layer.qkv, precision), layer.qkv, factor), packed(layer.out, precision)
        self.norm = Normed(layer.norm)

    def __call__(self, x: Tensor, mask: Mask, rows: Tensor) -> Tensor:
        qkv = self.qkv(x, rows).unflatten(-1, (3, self.heads, -1))  # type: ignore[no-untyped-call]
        if isinstance(mask, Boundaries):  # noqa: SIM108
            seen = packed_attention(qkv, mask, 0.0)
        else:
            seen = padded_attention(qkv, mask, 0.0)
        return self.norm(self.out(seen.flatten(-2), x))

    def maps(self, x: Tensor, mask: Tensor | None) -> Tensor:
        raise UserError(
            "the layers of this model are packed for answering; to look into them load it without a precision"
        )


class QuickFeedForward:
    def __init__(self, layer: FeedForward, precision: Precision, activation: str, factor: float) -> None:
        self.up = packed(layer.up, precision, activation)
        self.activation = None if activation in FUSED else layer.activation
        self.down = Apart(packed(layer.down, precision), layer.down, factor)
        self.norm = Normed(layer.norm)

    def __call__(self, x: Tensor, rows: Tensor) -> Tensor:
        y = self.up(x, None)
        return self.norm(self.down(y if self.activation is None else self.activation(y), rows, x))


class Apart:
    """A product whose first pieces are multiplied by a factor before it and divided after, so that they are rounded in
    steps of another size."""

    def __init__(self, product: Product, layer: nn.Linear, factor: float) -> None:
        self.product, self.factor = product, factor
        self.bias = 0.0 if layer.bias is None else layer.bias.detach().float()

    def __call__(self, x: Tensor, rows: Tensor, more: Tensor | None = None) -> Tensor:
        if self.factor == 1:
            return self.product(x, more)
        given = x.view(-1, x.shape[-1])
        kept = given[rows]
        given[rows] = kept * self.factor
        made = self.product(x, None)
        given[rows] = kept  # whoever gave it needs it still
        ends = made.view(-1, made.shape[-1])
        ends[rows] = (ends[rows] - self.bias) / self.factor + self.bias
        return made if more is None else made.add_(more)


class Normed:
    """A norm, computed in float32; out comes the type of what came in."""

    def __init__(self, norm: nn.LayerNorm) -> None:
        self.weight, self.bias = norm.weight.detach().float(), norm.bias.detach().float()
        self.shape, self.eps = norm.normalized_shape, norm.eps

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.shape, self.weight, self.bias, self.eps)


def packed(layer: nn.Linear, precision: Precision, activation: str = "") -> Product:
    post, algorithm = FUSED.get(activation, ("none", ""))
    return (Int8 if precision == "int8" else Wide)(layer, precision, post, algorithm)


class Wide:
    """x · W + b in float32 or bf16."""

    def __init__(self, layer: nn.Linear, precision: Precision, post: str, algorithm: str) -> None:
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self.kernel = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach().to(dtype))
        self.bias = None if layer.bias is None else layer.bias.detach().to(dtype)
        self.post, self.algorithm = post, algorithm

    def __call__(self, x: Tensor, more: Tensor | None) -> Tensor:
        multiply = torch.ops.mkldnn._linear_pointwise
        if more is not None:
            return cast(Tensor, multiply.binary(x, more, self.kernel, self.bias, "add"))
        return cast(Tensor, multiply(x, self.kernel, self.bias, self.post, [], self.algorithm))


class Int8:
    """x · W + b in whole numbers, given and taken in float32."""

    def __init__(self, layer: nn.Linear, precision: Precision, post: str, algorithm: str) -> None:
        weight = layer.weight.detach().float()
        steps, self.scale = in_steps(weight, finest())
        self.kernel = torch.ops.onednn.qlinear_prepack(steps, None)
        self.zero = torch.zeros(len(weight), dtype=torch.int32)
        self.bias = None if layer.bias is None else layer.bias.detach().float()
        self.post, self.algorithm = post, algorithm

    def __call__(self, x: Tensor, more: Tensor | None) -> Tensor:
        low, high = torch.aminmax(x)
        least = min(low.item(), 0.0)
        scale = (max(high.item(), 0.0) - least) / 255 or 1.0
        zero = round(-least / scale)
        product: Tensor = torch.ops.onednn.qlinear_pointwise(
            *(rounded(x, scale, zero), scale, zero, self.kernel, self.scale, self.zero, self.bias),
            *(1.0, 0, torch.float32, self.post, [], self.algorithm),
        )
        return product if more is None else product.add_(more)


def rounded(x: Tensor, scale: float, zero: int) -> Tensor:
    """x / scale + zero in 8 bits without sign."""
    if not has_quick_rounding():
        return torch.add(zero + 0.5, x, alpha=1 / scale).clamp_(0, 255).to(torch.uint8)
    x = x.contiguous()
    made = torch.quantize_per_tensor(x, scale, zero, torch.quint8)
    return torch.empty(0, dtype=torch.uint8).set_(made.untyped_storage(), 0, x.shape, x.stride())


@cache
def has_quick_rounding() -> bool:
    """PyTorch's own is much quicker than arithmetic, and announced to go: it says so once, here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.quantize_per_tensor(torch.zeros(1), 1.0, 0, torch.quint8)
        except (AttributeError, RuntimeError):
            return False
    return True
