"""The shape of a model of the Llama family."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from memscope.errors import MemscopeError
from memscope_runners.q8.slab import GROUP, SlabLayout

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
NEXT_STEP = "Name a model of the Llama family, or leave out --model for the one that comes along."


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and constants of one model; raises MemscopeError where they cannot be right."""

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
        """Names and shapes of what is never quantized: norms, and an untied embedding."""
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

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ModelConfig:
        """The inverse of to_json; MemscopeError for anything else."""
        try:
            values = json.loads(text)
            values["eos_token_ids"] = tuple(int(token) for token in values["eos_token_ids"])
            known = {field.name for field in fields(cls)}
            return cls(**{name: value for name, value in values.items() if name in known})
        except (KeyError, TypeError, ValueError) as error:
            raise MemscopeError(
                f"The checkpoint's config is malformed ({error!r}).", "Quantize the model again."
            ) from None

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, object], *, vocab: int, is_tied: bool) -> ModelConfig:
        """From a GGUF file's metadata, plain values by key."""
        architecture = metadata.get("general.architecture")
        if architecture != "llama":
            raise _unsupported(architecture)
        if metadata.get("llama.rope.scaling.type", "none") != "none":
            raise _unsupported(f"llama with {metadata['llama.rope.scaling.type']} rope scaling")

        def number(key: str, default: float | None = None) -> float:
            return _number(metadata, f"llama.{key}", default)

        def whole(key: str, default: int | None = None) -> int:
            return _whole(metadata, f"llama.{key}", default)

        heads, hidden = whole("attention.head_count"), whole("embedding_length")
        eos = metadata.get("tokenizer.ggml.eos_token_id")
        return cls(
            name=str(metadata.get("general.name", "unnamed")),
            layers=whole("block_count"),
            hidden=hidden,
            intermediate=whole("feed_forward_length"),
            heads=heads,
            kv_heads=whole("attention.head_count_kv", heads),
            head_dim=whole("attention.key_length", hidden // max(heads, 1)),
            vocab=vocab,
            context=whole("context_length"),
            rope_theta=number("rope.freq_base", 10000.0),
            norm_epsilon=number("attention.layer_norm_rms_epsilon"),
            is_tied=is_tied,
            eos_token_ids=(eos,) if isinstance(eos, int) else (),
        )

    @classmethod
    def from_huggingface(cls, values: Mapping[str, object], *, name: str) -> ModelConfig:
        """From the contents of a Hugging Face config.json."""
        _check_huggingface(values)
        heads, hidden = (_whole(values, k) for k in ("num_attention_heads", "hidden_size"))
        eos = values.get("eos_token_id")
        return cls(
            name=name,
            layers=_whole(values, "num_hidden_layers"),
            hidden=hidden,
            intermediate=_whole(values, "intermediate_size"),
            heads=heads,
            kv_heads=_whole(values, "num_key_value_heads", heads),
            head_dim=_whole(values, "head_dim", hidden // max(heads, 1)),
            vocab=_whole(values, "vocab_size"),
            context=_whole(values, "max_position_embeddings"),
            rope_theta=_number(_rope(values), "rope_theta", 10000.0),
            norm_epsilon=_number(values, "rms_norm_eps"),
            is_tied=bool(values.get("tie_word_embeddings", False)),
            eos_token_ids=tuple(
                token for token in (eos if isinstance(eos, list) else [eos]) if type(token) is int
            ),
        )


def _rope(values: Mapping[str, object]) -> Mapping[str, object]:
    """Where rope's numbers stand: `rope_parameters` in newer files, the top level in older."""
    parameters = values.get("rope_parameters")
    return parameters if isinstance(parameters, dict) else values


def _check_huggingface(values: Mapping[str, object]) -> None:
    architectures = values.get("architectures")
    if values.get("model_type") != "llama" or architectures not in (None, ["LlamaForCausalLM"]):
        raise _unsupported(architectures or values.get("model_type"))
    for key in ("attention_bias", "mlp_bias", "quantization_config"):
        if values.get(key):
            raise _unsupported(f"llama with {key}")
    if values.get("hidden_act", "silu") != "silu":
        raise _unsupported(f"llama with hidden_act {values['hidden_act']}")
    scaling = values.get("rope_scaling") or _rope(values)
    kind = scaling.get("rope_type", scaling.get("type")) if isinstance(scaling, Mapping) else None
    if kind not in (None, "default"):
        raise _unsupported(f"llama with {kind} rope scaling")


def _unsupported(what: object) -> MemscopeError:
    name = ", ".join(map(str, what)) if isinstance(what, list) else what
    return MemscopeError(f"The architecture {name} is not supported.", NEXT_STEP)


def _number(values: Mapping[str, object], key: str, default: float | None = None) -> float:
    value = values.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MemscopeError(f"The model's config has no number {key}.", NEXT_STEP)
    return value


def _whole(values: Mapping[str, object], key: str, default: int | None = None) -> int:
    value = _number(values, key, default)
    if isinstance(value, float) and not value.is_integer():
        raise MemscopeError(f"The model's config says {key} = {value}.", NEXT_STEP)
    return int(value)


def _check_size(config: ModelConfig, field: str, limit: int) -> None:
    value = getattr(config, field)
    if not isinstance(value, int) or not 0 < value <= limit:
        raise MemscopeError(f"The model's config says {field} = {value!r}.", NEXT_STEP)


def _check_constant(config: ModelConfig, field: str) -> None:
    value = getattr(config, field)
    if not 0 < value < 1e12:  # false for NaN, too
        raise MemscopeError(f"The model's config says {field} = {value!r}.", NEXT_STEP)
