// The virtual machine of relax. Caches of language models' attention, which the host compiles no calls of, are
// left out.
#include <runtime/vm/builtin.cc>
#include <runtime/vm/bytecode.cc>
#include <runtime/vm/executable.cc>
#include <runtime/vm/vm.cc>
