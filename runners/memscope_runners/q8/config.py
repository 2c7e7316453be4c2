"""The shape of a model of the Llama and Qwen families."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from memscope.errors import MemscopeError
from memscope.text import clean
from memscope.units import format_bytes
from memscope_runners.q8.slab import GROUP, SlabLayout

NEXT_STEP = "Name a Llama, Qwen2, Qwen3 or Qwen3-VL model, or leave out --model."
SHOWN_CHARACTERS = 120
SIZE_LIMITS = {  # far above any model, so that a damaged config asks for no memory and no time
    "layers": 1 << 12,
    "hidden": 1 << 20,
    "intermediate": 1 << 20,
    "heads": 1 << 20,
    "kv_heads": 1 << 20,
    "head_dim": 1 << 20,
    "vocab": 1 << 24,
    "context": 1 << 31,
}


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Llama 3's scaling of low rotary frequencies. Raises MemscopeError for impossible values.

    Frequencies of wavelengths above original_context / low_factor are divided by `factor`, those
    below original_context / high_factor stay, frequencies in between are interpolated.
    """

    factor: float
    low_factor: float
    high_factor: float
    original_context: int

    def __post_init__(self) -> None:
        for field in ("factor", "low_factor", "high_factor", "original_context"):
            _check_constant(self, field)
        if self.high_factor <= self.low_factor:
            raise impossible("high_freq_factor", self.high_factor)


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and constants of one model. Raises MemscopeError for impossible values."""

    name: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int
    rope_theta: float
    norm_epsilon: float
    is_tied: bool
    eos_token_ids: tuple[int, ...]
    has_qk_norms: bool = False
    has_qkv_bias: bool = False
    rope_scaling: RopeScaling | None = None
    family: str = "Llama"

    def __post_init__(self) -> None:
        for field, limit in SIZE_LIMITS.items():
            _check_size(self, field, limit)
        for field in ("rope_theta", "norm_epsilon"):
            _check_constant(self, field)
        widths = (self.hidden, self.intermediate, self.heads * self.head_dim)
        if any(width % GROUP for width in widths):
            raise MemscopeError(
                f"The model's widths {widths} are not all multiples of {GROUP}, a q8 group.",
                NEXT_STEP,
            )
        if self.heads % self.kv_heads or self.head_dim % 2:
            raise MemscopeError(
                f"{self.heads} heads of {self.head_dim} over {self.kv_heads} key-value heads"
                " do not divide.",
                NEXT_STEP,
            )

    @property
    def layer_layout(self) -> SlabLayout:
        """Seven entries: q, k, v, o, gate, up, down; rows = outputs, columns = inputs."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return SlabLayout.of(
            (
                ("q", queries, self.hidden),
                ("k", keys, self.hidden),
                ("v", keys, self.hidden),
                ("o", self.hidden, queries),
                ("gate", self.intermediate, self.hidden),
                ("up", self.intermediate, self.hidden),
                ("down", self.hidden, self.intermediate),
            )
        )

    @property
    def head_layout(self) -> SlabLayout:
        """One entry, lm_head, (vocab, hidden)."""
        return SlabLayout.of((("lm_head", self.vocab, self.hidden),))

    def fixed_shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of what stays unquantized: norms, and an untied embedding."""
        shapes: dict[str, tuple[int, ...]] = {"norm": (self.hidden,)}
        for layer in range(self.layers):
            shapes[f"layers.{layer}.attention_norm"] = (self.hidden,)
            shapes[f"layers.{layer}.mlp_norm"] = (self.hidden,)
            if self.has_qk_norms:
                shapes[f"layers.{layer}.q_norm"] = (self.head_dim,)
                shapes[f"layers.{layer}.k_norm"] = (self.head_dim,)
            if self.has_qkv_bias:
                rows = (self.heads + 2 * self.kv_heads) * self.head_dim
                shapes[f"layers.{layer}.qkv_bias"] = (rows,)
        if not self.is_tied:
            shapes["embedding"] = (self.vocab, self.hidden)
        return shapes

    def shape_of(self, name: str) -> tuple[int, ...]:
        """The shape of a FloatModel's tensor by its name."""
        if name in ("lm_head", "embedding"):
            return self.vocab, self.hidden
        fixed = self.fixed_shapes().get(name)
        if fixed is not None:
            return fixed
        entry = self.layer_layout.entry(name.rpartition(".")[2])
        return entry.rows, entry.columns

    @property
    def q8_bytes(self) -> int:
        """Bytes of all slabs, the head's included."""
        return self.layers * self.layer_layout.bytes + self.head_layout.bytes

    def describe(self) -> str:
        """One line that describes the model to a user."""
        parts = [
            self.family,
            f"{self.layers} layers of {self.hidden}",
            f"{self.heads} heads and {self.kv_heads} key-value heads of {self.head_dim}",
            f"vocabulary {self.vocab}{', tied' if self.is_tied else ''}",
            f"context {self.context}",
            f"{format_bytes(self.q8_bytes)} in q8",
        ]
        return clean("; ".join(parts))

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ModelConfig:
        """The inverse of to_json; ignores unknown fields. Raises MemscopeError."""
        try:
            values = json.loads(text)
            values["eos_token_ids"] = tuple(int(token) for token in values["eos_token_ids"])
            if values.get("rope_scaling") is not None:
                values["rope_scaling"] = RopeScaling(**values["rope_scaling"])
            return cls(**values)
        except (KeyError, TypeError, ValueError) as error:
            raise MemscopeError(
                f"The checkpoint's config is malformed ({error!r}).", "Quantize the model again."
            ) from None

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, object], *, vocab: int, is_tied: bool) -> ModelConfig:
        """From a GGUF file's metadata, plain values by key."""
        architecture = metadata.get("general.architecture")
        if architecture != "llama":
            raise unsupported(f"The architecture {architecture}")
        if metadata.get("llama.rope.scaling.type", "none") != "none":
            raise unsupported(f"Llama with {metadata['llama.rope.scaling.type']} rope scaling")
        values = {key.removeprefix("llama."): value for key, value in metadata.items()}
        heads, hidden = (whole(values, k) for k in ("attention.head_count", "embedding_length"))
        eos = metadata.get("tokenizer.ggml.eos_token_id")
        return cls(
            name=str(metadata.get("general.name", "unnamed")),
            layers=whole(values, "block_count"),
            hidden=hidden,
            intermediate=whole(values, "feed_forward_length"),
            heads=heads,
            kv_heads=whole(values, "attention.head_count_kv", heads),
            head_dim=whole(values, "attention.key_length", hidden // max(heads, 1)),
            vocab=vocab,
            context=whole(values, "context_length"),
            rope_theta=number(values, "rope.freq_base", 10000.0),
            norm_epsilon=number(values, "attention.layer_norm_rms_epsilon"),
            is_tied=is_tied,
            eos_token_ids=(eos,) if isinstance(eos, int) else (),
        )


def _check_size(config: ModelConfig, field: str, limit: int) -> None:
    value = getattr(config, field)
    if not isinstance(value, int) or not 0 < value <= limit:
        raise impossible(field, value)


def _check_constant(config: ModelConfig | RopeScaling, field: str) -> None:
    value = getattr(config, field)
    if not 0 < value < 1e12:  # false for NaN, too
        raise impossible(field, value)


def unsupported(what: object) -> MemscopeError:
    """The error for a model or feature that memscope cannot run."""
    return MemscopeError(f"{clean(what, SHOWN_CHARACTERS)} is not supported.", NEXT_STEP)


def impossible(key: str, value: object) -> MemscopeError:
    """The error for a value that no model can have."""
    shown = clean(repr(value), SHOWN_CHARACTERS)
    return MemscopeError(f"The model's config says {key} = {shown}.", NEXT_STEP)


def number(values: Mapping[str, object], key: str, default: float | None = None) -> float:
    """A number, or `default` if it is missing. Raises MemscopeError for anything else."""
    value = values.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MemscopeError(f"The model's config has no number {key}.", NEXT_STEP)
    return value


def whole(values: Mapping[str, object], key: str, default: int | None = None) -> int:
    """A whole number, or `default` if it is missing. Raises MemscopeError for anything else."""
    value = number(values, key, default)
    if isinstance(value, float) and not value.is_integer():
        raise impossible(key, value)
    return int(value)
