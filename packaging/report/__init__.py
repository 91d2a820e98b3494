"""`webrelax inspect --html`: a page that shows how a model was compiled."""

from .facts import Step, steps
from .layer import Layer, LayerKernel, layers
from .page import download_bytes, page

__all__ = ["Layer", "LayerKernel", "Step", "download_bytes", "layers", "page", "steps"]
