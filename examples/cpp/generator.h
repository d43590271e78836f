// Texts of a language model's bundle, as numbers of tokens: what `model.generate([...])` is in Python.
//
//     edgetlm::Bundle model("/path/to/bundle");
//     edgetlm::Generator generator(model);
//     generator.generate({1, 887, 526}, 64, {}, [](int32_t token) { std::printf("%d\n", token); return true; });
//
// A tokenizer is the application's own; the bundle's is its file tokenizer.json. One thread at a time.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "bundle.h"
#include "speculation.h"

namespace edgetlm {

// How tokens are chosen: at temperature 0 always the most likely one, above drawn: of the `top_k` likeliest (0: of
// all), and of the fewest likeliest whose probabilities sum up to `top_p`. The same seed draws the same tokens.
struct Sampling {
  double temperature = 0.0;
  int64_t top_k = 0;
  double top_p = 1.0;
  uint64_t seed = 0;
};

class Sampler {
 public:
  explicit Sampler(const Sampling& how) : how_(how), random_(how.seed) {
    if (!(how.temperature >= 0.0 && std::isfinite(how.temperature))) refuse("temperature", "0 or more");
    if (how.top_k < 0) refuse("top_k", "0 or more");
    if (!(how.top_p > 0.0 && how.top_p <= 1.0)) refuse("top_p", "above 0 and at most 1");
  }

  int32_t choose(const float* logits, size_t count) {
    const float* top = std::max_element(logits, logits + count);
    if (how_.temperature == 0.0) return static_cast<int32_t>(top - logits);
    weights_.resize(count);
    double total = 0.0;
    for (size_t token = 0; token < count; ++token) {
      weights_[token] = std::exp((static_cast<double>(logits[token]) - *top) / how_.temperature);
      total += weights_[token];
    }
    tokens_.resize(count);
    std::iota(tokens_.begin(), tokens_.end(), 0);
    if (how_.top_k > 0 || how_.top_p < 1.0) keep_likeliest(&total);
    // 53 bits, on every system the same: the distributions of the C++ library are its own.
    double place = static_cast<double>(random_() >> 11) * 0x1p-53 * total;
    for (const int32_t token : tokens_) {
      place -= weights_[static_cast<size_t>(token)];
      if (place < 0.0) return token;
    }
    return tokens_.back();
  }

 private:
  [[noreturn]] static void refuse(const char* name, const char* range) {
    throw std::invalid_argument(std::string(name) + " is not " + range);
  }

  // Leaves the tokens to draw from, the likeliest first, and the sum of their weights.
  void keep_likeliest(double* total) {
    if (how_.top_k == 0) {
      // All tokens with less weight together are less than what is left out: they need not be sorted.
      const double least = (1.0 - how_.top_p) * *total / static_cast<double>(tokens_.size());
      const auto unlikely = [&](int32_t token) { return weights_[static_cast<size_t>(token)] < least; };
      tokens_.erase(std::remove_if(tokens_.begin(), tokens_.end(), unlikely), tokens_.end());
    }
    const size_t most = how_.top_k == 0 ? tokens_.size() : std::min(tokens_.size(), static_cast<size_t>(how_.top_k));
    const auto likelier = [this](int32_t one, int32_t other) {
      const double first = weights_[static_cast<size_t>(one)], second = weights_[static_cast<size_t>(other)];
      return first != second ? first > second : one < other;
    };
    std::partial_sort(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(most), tokens_.end(), likelier);
    tokens_.resize(most);
    if (how_.top_k > 0) *total = sum();
    const double wanted = how_.top_p * *total;
    double reached = 0.0;
    size_t kept = 0;
    while (kept < most && (kept == 0 || reached < wanted)) reached += weights_[static_cast<size_t>(tokens_[kept++])];
    tokens_.resize(kept);
    *total = reached;
  }
  double sum() const {
    double total = 0.0;
    for (const int32_t token : tokens_) total += weights_[static_cast<size_t>(token)];
    return total;
  }

  Sampling how_;
  std::mt19937_64 random_;
  // Kept, so that a token allocates nothing.
  std::vector<double> weights_;
  std::vector<int32_t> tokens_;
};

// Why a text ended.
enum class Stopped { end_of_text, max_tokens, context_full, left };

class Generator {
 public:
  // The bundle has to outlive it, and is not to be run by others meanwhile.
  explicit Generator(const Bundle& bundle) : bundle_(bundle), decoder_(bundle.decoder), pace_(decoder_.verified) {
    if (decoder_.context == 0) throw std::runtime_error("the bundle is not a language model's: use run_bundle");
    const TensorInfo one{"position", {1}, "int32", {}}, chunk{"tokens", {decoder_.chunk}, "int32", {}};
    prefill_ = bundle.entry("prefill", {chunk, one, one});
    if (decoder_.verified > 0) {
      verify_ = bundle.entry("verify", {TensorInfo{"tokens", {decoder_.verified}, "int32", {}}, one});
      // What a call needs is allocated now, and not in the middle of a text.
      std::fill_n(integers(verify_.input(0)), decoder_.verified, 0);
      *integers(verify_.input(1)) = 0;
      verify_.run();
    }
    known_.reserve(static_cast<size_t>(decoder_.context) + 1);
  }

  // Continues a text. `take` gets each token, without one that ends the text, and returns whether to go on.
  Stopped generate(const std::vector<int32_t>& prompt, int64_t max_tokens, const Sampling& how,
                   const std::function<bool(int32_t)>& take, Speculate speculate = Speculate::measured) {
    check(prompt, max_tokens);
    Sampler sampler(how);
    speculated_ = 0;
    std::vector<int32_t> tokens = prompt;
    tokens.reserve(static_cast<size_t>(decoder_.context) + 1);
    std::vector<int32_t> chosen{behind(tokens, &sampler)};
    for (int64_t made = 0;;) {
      for (const int32_t token : chosen) {
        if (ends(token)) return Stopped::end_of_text;
        tokens.push_back(token);
        if (!take(token)) return Stopped::left;
        if (++made == max_tokens) return Stopped::max_tokens;
        if (tokens.size() > static_cast<size_t>(decoder_.context)) return Stopped::context_full;
      }
      const std::vector<int32_t> draft = drafted(tokens, max_tokens - made - 1, speculate);
      using Clock = std::chrono::steady_clock;
      const Clock::time_point begin = Clock::now();
      chosen = draft.empty() ? std::vector<int32_t>{behind(tokens, &sampler)} : verified(tokens, draft, &sampler);
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      speculated_ += static_cast<int64_t>(chosen.size()) - 1;
      if (draft.empty()) {
        pace_.step(seconds);
      } else {
        pace_.verification(seconds, chosen.size());
      }
    }
  }

  // Tokens of the last text that were drafted and turned out right: no step computed them.
  int64_t speculated() const { return speculated_; }

 private:
  void check(const std::vector<int32_t>& prompt, int64_t max_tokens) const {
    if (max_tokens < 1) throw std::invalid_argument("the number of tokens to generate is not 1 or more");
    if (prompt.empty()) throw std::invalid_argument("the prompt is empty: give at least one token");
    if (prompt.size() > static_cast<size_t>(decoder_.context)) {
      throw std::invalid_argument("the prompt has " + std::to_string(prompt.size()) +
                                  " tokens, the model has a context of " + std::to_string(decoder_.context) +
                                  ": shorten it, or deploy the model with a larger --context");
    }
    for (const int32_t token : prompt) {
      if (token >= 0 && token < decoder_.vocabulary) continue;
      throw std::invalid_argument("token " + std::to_string(token) + " is not of the model's vocabulary, 0 to " +
                                  std::to_string(decoder_.vocabulary - 1));
    }
  }

  bool ends(int32_t token) const {
    return std::find(decoder_.end_tokens.begin(), decoder_.end_tokens.end(), token) != decoder_.end_tokens.end();
  }

  int32_t behind(const std::vector<int32_t>& tokens, Sampler* sampler) {
    const std::vector<Value> logits = logits_behind(tokens);
    return sampler->choose(numbers(logits, 1), static_cast<size_t>(decoder_.vocabulary));
  }

  // Tokens that may follow, to be verified; none where a step is to be made.
  std::vector<int32_t> drafted(const std::vector<int32_t>& tokens, int64_t most, Speculate speculate) {
    const int64_t count = std::min(most, decoder_.verified - 1);
    const auto places = static_cast<int64_t>(tokens.size()) - 1 + decoder_.verified;
    if (count < 1 || places > decoder_.context || speculate == Speculate::never) return {};
    std::vector<int32_t> draft = drafted_from(tokens, static_cast<size_t>(count));
    if (speculate == Speculate::measured && !draft.empty() && !pace_.worth()) draft.clear();
    return draft;
  }

  // The tokens that steps would choose, up to the first that is not the drafted one. The state is right for all
  // tokens but the last.
  std::vector<int32_t> verified(const std::vector<int32_t>& tokens, const std::vector<int32_t>& draft,
                                Sampler* sampler) {
    int32_t* taken = integers(verify_.input(0));
    std::fill(taken, taken + decoder_.verified, 0);
    taken[0] = tokens.back();
    std::copy(draft.begin(), draft.end(), taken + 1);
    *integers(verify_.input(1)) = static_cast<int32_t>(tokens.size() - 1);
    const std::vector<Value> results = verify_.run();
    const float* logits = numbers(results, decoder_.verified);
    known_.push_back(tokens.back());
    const auto vocabulary = static_cast<size_t>(decoder_.vocabulary);
    std::vector<int32_t> chosen;
    for (size_t row = 0; row <= draft.size(); ++row) {
      chosen.push_back(sampler->choose(logits + row * vocabulary, vocabulary));
      if (row == draft.size() || chosen.back() != draft[row] || ends(chosen.back())) break;
      known_.push_back(draft[row]);
    }
    return chosen;
  }

  // What follows some tokens. Those at the beginning that the state is right for are not computed again.
  std::vector<Value> logits_behind(const std::vector<int32_t>& tokens) {
    size_t place = 0;
    // The last one is always computed, for its logits.
    const size_t most = std::min(known_.size(), tokens.size() - 1);
    while (place < most && known_[place] == tokens[place]) ++place;
    known_.resize(place);
    const auto chunk = static_cast<size_t>(decoder_.chunk), context = static_cast<size_t>(decoder_.context);
    // A chunk computes all its rows, and a step reads all weights for one: as in device_agent/execute/decoder.py.
    const size_t worth_a_chunk = std::max<size_t>(2, chunk / kRowsOfAStep);
    std::vector<Value> result;
    while (place < tokens.size()) {
      // Logits are those of a step where a chunk rounds activations to bytes.
      const size_t left = tokens.size() - place - (decoder_.rounding > 0 ? 1 : 0);
      size_t count = 1;
      if (left >= worth_a_chunk && place + chunk <= context) {
        count = std::min(left, chunk);
        result = step_of_chunk(&tokens[place], count, place);
      } else {
        *integers(bundle_.input(0)) = tokens[place];
        *integers(bundle_.input(1)) = static_cast<int32_t>(place);
        result = bundle_.run();
      }
      known_.insert(known_.end(), &tokens[place], &tokens[place] + count);
      place += count;
    }
    return result;
  }

  std::vector<Value> step_of_chunk(const int32_t* tokens, size_t count, size_t place) const {
    int32_t* taken = integers(prefill_.input(0));
    std::fill(std::copy(tokens, tokens + count, taken), taken + decoder_.chunk, 0);
    *integers(prefill_.input(1)) = static_cast<int32_t>(place);
    *integers(prefill_.input(2)) = static_cast<int32_t>(count - 1);
    return prefill_.run();
  }

  const float* numbers(const std::vector<Value>& logits, int64_t rows) const {
    const size_t size = static_cast<size_t>(rows * decoder_.vocabulary) * sizeof(float);
    if (logits.size() != 1 || bytes_of(logits[0].tensor()) != size) {
      throw std::runtime_error("the library gives no logits of its vocabulary: make the bundle again");
    }
    const DLTensor& tensor = logits[0].tensor();
    return reinterpret_cast<const float*>(static_cast<const char*>(tensor.data) + tensor.byte_offset);
  }
  static int32_t* integers(const DLTensor& tensor) { return static_cast<int32_t*>(tensor.data); }

  static constexpr size_t kRowsOfAStep = 4;
  const Bundle& bundle_;
  const DecoderInfo decoder_;
  Entry prefill_, verify_;
  Pace pace_;
  int64_t speculated_ = 0;
  // The tokens that the state is right for, from position 0 on.
  std::vector<int32_t> known_;
};

}  // namespace edgetlm
