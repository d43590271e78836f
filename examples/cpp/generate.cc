// Continues a text of a language model, given and printed as numbers of tokens, one a line; or several texts with "/"
// between their prompts, each token behind the number of its text.
//
//     generate BUNDLE [--max-tokens N] [--temperature X] [--top-k N] [--top-p X] [--seed N] [--threads N]
//              [--trust unsigned] [--speculate measured|always|never] [--memory] [--save FILE] [--load FILE]
//              TOKEN... [/ TOKEN...]...
//
// Its speed and why it ended come on stderr; with --memory also the memory behind every 100th token.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "arguments.h"
#include "generator.h"

namespace {

constexpr const char* kUsage =
    "generate BUNDLE [--max-tokens N] [--temperature X] [--top-k N] [--top-p X] [--seed N] [--threads N]"
    " [--trust unsigned] [--speculate measured|always|never] [--memory] [--save FILE] [--load FILE]"
    " TOKEN... [/ TOKEN...]...";
constexpr int64_t kEvery = 100;

struct Arguments {
  std::string bundle, trust = "signed";
  // Where the state of the text is written to, and one was; empty for neither.
  std::string save, load;
  std::vector<std::vector<int32_t>> prompts{{}};
  edgetlm::Sampling sampling;
  int64_t max_tokens = 256;
  int threads = 0;
  bool memory = false;
  edgetlm::Speculate speculate = edgetlm::Speculate::measured;
};

edgetlm::Speculate speculate_of(const std::string& value) {
  if (value == "measured") return edgetlm::Speculate::measured;
  if (value == "always") return edgetlm::Speculate::always;
  if (value == "never") return edgetlm::Speculate::never;
  throw std::invalid_argument("--speculate is measured, always or never");
}

bool set_option(const std::string& name, const std::string& value, Arguments* found) {
  if (name == "--max-tokens") {
    found->max_tokens = edgetlm::whole_of(value);
  } else if (name == "--temperature") {
    found->sampling.temperature = edgetlm::number_of(value);
  } else if (name == "--top-k") {
    found->sampling.top_k = edgetlm::whole_of(value);
  } else if (name == "--top-p") {
    found->sampling.top_p = edgetlm::number_of(value);
  } else if (name == "--seed") {
    found->sampling.seed = static_cast<uint64_t>(edgetlm::whole_of(value));
  } else if (name == "--threads") {
    found->threads = static_cast<int>(edgetlm::whole_of(value));
  } else if (name == "--trust") {
    found->trust = value;
  } else if (name == "--save") {
    found->save = value;
  } else if (name == "--load") {
    found->load = value;
  } else if (name == "--speculate") {
    found->speculate = speculate_of(value);
  } else {
    return false;
  }
  return true;
}

Arguments parse(int count, char** words) {
  Arguments found;
  const auto flag = [&](const std::string& name) {
    if (name == "--memory") found.memory = true;
    return name == "--memory";
  };
  const auto option = [&](const std::string& name, const std::string& value) {
    return set_option(name, value, &found);
  };
  edgetlm::read_words(count, words, kUsage, flag, option, [&](const std::string& word) {
    if (found.bundle.empty()) {
      found.bundle = word;
    } else if (word == "/") {
      found.prompts.emplace_back();
    } else {
      found.prompts.back().push_back(static_cast<int32_t>(edgetlm::whole_of(word)));
    }
  });
  if (found.bundle.empty()) throw std::invalid_argument(kUsage);
  if (!found.save.empty() && found.prompts.size() > 1) {
    throw std::invalid_argument("--save is of one text: give one prompt");
  }
  return found;
}

// Pages that this process has in RAM and shares with no file, such as the library and the weights (man 5 proc).
int64_t own_pages() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0, shared = 0;
  file >> size >> resident >> shared;
  return resident - shared;
}

const char* reason(edgetlm::Stopped stopped) {
  switch (stopped) {
    case edgetlm::Stopped::end_of_text:
      return "end of text";
    case edgetlm::Stopped::max_tokens:
      return "max_tokens";
    case edgetlm::Stopped::context_full:
      return "the context is full";
    case edgetlm::Stopped::left:
      break;
  }
  return "output closed";
}

// All texts, a line for each token; why they ended is on stderr.
int run_several(edgetlm::Generator* generator, const Arguments& arguments) {
  const std::vector<edgetlm::Stopped> stopped =
      generator->generate_many(arguments.prompts, arguments.max_tokens, arguments.sampling, [](size_t text, int32_t token) {
        return std::printf("%zu %d\n", text, token) > 0 && std::fflush(stdout) == 0;
      });
  for (size_t text = 0; text < stopped.size(); ++text) {
    std::fprintf(stderr, "%zu: %s\n", text, reason(stopped[text]));
  }
  return 0;
}

int run(const Arguments& arguments) {
  edgetlm::Bundle model(arguments.bundle, arguments.threads, arguments.trust);
  if (!model.warning.empty()) std::fprintf(stderr, "warning: %s\n", model.warning.c_str());
  edgetlm::Generator generator(model);
  if (!arguments.load.empty()) {
    std::fprintf(stderr, "%zu tokens of a prompt were loaded\n", generator.load_prompt(arguments.load));
  }
  if (arguments.prompts.size() > 1) return run_several(&generator, arguments);
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  Clock::time_point first = begin;
  int64_t made = 0;
  const edgetlm::Stopped stopped =
      generator.generate(arguments.prompts[0], arguments.max_tokens, arguments.sampling, [&](int32_t token) {
        if (++made == 1) first = Clock::now();
        if (arguments.memory && made % kEvery == 0) {
          std::fprintf(stderr, "token %lld: %lld pages\n", static_cast<long long>(made),
                       static_cast<long long>(own_pages()));
        }
        return std::printf("%d\n", token) > 0 && std::fflush(stdout) == 0;
      }, arguments.speculate);
  const std::chrono::duration<double> prefill = first - begin, rest = Clock::now() - first;
  const double speed = made > 1 && rest.count() > 0.0 ? static_cast<double>(made - 1) / rest.count() : 0.0;
  std::fprintf(stderr, "%lld tokens, %lld by speculation, %.1f tokens/s, first token after %.3f s; %s\n",
               static_cast<long long>(made), static_cast<long long>(generator.speculated()), speed, prefill.count(),
               reason(stopped));
  if (!arguments.save.empty()) generator.save_prompt(arguments.save);
  return 0;
}

}  // namespace

int main(int count, char** words) {
  return edgetlm::exit_code([&] { return run(parse(count, words)); });
}
