// A bundle of `sdk deploy` as a C++ object: what an application on the board includes.
//
//     edgetlm::Bundle model("/path/to/bundle");
//     std::memcpy(model.input(0).data, pixels, edgetlm::bytes_of(model.input(0)));
//     std::vector<edgetlm::Value> outputs = model.run();       // outputs[0].tensor().data
//
// It needs libtvm_ffi and libtvm_runtime, and of the headers of tvm_ffi the C ones only. One thread at a time.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "value.h"

namespace edgetlm {

// Name, shape and element type of an input or output, as the manifest says them.
struct TensorInfo {
  std::string name;
  std::vector<int64_t> shape;
  std::string dtype;
};

// The weights' file, mapped: pages are read when they are first used.
class Mapping {
 public:
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (size != 0) munmap(begin, size);
  }
  void open(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (file < 0 || fstat(file, &status) != 0) throw std::runtime_error("params.bin is missing");
    const auto bytes = static_cast<size_t>(status.st_size);
    void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    ::close(file);
    if (mapped == MAP_FAILED) throw std::runtime_error("params.bin cannot be mapped");
    begin = static_cast<char*>(mapped);
    size = bytes;
  }
  char* begin = nullptr;
  size_t size = 0;
};

class Bundle {
 public:
  // Reads the manifest, maps the weights and loads the library. `threads` 0 takes those it was measured with.
  explicit Bundle(const std::string& folder, int threads = 0) {
    std::ifstream file(folder + "/manifest.json", std::ios::binary);
    if (!file) throw std::runtime_error(folder + " is no bundle: it has no manifest.json");
    const std::string content((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    try {
      const Value manifest = Value::global("ffi.json.Parse")({content});
      refuse_what_is_not_ours(manifest);
      if (threads == 0) threads = static_cast<int>(manifest.at("threads").integer());
      // TVM reads it when its thread pool starts, at the first parallel loop.
      setenv("TVM_NUM_THREADS", std::to_string(threads).c_str(), 0);
      inputs = infos(manifest.at("signature").at("inputs"));
      outputs = infos(manifest.at("signature").at("outputs"));
      map_parameters(manifest.at("parameters"), folder + "/params.bin");
      for (const TensorInfo& info : inputs) inputs_.push_back(make_tensor(info.shape, info.dtype));
      load(folder + "/" + manifest.at("model").text());
    } catch (const std::runtime_error& error) {
      throw std::runtime_error("bundle " + folder + ": " + error.what());
    }
  }

  // The tensor that the next run reads; fill its memory.
  const DLTensor& input(size_t index) const { return inputs_.at(index).tensor(); }

  // One inference.
  std::vector<Value> run() const {
    std::vector<Value> results;
    collect(invoke_(), &results);
    return results;
  }

  std::vector<TensorInfo> inputs, outputs;

 private:
  static void refuse_what_is_not_ours(const Value& manifest) {
    if (manifest.at("schema").text() != "edgetlm.bundle/1") {
      throw std::runtime_error("it is of another version");
    }
    const std::string backend = manifest.at("backend").text();
    if (backend != "tvm") throw std::runtime_error("it runs in " + backend + ", not in TVM");
    const Value signature = manifest.at("signature"), target = manifest.at("target");
    if (signature.has("length") && !signature.at("length").is_nothing()) {
      throw std::runtime_error("it is for a range of lengths");
    }
    if (target.has("kind") && target.at("kind").text() == "cuda") throw std::runtime_error("it is for a GPU");
  }

  static std::vector<int64_t> shape(const Value& entry) {
    std::vector<int64_t> sizes;
    for (const Value& size : entry.at("shape").items()) sizes.push_back(size.integer());
    return sizes;
  }
  static std::vector<TensorInfo> infos(const Value& entries) {
    std::vector<TensorInfo> found;
    for (const Value& entry : entries.items()) {
      found.push_back({entry.at("name").text(), shape(entry), entry.at("dtype").text()});
    }
    return found;
  }

  void map_parameters(const Value& entries, const std::string& path) {
    const std::vector<Value> list = entries.items();
    if (list.empty()) return;
    weights_.open(path);
    for (const Value& entry : list) {
      const auto offset = static_cast<size_t>(entry.at("offset").integer());
      const Value tensor = make_tensor(shape(entry), entry.at("dtype").text(), weights_.begin + offset);
      const bool beyond = offset > weights_.size || bytes_of(tensor.tensor()) > weights_.size - offset;
      if (beyond || offset % 64 != 0) throw std::runtime_error("params.bin does not fit its manifest");
      parameters_.push_back(tensor);
    }
  }

  void load(const std::string& path) {
    library_ = Value::global("ffi.ModuleLoadFromFile")({path});
    machine_ = function(library_, "vm_load_executable")();
    // Device type 1 is the CPU, allocator 2 the pooled one.
    function(machine_, "vm_initialization")({1, 0, 2});
    // A saved closure binds the arguments once: a call then passes none of the weights.
    std::vector<Value> arguments{"main", "edgetlm_main", true};
    arguments.insert(arguments.end(), inputs_.begin(), inputs_.end());
    arguments.insert(arguments.end(), parameters_.begin(), parameters_.end());
    function(machine_, "save_function")(arguments);
    invoke_ = function(machine_, "edgetlm_main");
  }
  static Value function(const Value& module, const char* name) {
    const Value found = Value::global("ffi.ModuleGetFunction")({module, name, true});
    if (found.is_nothing()) throw std::runtime_error(std::string("its library has no function ") + name);
    return found;
  }

  // One tensor, or a (possibly nested) tuple of them.
  static void collect(const Value& result, std::vector<Value>* found) {
    if (result.is_tensor()) {
      found->push_back(result);
      return;
    }
    for (const Value& part : result.items()) collect(part, found);
  }

  // In this order: what refers to the weights goes before them.
  Mapping weights_;
  std::vector<Value> inputs_, parameters_;
  Value library_, machine_, invoke_;
};

}  // namespace edgetlm
