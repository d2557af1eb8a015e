"""What an engine keeps of the tokens that it has read: bytes on each GPU, and what fits into so many of them."""

from math import ceil

from msgspec import Struct

from local_serving.spec.spec import Architecture, Attention, Parallelism, Vllm


class Cache(Struct, frozen=True):
    """`number`: bytes of a kept number. `block`: tokens that are allotted at once."""

    model: Architecture
    spread: Parallelism = Parallelism()
    number: int = 2
    block: int = 16

    def sequence(self, tokens: int) -> int:
        """Of one sequence of so many tokens."""
        return sum(self._layers(layers, tokens) for layers in self.model.attention)

    def token(self) -> int:
        """Of one more token in a long sequence: layers with a window or a state take nothing for it."""
        return sum(self.width(one) * self._count(one) for one in self.model.attention if one.kind in ("full", "latent"))

    def tokens(self, room: int, context: int) -> int:
        """In sequences of `context` tokens, that fit into `room` bytes."""
        sequences, rest = divmod(room, self.sequence(context))
        return sequences * context + self.longest(rest, context)

    def longest(self, room: int, limit: int) -> int:
        """The longest sequence that fits into `room` bytes, in whole blocks; at most `limit`."""
        if self.sequence(limit) <= room:
            return limit
        low, high = 0, limit // self.block
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.sequence(middle * self.block) <= room else (low, middle - 1)
        return low * self.block

    def _layers(self, layers: Attention, tokens: int) -> int:
        if layers.kind == "state":
            return self._count(layers) * ceil(layers.state_bytes / self.spread.tensor)
        kept = min(tokens, layers.window + self.block) if layers.kind == "sliding" else tokens
        return self._count(layers) * self.width(layers) * ceil(kept / self.block) * self.block

    def _count(self, layers: Attention) -> int:
        return ceil(layers.layers / self.spread.pipeline)

    def width(self, layers: Attention) -> int:
        """Bytes of a token in one layer. Tensor parallelism spreads heads, and copies what has none to spread."""
        if layers.kind == "latent":
            return (layers.latent_dim + layers.rope_dim) * self.number
        return 2 * max(layers.kv_heads // self.spread.tensor, 1) * layers.head_dim * self.number


def number(spec: Vllm) -> int:
    """Bytes of a number in the cache of vLLM."""
    return 1 if spec.kv_dtype == "fp8" else 4 if spec.dtype == "float32" else 2


def of_llamacpp(model: Architecture, context: int, parallel: int, batch: int, checkpoints: int) -> int:
    """Cells of 16 bits for `context` tokens, shared by all streams; layers with a window have cells for each stream's
    window and a batch, and keep them once more in each checkpoint of a stream."""
    cache, total = Cache(model, block=1), 0
    for layers in model.attention:
        one = cache.width(layers) * layers.layers
        if layers.kind == "sliding":
            total += one * min(context, _padded(layers.window * parallel + batch))
            total += one * min(context, layers.window + batch) * checkpoints * parallel
        else:
            total += one * context
    return total


def _padded(cells: int) -> int:
    """llama.cpp allots 256 at a time."""
    return ceil(cells / 256) * 256
