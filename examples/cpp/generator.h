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
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "bundle.h"
#include "kept_prompt.h"
#include "place.h"
#include "speculation.h"

namespace edgetlm {

// How tokens are chosen: at temperature 0 always the most likely one, above drawn: of the `top_k` likeliest (0: of
// all), and of the fewest likeliest whose probabilities sum up to `top_p`. The same seed draws the same tokens, as in
// Python.
struct Sampling {
  double temperature = 0.0;
  int64_t top_k = 0;
  double top_p = 1.0;
  uint64_t seed = 0;
};

class Sampler {
 public:
  explicit Sampler(const Sampling& how) : how_(how), state_(how.seed) {
    if (!(how.temperature >= 0.0 && std::isfinite(how.temperature))) refuse("temperature", "0 or more");
    if (how.top_k < 0) refuse("top_k", "0 or more");
    if (!(how.top_p > 0.0 && how.top_p <= 1.0)) refuse("top_p", "above 0 and at most 1");
  }

  int32_t choose(const float* logits, size_t count) {
    // NaN is not less than anything.
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    if (!std::all_of(logits, logits + count, [](float one) { return one < kInfinity; })) {
      throw std::runtime_error(
          "the model gives no logits behind this text, but NaN or infinity: its activations leave the range of their"
          " type; deploy it without --dtype fp16, or with --processor cpu");
    }
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
    // Summed in the order in which Python does.
    const double place = draw() * total;
    double reached = 0.0;
    for (const int32_t token : tokens_) {
      reached += weights_[static_cast<size_t>(token)];
      if (reached > place) return token;
    }
    return tokens_.back();
  }

 private:
  [[noreturn]] static void refuse(const char* name, const char* range) {
    throw std::invalid_argument(std::string(name) + " is not " + range);
  }

  // From 0 up to 1, 53 bits, by SplitMix64 (Steele et al., 2014): Python draws the same, and so does every system.
  double draw() {
    state_ += 0x9E3779B97F4A7C15;
    uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
    return static_cast<double>((mixed ^ (mixed >> 31)) >> 11) * 0x1p-53;
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
  uint64_t state_;
  // Kept, so that a token allocates nothing.
  std::vector<double> weights_;
  std::vector<int32_t> tokens_;
};

// Why a text ended.
enum class Stopped { end_of_text, max_tokens, context_full, left };

class Generator {
 public:
  // The bundle has to outlive it, and is not to be run by others meanwhile.
  explicit Generator(const Bundle& bundle)
      : bundle_(&bundle), decoder_(bundle.decoder), pace_(decoder_.verified) {
    if (decoder_.context == 0) throw std::runtime_error("the bundle is not a language model's: use run_bundle");
    const auto texts = static_cast<size_t>(decoder_.sequences);
    for (size_t text = 0; text < texts; ++text) places_.emplace_back(bundle, text);
    const TensorInfo one{"position", {1}, "int32", {}};
    if (texts > 1) {
      const TensorInfo each{"tokens", {decoder_.sequences}, "int32", {}};
      std::vector<size_t> all(texts);
      std::iota(all.begin(), all.end(), size_t{0});
      together_ = bundle.entry("together", {each, each}, all);
    }
    if (decoder_.verified > 0) {
      verify_ = bundle.entry("verify", {TensorInfo{"tokens", {decoder_.verified}, "int32", {}}, one});
      // What a call needs is allocated now, and not in the middle of a text.
      std::fill_n(integers(verify_.input(0)), decoder_.verified, 0);
      *integers(verify_.input(1)) = 0;
      verify_.run();
    }
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

  // Continues several texts, as many at once as the bundle has states: one call gives a token of each, and reads the
  // weights once. What prompts have in common at the beginning is computed once; texts that have no place yet begin
  // where one has ended. `take` gets the number of the prompt and each of its tokens, and returns whether that text
  // is to go on. Each text is what `generate` gives for its prompt.
  std::vector<Stopped> generate_many(const std::vector<std::vector<int32_t>>& prompts, int64_t max_tokens,
                                     const Sampling& how, const std::function<bool(size_t, int32_t)>& take) {
    for (const std::vector<int32_t>& prompt : prompts) check(prompt, max_tokens);
    std::vector<Running> texts;
    for (const std::vector<int32_t>& prompt : prompts) texts.push_back({prompt, Sampler(how), 0, Stopped::left, true});
    const auto taken = [&](size_t number, int32_t token) {
      Running& text = texts[number];
      text.goes_on = false;
      if (ends(token)) {
        text.stopped = Stopped::end_of_text;
        return;
      }
      text.tokens.push_back(token);
      if (!take(number, token)) return;
      const bool full = text.tokens.size() > static_cast<size_t>(decoder_.context);
      text.goes_on = ++text.made < max_tokens && !full;
      if (!text.goes_on) text.stopped = text.made == max_tokens ? Stopped::max_tokens : Stopped::context_full;
    };
    constexpr size_t kNone = static_cast<size_t>(-1);
    std::vector<size_t> at(places_.size(), kNone);
    for (size_t next = 0;;) {
      while (next < texts.size() && std::count(at.begin(), at.end(), kNone) > 0) {
        const size_t place = place_for(texts[next].tokens, at, kNone);
        taken(next, chosen(begin(place, texts[next].tokens), &texts[next].sampler));
        if (texts[next].goes_on) at[place] = next;
        ++next;
      }
      std::vector<Running*> running(at.size(), nullptr);
      for (size_t place = 0; place < at.size(); ++place) running[place] = at[place] == kNone ? nullptr : &texts[at[place]];
      const std::vector<int32_t> tokens = step(running);
      for (size_t place = 0; place < at.size(); ++place) {
        if (at[place] == kNone) continue;
        taken(at[place], tokens[place]);
        if (!texts[at[place]].goes_on) at[place] = kNone;
      }
      const bool idle = std::count(at.begin(), at.end(), kNone) == static_cast<std::ptrdiff_t>(at.size());
      if (idle && next == texts.size()) break;
    }
    std::vector<Stopped> reasons;
    for (const Running& text : texts) reasons.push_back(text.stopped);
    return reasons;
  }

  // Writes the state of the last text of `generate` to a file, and gives the number of its tokens: no process need
  // compute it again. The Python runtime reads such files, and its own are read here. std::runtime_error where there is
  // no text, or the file cannot be written.
  size_t save_prompt(const std::string& path) const {
    if (places_[0].known().empty()) {
      throw std::runtime_error("there is no prompt to save: generate a text with it first");
    }
    write_prompt(path, bundle_->content, places_[0].known(), bundle_->state(0));
    return places_[0].known().size();
  }

  // Fills the state out of such a file, and gives the number of its tokens: a prompt that begins with them continues
  // there. std::runtime_error with one line where it is none of this bundle's, or damaged.
  size_t load_prompt(const std::string& path) {
    const PromptReader reader(path, bundle_->content, decoder_.context);
    std::vector<int32_t> tokens;
    const std::vector<int64_t> found = reader.read(bundle_->state(0), [&] { places_[0].know({}); });
    for (const int64_t token : found) {
      // Beyond the range it is of no vocabulary either.
      tokens.push_back(static_cast<int32_t>(std::clamp<int64_t>(token, -1, std::numeric_limits<int32_t>::max())));
    }
    try {
      check(tokens, 1);
    } catch (const std::invalid_argument& error) {
      reader.fail(error.what());
    }
    places_[0].know(tokens);
    return tokens.size();
  }

  // Tokens of the last text that were drafted and turned out right: no step computed them.
  int64_t speculated() const { return speculated_; }

 private:
  // A text of `generate_many`.
  struct Running {
    std::vector<int32_t> tokens;
    Sampler sampler;
    int64_t made;
    Stopped stopped;
    bool goes_on;
  };

  int32_t chosen(const std::vector<Value>& result, Sampler* sampler) const {
    return sampler->choose(logits_of(result, 1, decoder_.vocabulary), static_cast<size_t>(decoder_.vocabulary));
  }

  // The free place whose state is right for most of the first tokens.
  size_t place_for(const std::vector<int32_t>& tokens, const std::vector<size_t>& at, size_t none) const {
    size_t best = at.size();
    for (size_t place = 0; place < at.size(); ++place) {
      if (at[place] != none) continue;
      if (best == at.size() || places_[place].common(tokens) > places_[best].common(tokens)) best = place;
    }
    return best;
  }

  // Logits behind a new prompt; what another text has in common with it is copied where that saves enough.
  std::vector<Value> begin(size_t place, const std::vector<int32_t>& tokens) {
    size_t best = place;
    for (size_t other = 0; other < places_.size(); ++other) {
      if (places_[other].common(tokens) > places_[best].common(tokens)) best = other;
    }
    const size_t known = std::min(places_[best].common(tokens), tokens.size() - 1);
    if (known >= places_[place].common(tokens) + places_[place].worth_a_chunk()) {
      places_[place].adopt(places_[best], known);
    }
    return places_[place].logits_behind(tokens);
  }

  // The next token of every text that runs, by its place.
  std::vector<int32_t> step(const std::vector<Running*>& texts) {
    std::vector<int32_t> found(texts.size(), 0);
    if (texts.size() - static_cast<size_t>(std::count(texts.begin(), texts.end(), nullptr)) < 2) {
      for (size_t place = 0; place < texts.size(); ++place) {
        if (texts[place] == nullptr) continue;
        found[place] = chosen(places_[place].logits_behind(texts[place]->tokens), &texts[place]->sampler);
      }
      return found;
    }
    for (size_t place = 0; place < texts.size(); ++place) {
      // A place without a text takes a token for nothing, where that does not hurt.
      const Running* text = texts[place];
      integers(together_.input(0))[place] = text == nullptr ? 0 : text->tokens.back();
      const size_t position = text == nullptr ? places_[place].to_spare() : text->tokens.size() - 1;
      integers(together_.input(1))[place] = static_cast<int32_t>(position);
    }
    const std::vector<Value> result = together_.run();
    const float* logits = logits_of(result, decoder_.sequences, decoder_.vocabulary);
    const auto vocabulary = static_cast<size_t>(decoder_.vocabulary);
    for (size_t place = 0; place < texts.size(); ++place) {
      if (texts[place] == nullptr) continue;
      places_[place].stepped(texts[place]->tokens.back());
      found[place] = texts[place]->sampler.choose(logits + place * vocabulary, vocabulary);
    }
    return found;
  }

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
    return chosen(places_[0].logits_behind(tokens), sampler);
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
    const float* logits = logits_of(results, decoder_.verified, decoder_.vocabulary);
    places_[0].stepped(tokens.back());
    const auto vocabulary = static_cast<size_t>(decoder_.vocabulary);
    std::vector<int32_t> chosen;
    for (size_t row = 0; row <= draft.size(); ++row) {
      chosen.push_back(sampler->choose(logits + row * vocabulary, vocabulary));
      if (row == draft.size() || chosen.back() != draft[row] || ends(chosen.back())) break;
      places_[0].stepped(draft[row]);
    }
    return chosen;
  }

  const Bundle* const bundle_;
  const DecoderInfo decoder_;
  Entry verify_, together_;
  Pace pace_;
  int64_t speculated_ = 0;
  // Of each text; single texts have the first.
  std::vector<Place> places_;
};

}  // namespace edgetlm
