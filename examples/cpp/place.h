// The state of one text of a language model: the logits behind any tokens, computing as little as possible.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "bundle.h"

namespace edgetlm {

inline int32_t* integers(const DLTensor& tensor) { return static_cast<int32_t*>(tensor.data); }

// The rows of a call's result, one behind the other; they are there as long as the result is.
inline const float* logits_of(const std::vector<Value>& result, int64_t rows, int64_t vocabulary) {
  const size_t size = static_cast<size_t>(rows * vocabulary) * sizeof(float);
  if (result.size() != 1 || bytes_of(result[0].tensor()) != size) {
    throw std::runtime_error("the library gives no logits of its vocabulary: make the bundle again");
  }
  const DLTensor& tensor = result[0].tensor();
  return reinterpret_cast<const float*>(static_cast<const char*>(tensor.data) + tensor.byte_offset);
}

class Place {
 public:
  // The state of text `number`; the bundle has to outlive it.
  Place(const Bundle& bundle, size_t number) : bundle_(&bundle), number_(number) {
    step_ = bundle.entry("main", bundle.inputs, {number});
    const auto chunk = static_cast<size_t>(bundle.decoder.chunk);
    if (bundle.decoder.long_chunk > 0) {
      // For fewer tokens, short chunks compute fewer rows; for these, they compute as many, and take the weights apart
      // more often.
      const auto size = static_cast<size_t>(bundle.decoder.long_chunk);
      add_chunk("long_prefill", size, size - chunk + worth_a_chunk());
    }
    add_chunk("prefill", chunk, worth_a_chunk());
    known_.reserve(context() + 1);
  }

  // How many of the first tokens the state is right for.
  size_t common(const std::vector<int32_t>& tokens) const {
    const size_t most = std::min(known_.size(), tokens.size());
    return static_cast<size_t>(std::mismatch(known_.begin(), known_.begin() + static_cast<std::ptrdiff_t>(most),
                                             tokens.begin())
                                   .first -
                               known_.begin());
  }

  // Whether the state is right for all tokens but the last: one step takes it.
  bool follows(const std::vector<int32_t>& tokens) const {
    return known_.size() + 1 == tokens.size() && common(tokens) == known_.size();
  }

  // Copies the state of another text, which is right for the first tokens of this one.
  void adopt(const Place& source, size_t count) {
    bundle_->copy_state(source.number_, number_);
    known_.assign(source.known_.begin(), source.known_.begin() + static_cast<std::ptrdiff_t>(count));
  }

  // The tokens that the state is right for.
  const std::vector<int32_t>& known() const { return known_; }
  // Says that the state is right for these tokens and no others: somebody has changed it.
  void know(const std::vector<int32_t>& tokens) { known_.assign(tokens.begin(), tokens.end()); }

  // Says that a call beside this place's own has taken the next token.
  void stepped(int32_t token) { known_.push_back(token); }

  // A position that a call may write to for nothing: behind the known tokens, where there is one.
  size_t to_spare() {
    known_.resize(std::min(known_.size(), context() - 1));
    return known_.size();
  }

  // What follows some tokens. Those at the beginning that the state is right for are not computed again.
  std::vector<Value> logits_behind(const std::vector<int32_t>& tokens) {
    // The last one is always computed, for its logits.
    size_t place = std::min(common(tokens), tokens.size() - 1);
    known_.resize(place);
    std::vector<Value> result;
    while (place < tokens.size()) {
      // Logits are those of a step where a chunk rounds activations to bytes.
      const size_t left = tokens.size() - place - (bundle_->decoder.rounding > 0 ? 1 : 0);
      size_t count = 1;
      const auto chunk =
          std::find_if(chunks_.begin(), chunks_.end(), [left](const Chunk& one) { return left >= one.least; });
      if (chunk != chunks_.end()) {
        // The last chunk of the context begins at tokens that are known: its rows are computed anyway.
        const size_t end = place + left;
        place = std::min(place, context() - chunk->tokens);
        known_.resize(place);
        count = std::min(end - place, chunk->tokens);
        result = run(*chunk, &tokens[place], count, place);
      } else {
        *integers(step_.input(0)) = tokens[place];
        *integers(step_.input(1)) = static_cast<int32_t>(place);
        result = step_.run();
      }
      known_.insert(known_.end(), &tokens[place], &tokens[place] + count);
      place += count;
    }
    return result;
  }

  // A chunk computes all its rows, and a step reads all weights for one: as in device_agent/execute/decoder.py.
  size_t worth_a_chunk() const {
    const auto chunk = static_cast<size_t>(bundle_->decoder.chunk);
    return std::max<size_t>(2, std::min(chunk, kMostCounted) / kRowsOfAStep);
  }

 private:
  // A function that takes `tokens` of a prompt; a call is made for `least` of them and more.
  struct Chunk {
    size_t tokens, least;
    Entry function;
  };

  size_t context() const { return static_cast<size_t>(bundle_->decoder.context); }

  void add_chunk(const char* name, size_t size, size_t least) {
    const TensorInfo one{"position", {1}, "int32", {}};
    const TensorInfo tokens{"tokens", {static_cast<int64_t>(size)}, "int32", {}};
    chunks_.push_back({size, least, bundle_->entry(name, {tokens, one, one}, {number_})});
  }

  static std::vector<Value> run(const Chunk& chunk, const int32_t* tokens, size_t count, size_t place) {
    const Entry& function = chunk.function;
    int32_t* taken = integers(function.input(0));
    std::fill(std::copy(tokens, tokens + count, taken), taken + chunk.tokens, 0);
    *integers(function.input(1)) = static_cast<int32_t>(place);
    *integers(function.input(2)) = static_cast<int32_t>(count - 1);
    return function.run();
  }

  static constexpr size_t kRowsOfAStep = 4, kMostCounted = 64;
  const Bundle* bundle_;
  size_t number_;
  Entry step_;
  // The longest first.
  std::vector<Chunk> chunks_;
  // The tokens that the state is right for, from position 0 on.
  std::vector<int32_t> known_;
};

}  // namespace edgetlm
