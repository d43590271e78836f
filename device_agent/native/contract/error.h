// Something from elsewhere that is not what it must be; what() is one line that can be shown.
#pragma once

#include <stdexcept>

namespace edgetlm {

class ContractError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace edgetlm
