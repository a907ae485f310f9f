"""Random numbers that depend on what they are for and on nothing else.

A draw is a hash of (key, counter), so example 7,654,321 of epoch 3 looks the same in any batch, on any worker, after
any restart; and a whole batch of them is a few array operations. The mixing function is SplitMix64's.
"""

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def mix(x: Keys) -> Keys:
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * _FIRST
        x = (x ^ (x >> np.uint64(27))) * _SECOND
    return x ^ (x >> np.uint64(31))


def keys(*parts: int | NDArray[np.integer]) -> Keys:
    """One key for each combination of the parts, which broadcast: keys(seed, epoch, indices)."""
    state: Keys = np.zeros((), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for part in parts:
            state = mix(state + np.asarray(part).astype(np.uint64) + _GOLDEN)
    return state


def uniform(key: Keys, counter: int | list[int] | NDArray[np.integer]) -> NDArray[np.float64]:
    """Numbers in [0, 1), one for each key and counter, which broadcast."""
    with np.errstate(over="ignore"):
        bits = mix(key + np.asarray(counter).astype(np.uint64) * _GOLDEN + _GOLDEN)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def permutation(size: int, *parts: int) -> NDArray[np.int64]:
    """A shuffled range that follows from the parts."""
    order = np.argsort(keys(*parts, np.arange(size)), kind="stable")
    return order.astype(np.int64)
