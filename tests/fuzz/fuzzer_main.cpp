// libFuzzer's side of the targets: CRANE_FUZZ_TARGET says which one.
#include <cstdio>
#include <cstdlib>

#include "targets.hpp"

namespace {

void (*chosen)(std::string_view bytes) = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
    const char* const name = std::getenv("CRANE_FUZZ_TARGET");
    for (const crane::fuzz::Target& target : crane::fuzz::targets())
        if (name != nullptr && std::string_view(name) == target.name) chosen = target.run;
    if (chosen != nullptr) return 0;
    std::fprintf(stderr, "set CRANE_FUZZ_TARGET to one of:");
    for (const crane::fuzz::Target& target : crane::fuzz::targets()) std::fprintf(stderr, " %s", target.name);
    std::fprintf(stderr, "\n");
    std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    chosen({reinterpret_cast<const char*>(data), size});
    return 0;
}
