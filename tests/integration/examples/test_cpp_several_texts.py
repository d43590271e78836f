"""`generate` of the C++ examples with several prompts: the texts that Python writes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import device_agent.runtime as runtime
import sdk
from tests import tiny_decoder as tiny
from tests.tiny_bundle import write_tiny
from tests.unit.importers.decoders.models import save as save_model

pytestmark = pytest.mark.usefixtures("trusted_here")


def generated(
    generate: Path, bundle: Path, prompts: list[list[int]], *words: object
) -> tuple[list[list[int]], list[str]]:
    """Tokens of each text that the C++ program writes, and why each ended."""
    given = [str(token) for prompt in prompts for token in ["/", *prompt]][1:]
    command = [generate, bundle, *map(str, words), *given]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made: list[list[int]] = [[] for _ in prompts]
    for line in done.stdout.splitlines():
        text, token = map(int, line.split())
        made[text].append(token)
    return made, [line.partition(": ")[2] for line in done.stderr.splitlines()]


@pytest.mark.parametrize("most", [3, 100])
def test_cpp_ends_texts_where_python_does(generate: Path, tmp_path: Path, most: int) -> None:
    bundle = write_tiny(tmp_path, several=True)
    prompts = [[3], [1] * tiny.CONTEXT, [3, 1, 4, 1, 5, 9, 2, 6, 5], [3, 1, 4, 1, 5, 9, 2, 6, 8], [2, 9, 4]]
    made, reasons = generated(generate, bundle, prompts, "--max-tokens", most)
    texts = runtime.load(bundle).generate_many(prompts, max_tokens=most)
    wanted: list[list[int]] = [[] for _ in prompts]
    for text, token in texts:
        wanted[text].append(int(token))
    assert made == wanted and len(made) > len(set(map(len, made)))
    assert reasons == ["the context is full" if "context" in one else one for one in texts.stopped]


@pytest.mark.long
def test_texts_together_are_those_one_by_one_in_float32(generate: Path, tmp_path: Path) -> None:
    save_model(tmp_path / "qwen", "qwen3", head_dim=32, max_position_embeddings=256)
    sdk.compile(
        tmp_path / "qwen", output=tmp_path / "text", backend="tvm", threads=1, context_tokens=112, sequences=3
    )
    begin = [place * 7 % 128 for place in range(41)]
    prompts = [[*begin, 5], [9], [*begin, 6, 7], [1, 2, 3]]
    model = runtime.load(tmp_path / "text")
    alone = [list(model.generate(prompt, max_tokens=48, speculate=False)) for prompt in prompts]
    together: list[list[int]] = [[] for _ in prompts]
    texts = model.generate_many(prompts, max_tokens=48)
    for text, token in texts:
        together[text].append(int(token))
    assert together == alone and len({token for text in alone for token in text}) > 9
    assert texts.timing.reused_tokens >= len(begin)
    assert generated(generate, tmp_path / "text", prompts, "--max-tokens", 48)[0] == alone
