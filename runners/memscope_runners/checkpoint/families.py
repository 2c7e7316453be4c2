"""Model families that can be read from a Hugging Face config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memscope.errors import MemscopeError
from memscope.text import clean
from memscope_runners.q8.config import ModelConfig, RopeScaling, number, unsupported, whole

Values = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Family:
    """What a model type implies beyond its config.json.

    `prefix` stands before the names of the text tower's tensors. `head_dim` and `rope_theta`:
    defaults of transformers if config.json has none; a head_dim of None is hidden / heads.
    """

    name: str
    architecture: str
    prefix: str = "model"
    head_dim: int | None = None
    rope_theta: float = 10000.0
    has_qk_norms: bool = False
    has_qkv_bias: bool = False
    is_tower: bool = False  # config.json describes it under text_config


FAMILIES: Mapping[str, Family] = {
    "llama": Family("Llama", "LlamaForCausalLM"),
    "qwen2": Family("Qwen2", "Qwen2ForCausalLM", has_qkv_bias=True),
    "qwen3": Family("Qwen3", "Qwen3ForCausalLM", head_dim=128, has_qk_norms=True),
    "qwen3_vl": Family(
        "Qwen3-VL, its text tower",
        "Qwen3VLForConditionalGeneration",
        prefix="model.language_model",
        head_dim=128,
        rope_theta=500_000.0,
        has_qk_norms=True,
        is_tower=True,
    ),
}


def family_of(values: Values) -> Family:
    """The family of a config.json. Raises MemscopeError for an unknown one."""
    kind, architectures = values.get("model_type"), values.get("architectures")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None or architectures not in (None, [family.architecture]):
        names = architectures if isinstance(architectures, list) and architectures else [kind]
        raise unsupported(f"The architecture {', '.join(map(str, names))}")
    return family


def read_config(values: Values, generation: Values, *, name: str, has_head: bool) -> ModelConfig:
    """Read config.json and generation_config.json (or None); `has_head`: whether lm_head is stored.

    Raises MemscopeError if it is malformed, and names what cannot be run.
    """
    family = family_of(values)
    text = _text_values(family, values)
    _check_features(family, values)
    _check_features(family, text)
    rope = _rope_values(family, text)
    heads, hidden = (whole(text, key) for key in ("num_attention_heads", "hidden_size"))
    context = whole(text, "max_position_embeddings")
    theta = {"rope_theta": rope.get("rope_theta", text.get("rope_theta"))}
    return ModelConfig(
        name=name,
        layers=whole(text, "num_hidden_layers"),
        hidden=hidden,
        intermediate=whole(text, "intermediate_size"),
        heads=heads,
        kv_heads=whole(text, "num_key_value_heads", heads),
        head_dim=whole(text, "head_dim", family.head_dim or hidden // max(heads, 1)),
        vocab=whole(text, "vocab_size"),
        context=context,
        rope_theta=number(theta, "rope_theta", family.rope_theta),
        norm_epsilon=number(text, "rms_norm_eps"),
        is_tied=_is_tied(values, text, has_head=has_head),
        eos_token_ids=_eos_token_ids(generation, values, text),
        has_qk_norms=family.has_qk_norms,
        has_qkv_bias=family.has_qkv_bias,
        rope_scaling=_rope_scaling(family, text, rope),
        family=family.name,
    )


def _text_values(family: Family, values: Values) -> Values:
    text = values.get("text_config") if family.is_tower else values
    if not isinstance(text, Mapping):
        raise MemscopeError("The model's config has no text_config.", "Fetch the model again.")
    return text


def _check_features(family: Family, values: Values) -> None:
    """Refuse, by name, features that would change the result but are not implemented."""
    quantization = values.get("quantization_config") or values.get("compression_config")
    if quantization:
        method = quantization.get("quant_method") if isinstance(quantization, Mapping) else None
        raise MemscopeError(
            f"The model's weights are quantized already ({clean(method or 'unnamed method', 40)}).",
            "Name the folder that this one was made from, in float32, float16 or bfloat16.",
        )
    if values.get("attention_bias") and not family.has_qkv_bias:
        raise unsupported(f"{family.name} with attention_bias, a bias on the output projection,")
    if values.get("mlp_bias"):
        raise unsupported(f"{family.name} with mlp_bias")
    if values.get("hidden_act", "silu") != "silu":
        raise unsupported(f"{family.name} with hidden_act {values['hidden_act']}")
    if _is_window_active(values):
        raise unsupported(f"{family.name} with a sliding window of {values.get('sliding_window')}")


def _is_window_active(values: Values) -> bool:
    """Whether some layer sees less than the context, by the rule of transformers' Qwen2Config."""
    if not values.get("use_sliding_window"):
        return False
    window, kinds = values.get("sliding_window", 4096), values.get("layer_types")
    if window is None or number(values, "sliding_window", 4096) >= number(
        values, "max_position_embeddings"
    ):
        return False
    if isinstance(kinds, list):
        return "sliding_attention" in kinds
    return number(values, "num_hidden_layers") > number(values, "max_window_layers", 28)


def _rope_values(family: Family, text: Values) -> Values:
    """`rope_scaling` of older files, which transformers prefers, or `rope_parameters`."""
    rope = text.get("rope_scaling") or text.get("rope_parameters") or {}
    if not isinstance(rope, Mapping):
        raise MemscopeError("The model's config has a malformed rope.", "Fetch the model again.")
    if any(isinstance(value, Mapping) for value in rope.values()):
        raise unsupported(f"{family.name} with a rope for each kind of layer")
    share = rope.get("partial_rotary_factor", text.get("partial_rotary_factor"))
    if share not in (None, 1):
        raise unsupported(f"{family.name} with partial_rotary_factor {share}")
    return rope


def _rope_scaling(family: Family, text: Values, rope: Values) -> RopeScaling | None:
    kind = rope.get("rope_type", rope.get("type"))
    # mrope: time, height and width of a position, all three the same number in text.
    if kind in (None, "default") or (kind == "mrope" and family.is_tower):
        return None
    if kind != "llama3":
        raise unsupported(f"{family.name} with {kind} rope scaling")
    original = "original_max_position_embeddings"
    within = whole(rope, original, whole(text, "max_position_embeddings"))
    return RopeScaling(
        factor=number(rope, "factor"),
        low_factor=number(rope, "low_freq_factor"),
        high_factor=number(rope, "high_freq_factor"),
        original_context=whole(text, original, within),
    )


def _is_tied(values: Values, text: Values, *, has_head: bool) -> bool:
    """What config.json says; if its two parts differ, whether an lm_head is stored."""
    said = [part.get("tie_word_embeddings") for part in (values, text)]
    stated = {value for value in said if isinstance(value, bool)}
    return not has_head if len(stated) == 2 else stated == {True}


def _eos_token_ids(*parts: Values) -> tuple[int, ...]:
    """All end tokens that the files name, in their order."""
    ids: list[object] = []
    for part in parts:
        eos = part.get("eos_token_id")
        ids += eos if isinstance(eos, list) else [eos]
    return tuple(dict.fromkeys(token for token in ids if type(token) is int))
