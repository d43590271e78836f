// CUDA graphs of compiled models: one launch starts all kernels of an inference.
#pragma once

#include <tvm/ffi/function.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace edgetlm {

// Scratch memory of the kernels that a graph starts, which has their addresses. What the device's pool gives may be freed
// when another kernel asks for more.
class GraphMemory {
 public:
  explicit GraphMemory(DLDevice device) : device_(device) {}
  GraphMemory(const GraphMemory&) = delete;
  ~GraphMemory();

  // That of the graph that this thread records, null where it records none.
  static GraphMemory*& current();

  // The smallest block that is free and large enough, or a new one.
  void* take(size_t size);
  // Leaves a block to kernels that are recorded later, which run later too.
  void leave(void* address);

 private:
  struct Block {
    void* address;
    size_t size;
    bool taken;
  };

  DLDevice device_;
  std::vector<Block> blocks_;
};

// A function of a model on a GPU that is called with the same tensors again and again.
//
// The first call starts its kernels one by one: it loads them and allocates memory. The second call records them as a
// graph, and from then on each call starts the graph; the outputs are the same tensors each time. A graph has the
// addresses of all tensors, which therefore stay allocated as long as the graph. Where functions run on the CPU, there
// are several graphs, with their calls and copies in between. Where graphs cannot repeat the function, it goes on kernel
// by kernel.
class GraphedCall {
 public:
  // Makes the same function on a machine of its own, which reports to an instrument.
  using Instrumented = std::function<tvm::ffi::Function(const tvm::ffi::Function& instrument)>;

  GraphedCall(DLDevice device, tvm::ffi::Function plain, Instrumented instrumented);
  GraphedCall(const GraphedCall&) = delete;
  ~GraphedCall();

  // Starts the function once; does not wait for the GPU.
  tvm::ffi::Any operator()();
  // How the kernels of the next call are started, for records of measurements.
  std::string launch() const;

 private:
  struct Graph;

  void record();

  DLDevice device_;
  tvm::ffi::Function plain_;
  Instrumented instrumented_;
  int calls_ = 0;
  // Why there is no graph; empty where there is one, and before the second call.
  std::string reason_;
  std::unique_ptr<Graph> graph_;
};

}  // namespace edgetlm
