// tvm_ffi's library, in one unit: headers are read once. Serialisation of object graphs and dataclasses, which
// no board needs, are left out.
#include <ffi/backtrace.cc>
#include <ffi/container.cc>
#include <ffi/custom_allocator.cc>
#include <ffi/dtype.cc>
#include <ffi/error.cc>
#include <ffi/function.cc>
#include <ffi/init_once.cc>
#include <ffi/object.cc>
#include <ffi/tensor.cc>

#include <ffi/extra/env_c_api.cc>
#include <ffi/extra/env_context.cc>
#include <ffi/extra/json_parser.cc>
#include <ffi/extra/json_writer.cc>
#include <ffi/extra/library_module.cc>
#include <ffi/extra/library_module_dynamic_lib.cc>
#include <ffi/extra/library_module_system_lib.cc>
#include <ffi/extra/module.cc>
