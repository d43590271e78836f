"""`generate` of the C++ examples: the texts that Python writes, in the same memory."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import device_agent.runtime as runtime
import sdk
from host.bundle import load as load_bundle
from tests import tiny_decoder as tiny
from tests.decoders.spoiled_prompts import other_first_value, spoiled
from tests.integration.examples.running import EXAMPLES, ROOT
from tests.tiny_bundle import write_tiny
from tests.unit.importers.decoders.models import save as save_model


@pytest.fixture(scope="module")
def text_bundle(folder: Path) -> Path:
    """A language model with places for 560 tokens."""
    save_model(folder / "qwen", "qwen3", head_dim=32, max_position_embeddings=1024)
    sdk.compile(
        folder / "qwen", output=folder / "text", backend="tvm", threads=1, context_tokens=560, quantize="int4"
    )
    return folder / "text"


def generated(generate: Path, bundle: Path, *words: object) -> tuple[list[int], list[str]]:
    """Tokens that the C++ program writes, and what it says of them."""
    command = [generate, bundle, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()], done.stderr.splitlines()


@pytest.mark.usefixtures("trusted_here")
def test_cpp_writes_what_python_does_in_the_same_memory(generate: Path, text_bundle: Path) -> None:
    # More than a chunk, and a rest.
    prompt = [place * 7 % 128 for place in range(41)]
    # Steps alone, so that both programs make the same calls: when drafts pay is measured.
    words = ("--speculate", "never", "--max-tokens", 510, "--memory", *prompt)
    found, said = generated(generate, text_bundle, *words)
    assert found == list(runtime.load(text_bundle).generate(prompt, max_tokens=510, speculate=False))
    assert len(found) == 510 and len(set(found)) > 9
    *pages, summary = said
    assert summary.startswith("510 tokens, ") and summary.endswith("; max_tokens")
    counted = {int(line.split()[1].rstrip(":")): int(line.split()[2]) for line in pages}
    assert list(counted) == [100, 200, 300, 400, 500]
    assert counted[500] - counted[100] <= 2


@pytest.mark.usefixtures("trusted_here")
@pytest.mark.parametrize("length", [21, 550])
def test_cpp_takes_a_prompt_by_the_calls_of_python(
    length: int, generate: Path, text_bundle: Path, tmp_path: Path
) -> None:
    """Less than a chunk, which another rule would give to steps, and a rest at the end of the context."""
    prompt = [place * 7 % 128 for place in range(length)]
    generated(generate, text_bundle, "--max-tokens", 1, "--save", tmp_path / "cpp", *prompt)
    model = runtime.load(text_bundle)
    assert len(list(model.generate(prompt, max_tokens=1))) == 1
    model.save_prompt(tmp_path / "python")
    states = [state_in(tmp_path / name) for name in ("cpp", "python")]
    assert states[0] == states[1] and len(states[0]) > 560 * 2 * 2 * 32


def state_in(kept: Path) -> bytes:
    """The state in the file of a prompt: behind the name of the format, the header and its length, and before
    the digest.
    """
    content = kept.read_bytes()
    return content[20 + int.from_bytes(content[16:20], "little") : -32]


@pytest.mark.usefixtures("trusted_here")
def test_cpp_takes_long_chunks_where_python_does(generate: Path, tmp_path: Path) -> None:
    """What is kept of the first token of each chunk is off by its kind, so that the state shows the calls."""
    bundle = write_tiny(
        tmp_path / "tiny", prefilling=tiny.forgetful_steps, long_prefilling=tiny.forgetful_long_steps
    )
    seen: set[float] = set()
    for length in (1, 4, 5, 6, 8, 11, 12, 14, 17, 24, 29, 31, 32):
        prompt = [place * 7 % 11 for place in range(length)]
        generated(generate, bundle, "--max-tokens", 1, "--save", tmp_path / "cpp", *prompt)
        model = runtime.load(bundle)
        list(model.generate(prompt, max_tokens=1))
        model.save_prompt(tmp_path / "python")
        state = state_in(tmp_path / "cpp")
        assert state == state_in(tmp_path / "python"), length
        kept = np.frombuffer(state, np.float32)[: len(prompt)]
        seen |= set((kept - prompt).tolist())
    # Steps, short chunks and long ones.
    assert seen == {0.0, 1.0, 2.0}


@pytest.mark.usefixtures("trusted_here")
def test_cpp_writes_and_keeps_what_python_does_with_keys_and_values_of_bytes(
    generate: Path, text_bundle: Path, folder: Path, tmp_path: Path
) -> None:
    bundle = folder / "bytes"
    sdk.compile(folder / "qwen", output=bundle, backend="tvm", threads=1, context_tokens=80, cache="int8")
    prompt, kept = [place * 7 % 128 for place in range(41)], tmp_path / "kept"
    found, _ = generated(generate, bundle, "--max-tokens", 30, "--save", kept, *prompt)
    assert len(found) == 30 and len(set(found)) > 3
    with sdk.load_language_model(bundle) as model:
        assert found == list(model.generate(prompt, max_tokens=30))
    # The state of the C++ program, scales and all, in the Python runtime.
    with sdk.load_language_model(bundle) as model:
        assert model.load_prompt(kept) == len(prompt) + 29


@pytest.mark.usefixtures("trusted_here")
def test_threads_that_share_positions_write_the_text_of_one_thread(generate: Path, folder: Path) -> None:
    """A model with one head of keys: all of both threads' work is parts of its positions.

    Its 16 heads of queries are so much work that threads are woken before the text ends.
    """
    sizes = {
        "head_dim": 128,
        "num_attention_heads": 16,
        "num_key_value_heads": 1,
        "max_position_embeddings": 8192,
    }
    save_model(folder / "one-head", "qwen3", **sizes)
    prompt, most = [place * 7 % 128 for place in range(41)], 150
    texts = []
    for threads in (1, 2):
        made = folder / f"threads-{threads}"
        sdk.compile(
            folder / "one-head", output=made, backend="tvm", threads=threads, context_tokens=8192, sequences=2
        )
        model = runtime.load(made)
        texts += [list(model.generate(prompt, max_tokens=most, speculate=one)) for one in (False, True)]
        several = model.generate_many([prompt, prompt[:9]], max_tokens=most)
        texts.append([int(token) for text, token in several if text == 0])
        texts.append(generated(generate, made, "--max-tokens", most, *prompt)[0])
    kernels = [one for one in load_bundle(made).kernels if one.rule == "cached_attention"]
    assert kernels and all(one.decisions == {"splits": 2, "parallel": 2} for one in kernels)
    assert all(text == texts[0] for text in texts) and len(set(texts[0])) > 9


@pytest.mark.usefixtures("trusted_here")
@pytest.mark.parametrize("how", [[], ["--temperature", 0.5, "--seed", 4]], ids=str)
def test_cpp_writes_the_same_text_by_speculation(
    generate: Path, text_bundle: Path, how: list[object]
) -> None:
    prompt = [5, 6, 7, 8, 9] * 3
    words = ("--max-tokens", 300, *how, *prompt)
    plain, [said] = generated(generate, text_bundle, "--speculate", "never", *words)
    assert ", 0 by speculation, " in said
    found, [said] = generated(generate, text_bundle, "--speculate", "always", *words)
    assert found == plain and ", 0 by speculation, " not in said
    assert generated(generate, text_bundle, *words)[0] == plain


@pytest.mark.usefixtures("trusted_here")
def test_cpp_draws_the_same_tokens_with_the_same_seed(generate: Path, text_bundle: Path) -> None:
    def drawn(seed: int, *options: object) -> list[int]:
        words = ("--temperature", 3, "--max-tokens", 12, "--seed", seed, *options, 5, 6)
        return generated(generate, text_bundle, *words)[0]

    assert drawn(1) == drawn(1)
    assert len({tuple(drawn(seed)) for seed in range(4)}) == 4
    greedy, _ = generated(generate, text_bundle, "--max-tokens", 12, 5, 6)
    assert drawn(1, "--top-k", 1) == drawn(2, "--top-p", 1e-9) == greedy
    assert drawn(3, "--top-k", 20, "--top-p", 0.9) != greedy
    # And those that Python draws.
    with sdk.load_language_model(text_bundle) as model:
        for how in ({}, {"top_k": 20}, {"top_p": 0.7}, {"top_k": 30, "top_p": 0.8}):
            words = [word for name, value in how.items() for word in (f"--{name.replace('_', '-')}", value)]
            options = {"max_tokens": 12, "temperature": 3.0, "seed": 5, **how}
            assert list(model.generate([5, 6], **options)) == drawn(5, *words)


_CHOOSES = """
#include <cmath>
#include <cstdio>
#include "generator.h"

int main() {
  const float none[] = {-INFINITY, -INFINITY}, one[] = {-INFINITY, 1.0F};
  for (const double temperature : {0.0, 1.0}) {
    edgetlm::Sampling how;
    how.temperature = temperature;
    edgetlm::Sampler sampler(how);
    std::printf("%d ", sampler.choose(one, 2));
    try {
      std::printf("%d ", sampler.choose(none, 2));
    } catch (const std::runtime_error&) {
      std::printf("refused ");
    }
  }
}
"""


def test_cpp_chooses_nothing_of_logits_that_are_all_minus_infinity(generate: Path, tmp_path: Path) -> None:
    """As Python does; a token that others rule out may have such a logit."""
    (tmp_path / "choose.cc").write_text(_CHOOSES)
    found = find_spec("tvm_ffi")
    assert found is not None and found.origin is not None
    # As `generate` is built, so that no other C++ library is.
    machine = platform.machine()
    command = [sys.executable, "-m", "ziglang", "c++", "-target", f"{machine}-linux-gnu.2.28", "-std=c++17"]
    own = [EXAMPLES / "cpp", ROOT / "device_agent" / "native", generate.parent / f"made-{machine}"]
    command += ["-O2", "-s", *(f"-I{folder}" for folder in own)]
    command += ["-isystem", str(Path(found.origin).parent / "include"), "choose.cc", "-o", "choose"]
    subprocess.run(command, cwd=tmp_path, check=True)
    said = subprocess.run([tmp_path / "choose"], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["1", "refused"] * 2


@pytest.mark.usefixtures("trusted_here")
def test_a_prompt_that_python_keeps_continues_in_cpp_and_the_other_way(
    generate: Path, text_bundle: Path, tmp_path: Path
) -> None:
    prompt = [place * 7 % 128 for place in range(41)]
    longer, count = [*prompt, 9, 4], 20
    with sdk.load_language_model(text_bundle) as model:
        assert len(list(model.generate(prompt, max_tokens=1))) == 1
        assert model.save_prompt(tmp_path / "python") == len(prompt)
        wanted = list(model.generate(longer, max_tokens=count))
    words = ("--save", tmp_path / "cpp", "--max-tokens", 1, *prompt)
    assert len(generated(generate, text_bundle, *words)[0]) == 1
    assert not list(tmp_path.glob("*.part"))
    for name in ("python", "cpp"):
        words = ("--load", tmp_path / name, "--max-tokens", count, *longer)
        found, said = generated(generate, text_bundle, *words)
        assert found == wanted and said[0] == "41 tokens of a prompt were loaded"
        with sdk.load_language_model(text_bundle) as model:
            assert model.load_prompt(tmp_path / name) == len(prompt)
            assert list(model.generate(longer, max_tokens=count)) == wanted
            assert model.timing.reused_tokens == len(prompt)


@pytest.mark.usefixtures("trusted_here")
def test_cpp_reads_the_state_of_a_kept_prompt_and_refuses_others(generate: Path, tmp_path: Path) -> None:
    bundle, path = write_tiny(tmp_path / "tiny"), tmp_path / "prompt"
    prompt = [3, 1, 4, 1, 5, 9, 2, 6, 5]
    generated(generate, bundle, "--save", path, "--max-tokens", 1, *prompt)
    whole = path.read_bytes()
    # Values that only the file has are read: the state is taken from it.
    path.write_bytes(other_first_value(whole, 4.0))
    found, _ = generated(generate, bundle, "--load", path, "--max-tokens", 1, *prompt, 7)
    assert found == [tiny.next_token([4, *prompt[1:], 7])]
    [content] = re.findall(rb"[0-9a-f]{64}", whole)
    for data, words in spoiled(whole, content.decode()):
        path.write_bytes(data)
        command = [generate, bundle, "--load", path, "--max-tokens", "1", "3"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        [line] = done.stderr.splitlines()
        assert line.startswith("error: ") and words in line and line.endswith(": save the prompt again")
    path.unlink()
    for words in ("--load", "--save"):
        place = path if words == "--load" else tmp_path / "no" / "folder"
        command = [generate, bundle, words, place, "--max-tokens", "1", "3"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1 and ("no such file" in done.stderr or "cannot be written" in done.stderr)


@pytest.mark.usefixtures("trusted_here")
def test_cpp_ends_a_text_where_python_does(generate: Path, tmp_path: Path) -> None:
    bundle = write_tiny(tmp_path)
    for prompt in ([3, 1, 4], [1], list(range(8)) * 4):
        tokens = list(prompt)
        while len(tokens) <= tiny.CONTEXT and tiny.next_token(tokens) != tiny.END:
            tokens.append(tiny.next_token(tokens))
        full = len(tokens) > tiny.CONTEXT
        found, [said] = generated(generate, bundle, *prompt)
        assert found == tokens[len(prompt) :]
        assert said.endswith("; the context is full" if full else "; end of text")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "the prompt is empty"),
        ([1] * 33, "the prompt has 33 tokens, the model has a context of 32"),
        ([13], "token 13 is not of the model's vocabulary, 0 to 12"),
        ([-1], "token -1 is not"),
        (["1x"], "'1x' is not a number"),
        ([1.5], "'1.5' is not a whole number"),
        (["--max-tokens", 0, 1], "the number of tokens to generate is not 1 or more"),
        (["--temperature", -1, 1], "temperature is not 0 or more"),
        (["--top-p", 0, 1], "top_p is not above 0"),
        (["--seed"], "generate BUNDLE"),
        (["--speculate", "often", 1], "--speculate is measured, always or never"),
    ],
)
@pytest.mark.usefixtures("trusted_here")
def test_cpp_refuses_prompts_that_are_none(
    generate: Path, tmp_path: Path, words: list[object], message: str
) -> None:
    command = [generate, write_tiny(tmp_path), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ") and message in done.stderr


@pytest.mark.usefixtures("trusted_here")
def test_cpp_generates_with_language_models_only(generate: Path, pair_bundle: Path) -> None:
    command = [generate, pair_bundle, "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "not a language model's" in done.stderr
