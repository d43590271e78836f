// What bundles must be like and who is trusted; nothing of TVM is used.
#include "contract/hash.cc"
