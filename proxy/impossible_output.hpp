// What a domain that keeps the rules never puts out, however well formed its records are
// (proxy/domain_link.hpp looks at that). It may be in an attacker's hands, so what craned holds for it is
// bounded where it is taken and not by what the domain does: whoever takes a record that cannot be throws
// this, and the domain must be ended. What had seen the record already is void with it.
#pragma once

#include <stdexcept>
#include <string>

namespace crane::proxy {

class ImpossibleOutput : public std::runtime_error {
  public:
    explicit ImpossibleOutput(const std::string& what)
        : std::runtime_error("the server puts out what no server can: " + what) {}
};

constexpr char kBeyondWindow[] = "more is sent to a client than its window allows";

}  // namespace crane::proxy
