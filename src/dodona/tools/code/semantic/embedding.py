"""Text embeddings: all-MiniLM-L6-v2, computed in numpy.

The model is BERT with six layers; a text's vector is the mean of its token vectors, normalized to
length 1. Only `SemanticScorer` imports this module, on use: its packages are optional and slow to
load.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file  # pyright: ignore[reportUnknownVariableType]
from tokenizers import Tokenizer

MAX_TOKENS: Final = 128  # per text; the start of a definition says most about it
BATCH_SIZE: Final = 4  # larger batches do not fit the CPU cache

_LAYER_COUNT: Final = 6
_HEAD_COUNT: Final = 12
_EPSILON: Final = 1e-12
_STORED_DTYPE: Final = np.float16  # half the size, with the same ranking

FloatArray: TypeAlias = NDArray[np.float32]


class Embedder:
    """The model with its files in `folder`. Methods block; use one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MAX_TOKENS)  # pyright: ignore[reportUnknownMemberType]
        weights = load_file(folder / "model.safetensors")
        self._weights = cast("Mapping[str, FloatArray]", weights)

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return a vector for each text, in the form that `similarities` expects."""
        return [vector.astype(_STORED_DTYPE).tobytes() for vector in self._compute_vectors(texts)]

    def similarities(self, query: bytes, vectors: Sequence[bytes]) -> list[float]:
        """Return the cosine similarity of each vector to the query."""
        query_vector = np.frombuffer(query, _STORED_DTYPE).astype(np.float32)
        matrix = np.frombuffer(b"".join(vectors), _STORED_DTYPE).astype(np.float32)
        return (matrix.reshape(-1, len(query_vector)) @ query_vector).tolist()

    def _compute_vectors(self, texts: Sequence[str]) -> Iterator[FloatArray]:
        for at in range(0, len(texts), BATCH_SIZE):
            encodings = self._tokenizer.encode_batch(list(texts[at : at + BATCH_SIZE]))
            yield from self._encode_batch([encoding.ids for encoding in encodings])

    def _encode_batch(self, texts: Sequence[Sequence[int]]) -> list[FloatArray]:
        """Encode texts. All tokens are rows of one matrix; only attention is per text."""
        ends = np.cumsum([0, *map(len, texts)]).tolist()
        spans = [slice(first, end) for first, end in pairwise(ends)]
        x = self._embed_tokens(texts)
        for number in range(_LAYER_COUNT):
            x = self._apply_layer(x, spans, f"encoder.layer.{number}")
        means = [cast("FloatArray", x[span].mean(axis=0)) for span in spans]
        return [mean / np.linalg.norm(mean).astype(np.float32) for mean in means]

    def _embed_tokens(self, texts: Sequence[Sequence[int]]) -> FloatArray:
        tokens = np.concatenate([np.array(text) for text in texts])
        positions = np.concatenate([np.arange(len(text)) for text in texts])
        x = self._weights["embeddings.word_embeddings.weight"][tokens]
        x = x + self._weights["embeddings.position_embeddings.weight"][positions]
        x += self._weights["embeddings.token_type_embeddings.weight"][0]
        return self._layer_norm(x, "embeddings.LayerNorm")

    def _apply_layer(self, x: FloatArray, spans: Sequence[slice], name: str) -> FloatArray:
        attended = self._dense(self._attend(x, spans, name), f"{name}.attention.output.dense")
        x = self._layer_norm(x + attended, f"{name}.attention.output.LayerNorm")
        inner = _gelu(self._dense(x, f"{name}.intermediate.dense"))
        return self._layer_norm(
            x + self._dense(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm"
        )

    def _attend(self, x: FloatArray, spans: Sequence[slice], name: str) -> FloatArray:
        query, key, value = (
            self._dense(x, f"{name}.attention.self.{part}") for part in ("query", "key", "value")
        )
        attended = np.empty_like(x)
        for span in spans:
            weights = _attention_weights(_split_heads(query[span]), _split_heads(key[span]))
            attended[span] = (
                (weights @ _split_heads(value[span])).transpose(1, 0, 2).reshape(-1, x.shape[1])
            )
        return attended

    def _dense(self, x: FloatArray, name: str) -> FloatArray:
        return x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _layer_norm(self, x: FloatArray, name: str) -> FloatArray:
        x = x - x.mean(axis=-1, keepdims=True)
        x /= np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(_EPSILON))
        return x * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


def _gelu(x: FloatArray) -> FloatArray:
    """GELU: x times the normal distribution function of x.

    numpy has no error function. This approximation by Hastings has an error below 2e-7.
    """
    z = np.abs(x) * np.float32(math.sqrt(0.5))
    t = 1 / (1 + np.float32(0.3275911) * z)
    series = np.full_like(t, 1.061405429)
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = series * t + np.float32(factor)
    error = 1 - series * t * np.exp(-z * z)
    return np.float32(0.5) * x * (1 + np.copysign(error, x))


def _attention_weights(query: FloatArray, key: FloatArray) -> FloatArray:
    """Return how much each token attends to each other: a softmax per head."""
    x = query @ key.transpose(0, 2, 1) / np.float32(math.sqrt(key.shape[-1]))
    x = np.exp(x - x.max(axis=-1, keepdims=True))
    return x / x.sum(axis=-1, keepdims=True)


def _split_heads(x: FloatArray) -> FloatArray:
    return x.reshape(len(x), _HEAD_COUNT, -1).transpose(1, 0, 2)
