// What a test keeps in /dev/shm has the name of the run, which looks at its end that nothing of it is left
// there.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

namespace crane::testing {

/// Of this process, and of fixed length: what of a cluster's id is its.
inline std::string run_id() {
    char text[16];
    snprintf(text, sizeof(text), "%08x", static_cast<unsigned>(getpid()));
    return text;
}

/// For mkdtemp().
inline std::string in_shared_memory(const std::string& what) {
    return "/dev/shm/crane-" + run_id() + "-" + what + "-XXXXXX";
}

inline std::vector<std::string> left_in_shared_memory() {
    std::vector<std::string> left;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", none))
        if (entry.path().filename().string().starts_with("crane-" + run_id())) left.push_back(entry.path());
    return left;
}

}  // namespace crane::testing
