"""The data of the catalogue: context windows, output limits, vocabularies, and who can think.

Names are spelled as their vendors spell them; the catalogue normalizes them. A figure is listed
if the vendor publishes it or a seed document requires it; genai-prices has many more windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """The vocabulary of all models whose names share a prefix.

    `vocabulary` is a splintr name. `factor` is the expected number of billed tokens per token
    counted with it: 1 if it is the model's own vocabulary, more if that one is not public.
    """

    vocabulary: str
    factor: float = 1.0


# Claude's vocabulary is not public. Published comparisons count 15–30 % more tokens than o200k,
# less for prose than for code; for Opus 4.7 and later, Anthropic states about 30 % more again. The
# factors are high: a reservation should not be too small.
CLAUDE_FACTOR: Final = 1.25
NEW_CLAUDE_FACTOR: Final = 1.6
STAND_IN_FACTOR: Final = 1.2

UNKNOWN_FAMILY: Final = ModelFamily("o200k_base", STAND_IN_FACTOR)

_CLAUDE = ModelFamily("o200k_base", CLAUDE_FACTOR)
_NEW_CLAUDE = ModelFamily("o200k_base", NEW_CLAUDE_FACTOR)
_CL100K = ModelFamily("cl100k_base")
_O200K = ModelFamily("o200k_base")
# Gemma and Gemini share a vocabulary; gemma4 counts the same as gemma3, fifty times faster.
_GEMMA = ModelFamily("gemma4")
_DEEPSEEK = ModelFamily("deepseek_v3")
_LLAMA_3 = ModelFamily("llama3")
_QWEN_3 = ModelFamily("qwen3")
_MISTRAL_V2 = ModelFamily("mistral_v2")
_TEKKEN = ModelFamily("mistral_v3")

FAMILIES: Final[dict[str, ModelFamily]] = {
    "claude": _NEW_CLAUDE,
    "claude-2": _CLAUDE,
    "claude-3": _CLAUDE,
    **{f"claude-{kind}-4": _CLAUDE for kind in ("opus", "sonnet", "haiku")},
    "claude-opus-4-7": _NEW_CLAUDE,
    "claude-opus-4-8": _NEW_CLAUDE,
    "gpt-3.5": _CL100K,
    "gpt-4": _CL100K,
    **dict.fromkeys(("gpt-4o", "gpt-4.1", "gpt-4.5", "gpt-5", "chatgpt-4o"), _O200K),
    **dict.fromkeys(("codex-mini", "o1", "o3", "o4"), _O200K),
    "gpt-oss": ModelFamily("gpt-oss"),
    "gemini": ModelFamily("gemma4", STAND_IN_FACTOR),
    **{f"gemini-{version}": _GEMMA for version in ("1.5", "2.0", "2.5", "3")},
    "gemma": _GEMMA,
    "deepseek": ModelFamily("deepseek_v3", STAND_IN_FACTOR),
    **{f"deepseek-{kind}": _DEEPSEEK for kind in ("chat", "reasoner", "v3", "r1")},
    "deepseek-r1-distill-llama": _LLAMA_3,
    "deepseek-r1-distill-qwen": _QWEN_3,
    "llama": _LLAMA_3,
    "llama-2": ModelFamily("llama2"),
    "llama-4": ModelFamily("llama3", STAND_IN_FACTOR),
    "codellama": ModelFamily("codellama"),
    "qwen": _QWEN_3,
    **{f"qwen3.{minor}": ModelFamily("qwen3", STAND_IN_FACTOR) for minor in (5, 6, 7, 8)},
    "qwq": _QWEN_3,
    **dict.fromkeys(("mistral-7b", "mixtral", "codestral"), _MISTRAL_V2),
    **dict.fromkeys(("mistral", "ministral", "devstral", "pixtral", "magistral"), _TEKKEN),
    "kimi": ModelFamily("kimi_k2", STAND_IN_FACTOR),
    "kimi-k2": ModelFamily("kimi_k2"),
    "kimi-k3": ModelFamily("kimi_k3"),
    "glm": ModelFamily("glm4", STAND_IN_FACTOR),
    "glm-4": ModelFamily("glm4"),
    "phi-4": ModelFamily("phi4"),
    "phi-4-mini": UNKNOWN_FAMILY,
}

DEFAULT_MODEL_CONTEXT_SIZES: Final[dict[str, int]] = {
    "deepseek/deepseek-chat": 64_000,
    "deepseek/deepseek-r1": 64_000,
    "anthropic/claude-3-opus": 200_000,
    "anthropic/claude-sonnet-4": 200_000,
    "gemini-2.0-flash-exp": 1_000_000,
    "openai/gpt-4-turbo": 128_000,
    "openai/o1": 200_000,
    "meta-llama/llama-3.3-70b": 131_072,
    "claude-2": 200_000,
    "claude-3-sonnet": 200_000,
    "claude-3-haiku": 200_000,
    "claude-3-5-sonnet": 200_000,
    "claude-3-5-haiku": 200_000,
    "claude-3-7-sonnet": 200_000,
    "claude-opus-4": 200_000,
    "claude-opus-4-1": 200_000,
    "claude-opus-4-5": 200_000,
    "claude-opus-4-6": 1_000_000,
    "claude-opus-4-7": 1_000_000,
    "claude-opus-4-8": 1_000_000,
    "claude-opus-5": 1_000_000,
    "claude-opus-5-5": 1_000_000,
    "claude-sonnet-4-5": 200_000,
    "claude-sonnet-4-6": 1_000_000,
    "claude-sonnet-5": 1_000_000,
    "claude-sonnet-5-5": 1_000_000,
    "claude-haiku-4-5": 200_000,
    "claude-haiku-5-5": 1_000_000,
    "claude-fable-5": 1_000_000,
    "claude-fable-5-1": 1_000_000,
    "gpt-3.5-turbo": 16_385,
    "gpt-4": 8_192,
    "gpt-4-32k": 32_768,
    "gpt-4-1106-preview": 128_000,
    "gpt-4-0125-preview": 128_000,
    "gpt-4o": 128_000,
    "gpt-4o-mini": 128_000,
    "chatgpt-4o-latest": 128_000,
    "gpt-4.1": 1_047_576,
    "gpt-4.1-mini": 1_047_576,
    "gpt-4.1-nano": 1_047_576,
    "gpt-4.5-preview": 128_000,
    "gpt-5": 400_000,
    "gpt-5-mini": 400_000,
    "gpt-5-nano": 400_000,
    "gpt-5-pro": 400_000,
    "gpt-5.1": 400_000,
    "gpt-5.2": 400_000,
    "gpt-oss": 131_072,
    "gpt-oss-20b": 131_072,
    "gpt-oss-120b": 131_072,
    "codex-mini": 200_000,
    "o1-mini": 128_000,
    "o1-preview": 128_000,
    "o1-pro": 200_000,
    "o3": 200_000,
    "o3-mini": 200_000,
    "o3-pro": 200_000,
    "o4-mini": 200_000,
    "gemini-1.5-pro": 2_000_000,
    "gemini-1.5-flash": 1_000_000,
    "gemini-2.0-flash": 1_048_576,
    "gemini-2.0-flash-lite": 1_048_576,
    "gemini-2.5-pro": 1_048_576,
    "gemini-2.5-flash": 1_048_576,
    "gemini-2.5-flash-lite": 1_048_576,
    "gemini-3-pro": 1_048_576,
    "gemini-3-flash": 1_048_576,
    "gemma-2": 8_192,
    "gemma-3": 131_072,
    "gemma-3-1b": 32_768,
    "gemma-3n": 32_768,
    "gemma-4": 262_144,
    "deepseek-reasoner": 64_000,
    "deepseek-v3": 131_072,
    "deepseek-v3.1": 131_072,
    "deepseek-v3.2": 131_072,
    "deepseek-r1-0528": 131_072,
    "deepseek-r1-distill-llama-70b": 131_072,
    "deepseek-r1-distill-qwen-32b": 131_072,
    "llama-2": 4_096,
    "codellama": 16_384,
    "llama-3": 8_192,
    "llama-3.1": 131_072,
    "llama-3.2": 131_072,
    "llama-3.3": 131_072,
    "llama-4-scout": 10_485_760,
    "llama-4-maverick": 1_048_576,
    "qwen2.5": 32_768,
    "qwen2.5-72b": 131_072,
    "qwen2.5-coder": 32_768,
    "qwen3": 40_960,
    "qwen3-coder": 262_144,
    "qwen3-next": 262_144,
    "qwen3-max": 262_144,
    "qwq": 131_072,
    "mistral-7b": 32_768,
    "mistral-nemo": 131_072,
    "mistral-small": 32_768,
    "mistral-small-3.1": 131_072,
    "mistral-small-3.2": 131_072,
    "mistral-medium": 131_072,
    "mistral-large": 131_072,
    "mistral-large-2512": 262_144,
    "mixtral-8x7b": 32_768,
    "mixtral-8x22b": 65_536,
    "codestral": 32_768,
    "codestral-2508": 262_144,
    "ministral-3b": 131_072,
    "ministral-8b": 131_072,
    "magistral": 40_960,
    "devstral": 131_072,
    "pixtral": 131_072,
    "grok-2": 131_072,
    "grok-3": 131_072,
    "grok-3-mini": 131_072,
    "grok-4": 256_000,
    "grok-4-fast": 2_000_000,
    "grok-code-fast-1": 256_000,
    "kimi-k2": 131_072,
    "kimi-k2-0905": 262_144,
    "kimi-k2-thinking": 262_144,
    "glm-4": 131_072,
    "glm-4.5": 131_072,
    "glm-4.6": 200_000,
    "minimax-m2": 204_800,
    "command-r": 128_000,
    "command-r-plus": 128_000,
    "command-r7b": 128_000,
    "command-a": 256_000,
    "phi-4": 16_384,
    "phi-4-mini": 131_072,
    "nova-micro": 128_000,
    "nova-lite": 300_000,
    "nova-pro": 300_000,
    "smollm2": 8_192,
    # Whole families: no newer member has a smaller window.
    "claude": 200_000,
    "gpt": 128_000,
    "gemini": 131_072,
    "deepseek": 64_000,
    "qwen": 32_768,
    "grok": 131_072,
    "kimi": 131_072,
    "glm": 131_072,
}
"""Context windows in tokens, input and output together. The first eight are from seed 002."""

MAX_OUTPUTS: Final[dict[str, int]] = {
    "claude": 128_000,
    "claude-2": 4_096,
    "claude-3": 4_096,
    "claude-3-5": 8_192,
    "claude-3-7": 64_000,
    "claude-opus-4": 32_000,
    "claude-opus-4-1": 32_000,
    "claude-opus-4-5": 64_000,
    "claude-opus-4-6": 128_000,
    "claude-opus-4-7": 128_000,
    "claude-opus-4-8": 128_000,
    "claude-sonnet-4": 64_000,
    "claude-sonnet-4-6": 128_000,
    "claude-haiku-4": 64_000,
    "gpt-3.5-turbo": 4_096,
    "gpt-4": 8_192,
    "gpt-4-turbo": 4_096,
    "gpt-4-1106-preview": 4_096,
    "gpt-4-0125-preview": 4_096,
    "gpt-4o": 16_384,
    "chatgpt-4o": 16_384,
    "gpt-4.1": 32_768,
    "gpt-4.5": 16_384,
    "gpt-5": 128_000,
    "gpt-5-pro": 272_000,
    "gpt-5.1": 128_000,
    "gpt-5.2": 128_000,
    "o1": 100_000,
    "o1-mini": 65_536,
    "o1-preview": 32_768,
    "o3": 100_000,
    "o4": 100_000,
    "gemini-1.5": 8_192,
    "gemini-2.0": 8_192,
    "gemini-2.5": 65_536,
    "gemini-3": 65_536,
    "deepseek-chat": 8_192,
    "deepseek-reasoner": 32_768,
}
"""Maximum output tokens per answer, by prefix of the model name."""

THINKING_MODELS: Final[dict[str, bool]] = {
    "claude": True,
    **dict.fromkeys(("claude-2", "claude-3", "claude-instant"), False),
    "claude-3-7": True,
    **dict.fromkeys(("gpt-5", "gpt-6", "gpt-oss", "codex-mini"), True),
    **{f"gpt-5{minor}-chat": False for minor in ("", ".1", ".2", ".3")},
    **dict.fromkeys(("o1", "o3", "o4"), True),
    **dict.fromkeys(("o1-mini", "o1-preview"), False),
    **{f"gemini-{version}": True for version in ("2.5", "3")},
    **{f"deepseek-{kind}": True for kind in ("chat", "flash", "reasoner", "r1", "v3.1", "v3.2")},
    **dict.fromkeys(("qwen3", "qwq", "magistral", "kimi-k2-thinking"), True),
    **{f"qwen3-{kind}": False for kind in ("coder", "embedding", "max", "next", "vl")},
    **dict.fromkeys(("glm-4.5", "glm-4.6", "minimax-m2"), True),
}
"""Whether a model accepts parameters for thinking, by prefix of its name. Others do not get any."""
