#include "interpose/core/selector.hpp"

namespace crane::interpose {

thread_local volatile Selector selector __attribute__((tls_model("initial-exec"))) = Selector::kPass;

}  // namespace crane::interpose
