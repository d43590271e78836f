// Runs a bundle and says how long it takes.
//
//     run_bundle BUNDLE [--runs N] [--output PREFIX] [--trust unsigned] [INPUT.bin ...]
//
// An input is a file of raw elements in the order of the signature; without files they are filled with zeros.
// With --output, output i is written to PREFIXi.bin in the same form. With --trust unsigned, a bundle that no host
// signed which this device trusts is run nevertheless.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "arguments.h"
#include "bundle.h"

namespace {

constexpr const char* kUsage =
    "run_bundle BUNDLE [--runs N] [--output PREFIX] [--trust unsigned] [INPUT.bin ...]";

struct Arguments {
  std::string bundle, prefix, trust = "signed";
  std::vector<std::string> files;
  int64_t runs = 20;
};

bool set_option(const std::string& name, const std::string& value, Arguments* found) {
  if (name == "--runs") {
    found->runs = edgetlm::whole_of(value);
    if (found->runs < 1) throw std::invalid_argument("the number of runs is not 1 or more");
  } else if (name == "--output") {
    found->prefix = value;
  } else if (name == "--trust") {
    found->trust = value;
  } else {
    return false;
  }
  return true;
}

Arguments parse(int count, char** words) {
  Arguments found;
  const auto flag = [](const std::string&) { return false; };
  const auto option = [&](const std::string& name, const std::string& value) {
    return set_option(name, value, &found);
  };
  edgetlm::read_words(count, words, kUsage, flag, option, [&](const std::string& word) {
    if (found.bundle.empty()) {
      found.bundle = word;
    } else {
      found.files.push_back(word);
    }
  });
  if (found.bundle.empty()) throw std::invalid_argument(kUsage);
  return found;
}

void read_into(const std::string& path, const DLTensor& tensor) {
  std::ifstream file(path, std::ios::binary);
  const auto bytes = static_cast<std::streamsize>(edgetlm::bytes_of(tensor));
  if (!file.read(static_cast<char*>(tensor.data), bytes) || file.peek() != EOF) {
    throw std::runtime_error(path + " does not hold the " + std::to_string(bytes) + " bytes of its input");
  }
}

void write_from(const std::string& path, const DLTensor& tensor) {
  std::ofstream file(path, std::ios::binary);
  const auto bytes = static_cast<std::streamsize>(edgetlm::bytes_of(tensor));
  file.write(static_cast<const char*>(tensor.data), bytes);
  if (!file.flush()) throw std::runtime_error(path + " cannot be written");
}

void print(const char* what, const edgetlm::TensorInfo& info) {
  std::printf("%s %s %s[", what, info.name.c_str(), info.dtype.c_str());
  for (size_t axis = 0; axis < info.shape.size(); ++axis) {
    std::printf(axis ? ", %lld" : "%lld", static_cast<long long>(info.shape[axis]));
  }
  std::printf("]\n");
}

int run(const Arguments& arguments) {
  edgetlm::Bundle model(arguments.bundle, 0, arguments.trust);
  if (!model.warning.empty()) std::fprintf(stderr, "warning: %s\n", model.warning.c_str());
  for (const auto& info : model.inputs) print("input ", info);
  for (const auto& info : model.outputs) print("output", info);
  if (!arguments.files.empty() && arguments.files.size() != model.inputs.size()) {
    throw std::invalid_argument("the model takes " + std::to_string(model.inputs.size()) + " input files");
  }
  for (size_t index = 0; index < model.inputs.size(); ++index) {
    const DLTensor& tensor = model.input(index);
    std::memset(tensor.data, 0, edgetlm::bytes_of(tensor));
    if (!arguments.files.empty()) read_into(arguments.files[index], tensor);
  }
  std::vector<edgetlm::Value> outputs = model.run();
  std::vector<double> times_ms;
  for (int64_t count = 0; count < arguments.runs; ++count) {
    const auto begin = std::chrono::steady_clock::now();
    outputs = model.run();
    const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
    times_ms.push_back(taken.count());
  }
  std::sort(times_ms.begin(), times_ms.end());
  std::printf("median %.3f ms, p90 %.3f ms, %lld runs\n", times_ms[times_ms.size() / 2],
              times_ms[times_ms.size() * 9 / 10], static_cast<long long>(arguments.runs));
  for (size_t index = 0; !arguments.prefix.empty() && index < outputs.size(); ++index) {
    write_from(arguments.prefix + std::to_string(index) + ".bin", outputs[index].tensor());
  }
  return 0;
}

}  // namespace

int main(int count, char** words) {
  return edgetlm::exit_code([&] { return run(parse(count, words)); });
}
