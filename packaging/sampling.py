"""Choosing the next token: the same choices as the page's (web/sampler.js) for the same seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Sampling:
    """temperature 0 is greedy; top_k 0 and top_p 1 are off; seed is an integer from 0 to 2^53 - 1."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0


def sample(logits: Array, sampling: Sampling, position: int) -> int:
    """The id of the token for a position in the conversation, which with the seed keys the random number."""
    import numpy as np

    best = int(logits.argmax())
    if sampling.temperature == 0:
        return best
    values = logits.astype(np.float64)
    with np.errstate(over="ignore"):  # a tiny temperature leaves the best token alone
        weights = np.exp((values - values[best]) / sampling.temperature)
    order = np.arange(len(weights))
    if sampling.top_k or sampling.top_p < 1:
        order = np.argsort(-values, kind="stable")
        total = weights.sum() if sampling.top_k == 0 else None
        order = order[: sampling.top_k or None]
        before = np.concatenate(([0.0], np.cumsum(weights[order])[:-1]))
        bound = sampling.top_p * (weights[order].sum() if total is None else total)
        order = order[: max(1, int((before < bound).sum()))]
    running = np.cumsum(weights[order])
    at = int(np.searchsorted(running, uniform(sampling.seed, position) * running[-1], side="right"))
    return int(order[min(at, len(order) - 1)])


def uniform(seed: int, position: int) -> float:
    """A random number in [0, 1) of a counter, not of a state."""
    return (_mix(_mix(_mix(seed & 0xFFFFFFFF) ^ (seed >> 32)) ^ position) >> 8) / 2**24


def _mix(x: int) -> int:
    """The 32-bit finalizer "lowbias32" of hash-prospector, after a step off its fixed point 0."""
    x = (x + 0x9E3779B9) & 0xFFFFFFFF
    x = (x ^ (x >> 16)) * 0x21F0AAAD & 0xFFFFFFFF
    x = (x ^ (x >> 15)) * 0x735A2D97 & 0xFFFFFFFF
    return x ^ (x >> 15)
