// A bundle of `sdk deploy` as a C++ object: what an application on the board includes.
//
//     edgetlm::Bundle model("/path/to/bundle");
//     std::memcpy(model.input(0).data, pixels, edgetlm::bytes_of(model.input(0)));
//     std::vector<edgetlm::Value> outputs = model.run();       // outputs[0].tensor().data
//
// Before anything of a bundle is used, its manifest, its signature and every file are checked, and whether this
// device trusts its signer: by device_agent/native/contract, the same sources as the agent's own.
//
// It needs libtvm_ffi and libtvm_runtime, and of the headers of tvm_ffi the C ones only. One thread at a time.
#pragma once

#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "contract/files.h"
#include "contract/free_memory.h"
#include "contract/pages.h"
#include "contract/protocol.h"
#include "contract/verify.h"
#include "value.h"

namespace edgetlm {

// The file of the keys that this user's agent trusts, as `device_agent.runtime` finds it.
inline std::string trusted_keys_file() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  const std::string store = variable("EDGETLM_STORE"), root = variable("EDGETLM_HOME");
  const std::string data = variable("XDG_DATA_HOME").empty() ? variable("HOME") + "/.local/share"
                                                             : variable("XDG_DATA_HOME");
  if (!store.empty()) return store + "/trust.json";
  return (root.empty() ? data + "/edgetlm" : root) + "/device/trust.json";
}

// The weights' file, mapped: pages are read when they are first used. Those of a language model, which reads all of them
// for every token, are copied to huge pages where the system has these and the memory.
class Mapping {
 public:
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (size != 0 && copied_ == nullptr) munmap(begin, size);
  }
  void open(const std::string& path, int64_t expected, bool streamed) {
    if (expected == 0) return;
    const OpenFile file(open_regular(path));
    struct stat status {};
    if (fstat(file.number(), &status) != 0 || status.st_size != expected) {
      throw std::runtime_error("params.bin has changed");
    }
    size = static_cast<size_t>(expected);
    if (streamed && has_huge_pages() && has_room(size)) {
      copied_ = std::make_unique<Pages>(size);
      if (!copied_->fill(file.number(), size)) throw std::runtime_error("params.bin cannot be read");
      begin = copied_->begin();
      return;
    }
    void* mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.number(), 0);
    if (mapped == MAP_FAILED) {
      size = 0;
      throw std::runtime_error("params.bin cannot be mapped");
    }
    begin = static_cast<char*>(mapped);
  }
  char* begin = nullptr;
  size_t size = 0;

 private:
  std::unique_ptr<Pages> copied_;
};

// A function of a library, with the tensors that a call of it reads.
class Entry {
 public:
  Entry() = default;
  Entry(std::vector<Value> inputs, Value invoke) : inputs_(std::move(inputs)), invoke_(std::move(invoke)) {}
  const DLTensor& input(size_t index) const { return inputs_.at(index).tensor(); }
  std::vector<Value> run() const {
    std::vector<Value> results;
    collect(invoke_(), &results);
    return results;
  }

 private:
  // One tensor, or a (possibly nested) tuple of them.
  static void collect(const Value& result, std::vector<Value>* found) {
    if (result.is_tensor()) {
      found->push_back(result);
      return;
    }
    for (const Value& part : result.items()) collect(part, found);
  }
  std::vector<Value> inputs_;
  Value invoke_;
};

class Bundle {
 public:
  // Checks the bundle, maps the weights and loads the library. `threads` 0 takes those it was measured with;
  // `trust` "unsigned" takes anybody's bundle, which runs as this user, and leaves a line in `warning`.
  explicit Bundle(const std::string& folder, int threads = 0, const std::string& trust = "signed",
                  const std::string& keys = trusted_keys_file()) {
    const OpenedBundle opened = open_bundle(folder, keys, trust);
    const CheckedManifest& manifest = opened.bundle.manifest;
    warning = opened.warning;
    inputs = manifest.inputs;
    outputs = manifest.outputs;
    decoder = manifest.decoder;
    content = state_digest(manifest);
    try {
      refuse_what_is_not_ours(manifest);
      require_free(manifest);
      // TVM reads it when its thread pool starts, at the first parallel loop.
      setenv("TVM_NUM_THREADS", std::to_string(threads == 0 ? manifest.threads : threads).c_str(), 0);
      map_parameters(manifest, folder + "/" + protocol::bundle::parameters);
      make_states(manifest);
      load(folder + "/" + manifest.model);
    } catch (const std::runtime_error& error) {
      throw std::runtime_error("bundle " + folder + ": " + error.what());
    }
  }

  // The tensor that the next run reads; fill its memory.
  const DLTensor& input(size_t index) const { return main_.input(index); }

  // One inference.
  std::vector<Value> run() const { return main_.run(); }

  // A function of the library with inputs of its own, and with the states of some texts and the weights of this
  // bundle, which has to outlive it. Another model than a language model has one state, 0.
  Entry entry(const std::string& name, const std::vector<TensorInfo>& infos,
              const std::vector<size_t>& texts = {0}) const {
    std::vector<Value> tensors;
    for (const TensorInfo& info : infos) tensors.push_back(make_tensor(info.shape, info.dtype));
    // A saved closure binds the arguments once: a call then passes none of the weights.
    std::string saved = "edgetlm_" + name;
    for (const size_t text : texts) saved += "_" + std::to_string(text);
    const std::vector<Value>& between = tensors_between(name);
    std::vector<Value> arguments{between.empty() ? name : "edgetlm_lent_" + name, saved, true};
    arguments.insert(arguments.end(), tensors.begin(), tensors.end());
    for (const size_t text : texts) {
      arguments.insert(arguments.end(), states_.at(text).begin(), states_.at(text).end());
    }
    arguments.insert(arguments.end(), parameters_.begin(), parameters_.end());
    arguments.insert(arguments.end(), between.begin(), between.end());
    function(machine_, "save_function")(arguments);
    return Entry(std::move(tensors), function(machine_, saved.c_str()));
  }

  // Gives one text the state of another one.
  void copy_state(size_t source, size_t target) const {
    for (size_t index = 0; index < states_.at(source).size(); ++index) {
      const DLTensor& given = states_.at(source)[index].tensor();
      std::memcpy(states_.at(target).at(index).tensor().data, given.data, bytes_of(given));
    }
  }

  std::vector<TensorInfo> inputs, outputs;
  // The tensors of the state of one text.
  const std::vector<Value>& state(size_t text) const { return states_.at(text); }

  // Of a language model; another model has a context of 0.
  DecoderInfo decoder;
  // What states belong to that are kept in files.
  std::string content;
  std::string warning;

 private:
  static void refuse_what_is_not_ours(const CheckedManifest& manifest) {
    if (manifest.backend != "tvm") throw std::runtime_error("it runs in " + manifest.backend + ", not in TVM");
    if (!manifest.range.name.empty()) throw std::runtime_error("it is for a range of lengths");
    if (manifest.target_kind == "cuda") throw std::runtime_error("it is for a GPU");
  }

  void map_parameters(const CheckedManifest& manifest, const std::string& path) {
    if (manifest.parameters.empty()) return;
    // Every token of a text reads the weights once, as every call of a streamed model does.
    const bool once = manifest.streamed || manifest.decoder.context > 0;
    weights_.open(path, manifest.files.at(protocol::bundle::parameters).size, once);
    for (const Parameter& entry : manifest.parameters) {
      // It fits: the manifest was checked against the size of the file.
      parameters_.push_back(make_tensor(entry.shape, entry.dtype, weights_.begin + entry.offset));
    }
  }

  // Zeros, side by side; a place is a multiple of a line of the caches.
  void make_states(const CheckedManifest& manifest) {
    states_.resize(static_cast<size_t>(decoder.sequences));
    std::vector<size_t> places{0};
    for (const TensorInfo& info : manifest.state) {
      // A tensor for its size alone: it is never read.
      const Value sized = make_tensor(info.shape, info.dtype, &places);
      places.push_back(places.back() + (bytes_of(sized.tensor()) + 63) / 64 * 64);
    }
    if (places.back() == 0) return;
    state_memory_ = std::make_unique<Pages>(places.back() * states_.size());
    for (size_t text = 0; text < states_.size(); ++text) {
      char* begin = state_memory_->begin() + text * places.back();
      for (size_t index = 0; index < manifest.state.size(); ++index) {
        const TensorInfo& info = manifest.state[index];
        states_[text].push_back(make_tensor(info.shape, info.dtype, begin + places[index]));
      }
    }
  }

  void load(const std::string& path) {
    library_ = Value::global("ffi.ModuleLoadFromFile")({path});
    machine_ = function(library_, "vm_load_executable")();
    // Device type 1 is the CPU, allocator 2 the pooled one.
    function(machine_, "vm_initialization")({1, 0, 2});
    main_ = entry("main", inputs);
  }
  // The tensors between the kernels of a function, which all its calls use, one after the other: a function of the
  // library makes them, and another one takes them. None where it has no such functions and makes them in each call.
  const std::vector<Value>& tensors_between(const std::string& name) const {
    const auto known = between_.find(name);
    if (known != between_.end()) return known->second;
    const Value make = function_or_nothing(machine_, "edgetlm_tensors_" + name);
    return between_.emplace(name, make.is_nothing() ? std::vector<Value>{} : make().items()).first->second;
  }
  static Value function_or_nothing(const Value& module, const std::string& name) {
    return Value::global("ffi.ModuleGetFunction")({module, name, true});
  }
  static Value function(const Value& module, const char* name) {
    const Value found = function_or_nothing(module, name);
    if (found.is_nothing()) throw std::runtime_error(std::string("its library has no function ") + name);
    return found;
  }

  // In this order: what refers to the weights goes before them.
  Mapping weights_;
  std::unique_ptr<Pages> state_memory_;
  // The state of each text is kept from run to run, and changed by every run.
  std::vector<std::vector<Value>> states_;
  std::vector<Value> parameters_;
  Value library_, machine_;
  mutable std::map<std::string, std::vector<Value>> between_;
  Entry main_;
};

}  // namespace edgetlm
