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
    std::error_code gone;  // an entry may go while they are read, and then these are all
    for (fs::directory_iterator process(proc, gone), end; process != end; process.increment(gone)) {
        const std::string pid = process->path().filename();
        if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
        for (fs::directory_iterator one(process->path() / "fd", gone); one != end; one.increment(gone)) {
            if (fs::read_symlink(one->path(), gone) != kEventfd) continue;
            const std::string fd = one->path().filename();
            if (count_of(process->path() / "fdinfo" / fd) >> 32)
                throw std::runtime_error("descriptor " + fd + " of process " + pid +
                                         " is an eventfd that counts further than CRIU keeps (32 bits)");
        }
    }
}

}  // namespace crane::checkpoint
