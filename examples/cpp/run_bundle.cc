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

#include "bundle.h"

namespace {

struct Arguments {
  std::string bundle, prefix, trust = "signed";
  std::vector<std::string> files;
  int runs = 20;
};

Arguments parse(int count, char** words) {
  Arguments found;
  for (int index = 1; index < count; ++index) {
    const std::string word = words[index];
    const bool option = word == "--runs" || word == "--output" || word == "--trust";
    if (option && index + 1 == count) throw std::invalid_argument(word + " needs a value");
    if (word == "--runs") {
      found.runs = std::max(1, std::atoi(words[++index]));
    } else if (word == "--output") {
      found.prefix = words[++index];
    } else if (word == "--trust") {
      found.trust = words[++index];
    } else if (found.bundle.empty()) {
      found.bundle = word;
    } else {
      found.files.push_back(word);
    }
  }
  if (found.bundle.empty()) {
    throw std::invalid_argument("run_bundle BUNDLE [--runs N] [--output PREFIX] [--trust unsigned] [INPUT.bin ...]");
  }
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
  for (int count = 0; count < arguments.runs; ++count) {
    const auto begin = std::chrono::steady_clock::now();
    outputs = model.run();
    const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
    times_ms.push_back(taken.count());
  }
  std::sort(times_ms.begin(), times_ms.end());
  std::printf("median %.3f ms, p90 %.3f ms, %d runs\n", times_ms[times_ms.size() / 2],
              times_ms[times_ms.size() * 9 / 10], arguments.runs);
  for (size_t index = 0; !arguments.prefix.empty() && index < outputs.size(); ++index) {
    write_from(arguments.prefix + std::to_string(index) + ".bin", outputs[index].tensor());
  }
  return 0;
}

}  // namespace

int main(int count, char** words) {
  try {
    return run(parse(count, words));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
