// CUDA GPUs, through the driver alone.
#include "cuda/device_api.cc"
#include "cuda/driver.cc"
#include "cuda/graph.cc"
#include "cuda/module.cc"
#include "cuda/shared_memory.cc"
#include "cuda/side_by_side.cc"
