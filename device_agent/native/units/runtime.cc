// The runtime itself: tensors, the CPU, memory, threads, timers.
#include <runtime/builtin_fp16.cc>
#include <runtime/const_loader_module.cc>
#include <runtime/cpu_device_api.cc>
#include <runtime/device_api.cc>
#include <runtime/file_utils.cc>
#include <runtime/logging.cc>
#include <runtime/memory/memory_manager.cc>
#include <runtime/module.cc>
#include <runtime/tensor.cc>
#include <runtime/thread_pool.cc>
#include <runtime/threading_backend.cc>
#include <runtime/timer.cc>
#include <runtime/workspace_pool.cc>
