"""Fusion: which calls become one kernel, and the merged program of each group."""

from .fuse_ops import fuse_ops
from .fuse_tir import fuse_tir, merge_function
from .grouping import Grouping
from .merge import Part, merge

__all__ = ["Grouping", "Part", "fuse_ops", "fuse_tir", "merge", "merge_function"]
