#include "interpose/core/context.hpp"

namespace crane::interpose {

constinit thread_local Self self{};
constinit Runtime runtime{};

}  // namespace crane::interpose
