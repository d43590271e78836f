// Values of TVM's runtime by its C ABI (tvm/ffi/c_api.h), and nothing of its C++ classes: an application may
// use another compiler and standard library than the runtime was built with. Failures are std::runtime_errors.
#pragma once

#include <dlpack/dlpack.h>
#include <tvm/ffi/c_api.h>

#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace edgetlm {

// The error that the runtime keeps for this thread after a call that failed; its first line.
inline std::runtime_error raised() {
  TVMFFIObjectHandle error = nullptr;
  TVMFFIErrorMoveFromRaised(&error);
  if (error == nullptr) return std::runtime_error("the runtime failed and does not say why");
  const TVMFFIByteArray message = TVMFFIErrorGetCellPtr(error)->message;
  const std::string text(message.data, message.size);
  TVMFFIObjectDecRef(error);
  return std::runtime_error(text.substr(0, text.find('\n')));
}

inline void check(int code) {
  if (code != 0) throw raised();
}

// A value with its reference: nothing, a number, a string, or an object of the runtime.
class Value {
 public:
  Value() { raw_ = TVMFFIAny{}; }
  Value(int64_t number) : Value() { raw_.type_index = kTVMFFIInt, raw_.v_int64 = number; }
  Value(int number) : Value(static_cast<int64_t>(number)) {}
  Value(bool truth) : Value() { raw_.type_index = kTVMFFIBool, raw_.v_int64 = truth; }
  Value(const char* text) : Value(std::string(text)) {}
  Value(const std::string& text) : Value() {
    const TVMFFIByteArray bytes{text.data(), text.size()};
    check(TVMFFIStringFromByteArray(&bytes, &raw_));
  }
  Value(const Value& other) : raw_(other.raw_) {
    if (is_object()) TVMFFIObjectIncRef(raw_.v_obj);
  }
  Value(Value&& other) noexcept : Value() { std::swap(raw_, other.raw_); }
  Value& operator=(Value other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Value() {
    if (is_object()) TVMFFIObjectDecRef(raw_.v_obj);
  }

  // Takes a reference over from the runtime.
  static Value of(TVMFFIObjectHandle object) {
    Value value;
    value.raw_.v_obj = static_cast<TVMFFIObject*>(object);
    value.raw_.type_index = TVMFFIObjectGetTypeIndex(object);
    return value;
  }
  // A function that the runtime registers under a name.
  static Value global(const std::string& name) {
    const TVMFFIByteArray bytes{name.data(), name.size()};
    TVMFFIObjectHandle function = nullptr;
    check(TVMFFIFunctionGetGlobal(&bytes, &function));
    if (function == nullptr) throw std::runtime_error("the runtime has no function " + name);
    return of(function);
  }

  Value operator()(const std::vector<Value>& arguments = {}) const {
    if (raw_.type_index != kTVMFFIFunction) throw std::runtime_error("a value is called that is no function");
    std::vector<TVMFFIAny> packed;
    for (const Value& argument : arguments) packed.push_back(argument.raw_);
    Value result;
    check(TVMFFIFunctionCall(raw_.v_obj, packed.data(), static_cast<int32_t>(packed.size()), &result.raw_));
    return result;
  }

  bool is_nothing() const { return raw_.type_index == kTVMFFINone; }
  bool is_tensor() const { return raw_.type_index == kTVMFFITensor; }

  int64_t integer() const {
    if (raw_.type_index != kTVMFFIInt) throw std::runtime_error("a number is missing");
    return raw_.v_int64;
  }
  const DLTensor& tensor() const {
    if (!is_tensor()) throw std::runtime_error("a tensor is missing");
    return *TVMFFITensorGetDLTensorPtr(raw_.v_obj);
  }

  // Of an array, also a tuple of results.
  std::vector<Value> items() const {
    static const Value size = global("ffi.ArraySize"), item = global("ffi.ArrayGetItem");
    std::vector<Value> found;
    const int64_t count = size({*this}).integer();
    for (int64_t index = 0; index < count; ++index) found.push_back(item({*this, index}));
    return found;
  }

 private:
  bool is_object() const { return raw_.type_index >= kTVMFFIStaticObjectBegin; }
  TVMFFIAny raw_;
};

inline size_t bytes_of(const DLTensor& tensor) {
  size_t count = 1;
  for (int axis = 0; axis < tensor.ndim; ++axis) count *= static_cast<size_t>(tensor.shape[axis]);
  return count * ((tensor.dtype.bits * tensor.dtype.lanes + 7) / 8);
}

// A tensor on the CPU over memory that outlives it, or, without any, over its own, 64-byte aligned.
inline Value make_tensor(const std::vector<int64_t>& shape, const std::string& dtype, void* memory = nullptr) {
  struct Holder {
    DLManagedTensor managed;
    std::vector<int64_t> shape;
    void* own;
  };
  auto* holder = new Holder{{}, shape, nullptr};
  holder->managed.manager_ctx = holder;
  holder->managed.deleter = [](DLManagedTensor* self) {
    auto* kept = static_cast<Holder*>(self->manager_ctx);
    std::free(kept->own);
    delete kept;
  };
  DLTensor& tensor = holder->managed.dl_tensor;
  const TVMFFIByteArray name{dtype.data(), dtype.size()};
  TVMFFIObjectHandle made = nullptr;
  try {
    check(TVMFFIDataTypeFromString(&name, &tensor.dtype));
    tensor.device = {kDLCPU, 0};
    tensor.ndim = static_cast<int32_t>(shape.size());
    tensor.shape = holder->shape.data();
    if (memory == nullptr && posix_memalign(&holder->own, 64, bytes_of(tensor) + 1) != 0) {
      throw std::bad_alloc();
    }
    tensor.data = memory == nullptr ? holder->own : memory;
    check(TVMFFITensorFromDLPack(&holder->managed, 0, 1, &made));
  } catch (...) {
    holder->managed.deleter(&holder->managed);
    throw;
  }
  return Value::of(made);
}

}  // namespace edgetlm
