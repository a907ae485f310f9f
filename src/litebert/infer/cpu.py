"""What a CPU can do in whole numbers and in bf16."""

import platform
from functools import cache

import torch

EVERYWHERE, WITH_WHOLE_SUMS = 63, 127  # steps either way that a weight is rounded to


@cache
def finest() -> int:
    """Steps that weights may have. An x86 without VNNI adds two products of a weight and what it meets in 16 bits, and
    cuts off what does not fit: 2 · 255 · 63 does, 2 · 255 · 127 does not. PyTorch tells only of AVX512's VNNI, so the
    few CPUs with AVX-VNNI alone have the coarser steps as well."""
    vnni = getattr(torch.cpu, "_is_vnni_supported", lambda: False)
    return WITH_WHOLE_SUMS if platform.machine().lower() not in ("x86_64", "amd64") or vnni() else EVERYWHERE


def has_avx2_only() -> bool:
    """Whether AVX2 is the best that this CPU has, as PyTorch sees it."""
    return torch.backends.cpu.get_cpu_capability() == "AVX2"


@cache
def gains_by_bf16() -> bool:
    """Whether the CPU itself multiplies in bf16: elsewhere oneDNN makes up for it, and gains nothing."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


@cache
def has_bf16() -> bool:
    """Whether oneDNN multiplies in bf16 here: on x86, with AVX512 or avx_ne_convert."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
