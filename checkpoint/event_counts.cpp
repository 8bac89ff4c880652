#include "checkpoint/event_counts.hpp"

#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace fs = std::filesystem;

namespace crane::checkpoint {
namespace {

constexpr char kEventfd[] = "anon_inode:[eventfd]";
constexpr char kCount[] = "eventfd-count:";

uint64_t count_of(const fs::path& fdinfo) {
    std::ifstream file(fdinfo);
    for (std::string word; file >> word;) {
        if (word != kCount) continue;
        uint64_t count = 0;
        file >> std::hex >> count;
        return count;
    }
    return 0;
}

}  // namespace

void check_event_counts(const std::string& proc) {
    std::error_code ignored;
    for (const auto& process : fs::directory_iterator(proc, ignored)) {
        const std::string pid = process.path().filename();
        if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
        for (const auto& one : fs::directory_iterator(process.path() / "fd", ignored)) {
            if (fs::read_symlink(one.path(), ignored) != kEventfd) continue;
            if (count_of(process.path() / "fdinfo" / one.path().filename()) >> 32)
                throw std::runtime_error("descriptor " + one.path().filename().string() + " of process " +
                                         pid +
                                         " is an eventfd that counts further than CRIU keeps (32 bits)");
        }
    }
}

}  // namespace crane::checkpoint
