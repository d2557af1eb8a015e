"""Engines as other platforms run them: the spec that `lowpass serve` launches, in the words of those."""

from local_serving.manifests.compose import compose
from local_serving.manifests.gateway import external
from local_serving.manifests.kubernetes import kubernetes
from local_serving.manifests.nodes import Node, nodes
from local_serving.manifests.text import dumped, said, written

__all__ = ["Node", "compose", "dumped", "external", "kubernetes", "nodes", "said", "written"]
