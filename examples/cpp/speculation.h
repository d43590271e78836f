// Speculation: what may follow a text, found in the text itself, and whether verifying it pays; as in
// device_agent/execute/text/speculation.py.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace edgetlm {

// Whether tokens are drafted and verified several at a time: where that is faster, by the times of both, by default.
enum class Speculate { measured, always, never };

// What followed the last tokens of a text where they stood before, the longest run of them and the last place:
// `count` (1 or more) tokens that may follow, or none. It keeps nothing, so that a long text takes no memory.
inline std::vector<int32_t> drafted_from(const std::vector<int32_t>& tokens, size_t count) {
  std::vector<int32_t> found;
  for (const std::ptrdiff_t length : {3, 2}) {
    for (auto end = tokens.end() - 1; end - tokens.begin() >= length; --end) {
      if (!std::equal(end - length, end, tokens.end() - length)) continue;
      // A text that repeats itself goes on with what is drafted.
      for (size_t at = static_cast<size_t>(end - tokens.begin()); found.size() < count; ++at) {
        found.push_back(at < tokens.size() ? tokens[at] : found[at - tokens.size()]);
      }
      return found;
    }
  }
  return found;
}

// Whether verifying drafts is faster than steps here, by the times that both took.
class Pace {
 public:
  explicit Pace(int64_t rows) : tokens_(static_cast<double>(rows)) {}

  // Whether the next draft is to be verified. Where it does not pay, one is tried now and then.
  bool worth() {
    if (step_s_ < 0.0) return false;
    if (pays()) return true;
    if (++left_out_ < wait_) return false;
    left_out_ = 0;
    wait_ = std::min(2 * wait_, kLongestWait);
    return true;
  }
  void step(double seconds) { step_s_ = mean(step_s_, seconds); }
  void verification(double seconds, size_t tokens) {
    verification_s_ = mean(verification_s_, seconds);
    tokens_ = mean(tokens_, static_cast<double>(tokens));
    if (pays()) wait_ = kWait;
  }

 private:
  bool pays() const { return verification_s_ < 0.0 || step_s_ < 0.0 || tokens_ * step_s_ > verification_s_; }
  static double mean(double before, double value) {
    return before < 0.0 ? value : before + kWeight * (value - before);
  }

  static constexpr double kWeight = 0.25;
  static constexpr int kWait = 16, kLongestWait = 256;
  // Below zero where nothing is known.
  double step_s_ = -1.0, verification_s_ = -1.0;
  // Tokens that a call gives: the most, until it is known.
  double tokens_;
  int left_out_ = 0, wait_ = kWait;
};

}  // namespace edgetlm
