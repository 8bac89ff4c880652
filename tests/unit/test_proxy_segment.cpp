// The segment: nobody can resize it, nobody who did not inherit it can open it.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "proxy/segment.hpp"

using namespace crane::proxy;
using namespace crane::timebubble;
namespace fs = std::filesystem;

namespace {

struct Folder {
    std::string path;
    Folder() {
        char name[] = "/var/tmp/crane-segment-XXXXXX";
        path = mkdtemp(name);
    }
    ~Folder() { fs::remove_all(path); }
};

/// A whole cluster id that nobody else has: others may run the same tests on this machine.
std::string own_cluster() {
    const std::string own = std::to_string(getpid());
    return std::string(32 - own.size(), '0') + own;
}

}  // namespace

TEST_CASE("segment: whoever holds it cannot shrink or grow it", "[proxy]") {
    const Folder folder;
    const Segment segment(folder.path, own_cluster(), 1, true);
    const std::string again = "/proc/self/fd/" + std::to_string(segment.inherited_transport());
    CHECK(truncate(again.c_str(), 0) != 0);
    CHECK(ftruncate(segment.inherited_transport(), kTransportFileBytes + 4096) != 0);
    CHECK(fcntl(segment.inherited_transport(), F_ADD_SEALS, F_SEAL_WRITE) != 0);
    struct stat info {};
    REQUIRE(fstat(segment.inherited_transport(), &info) == 0);
    CHECK(static_cast<size_t>(info.st_size) == kTransportFileBytes);
    // Holes may be punched: they read as zeros, and craned lives.
    CHECK(fallocate(segment.inherited_transport(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                    kTransportFileBytes) == 0);
    CHECK(segment.view().control->magic == 0);
}

TEST_CASE("segment: a trace of the schedule outlives it", "[proxy]") {
    const Folder folder;
    {
        const Segment segment(folder.path, own_cluster(), 3, true);
        std::ofstream(segment.directory() + "/trace") << "records";
        std::ofstream(segment.directory() + "/other") << "what is not kept";
    }
    std::string kept;
    std::ifstream(folder.path + "/trace") >> kept;
    CHECK(kept == "records");
    CHECK_FALSE(fs::exists(folder.path + "/other"));
}

TEST_CASE("segment: it has no name that another user could open", "[proxy]") {
    const Folder folder;
    std::string directory;
    {
        const Segment segment(folder.path, own_cluster(), 2, true);
        directory = segment.directory();
        CHECK(fs::is_empty(directory));
        CHECK(fs::is_symlink(folder.path + "/shared"));
        // Two clusters whose ids begin alike do not meet.
        CHECK(directory.find(own_cluster() + "-2") != std::string::npos);
    }
    CHECK_FALSE(fs::exists(directory));
    CHECK_FALSE(fs::is_symlink(folder.path + "/shared"));
}

TEST_CASE("segment: the doorbell rings, and its flags at craned's end are craned's own", "[proxy]") {
    const Folder folder;
    const Segment segment(folder.path, own_cluster(), 3, false);
    pollfd wait{segment.doorbell_fd(), POLLIN, 0};
    CHECK(poll(&wait, 1, 0) == 0);
    REQUIRE(write(segment.inherited_doorbell(), "x", 1) == 1);
    CHECK(poll(&wait, 1, 0) == 1);
    REQUIRE(fcntl(segment.inherited_doorbell(), F_SETFL, 0) == 0);  // the server's end blocks now
    char byte;
    CHECK(read(segment.doorbell_fd(), &byte, 1) == 1);
    CHECK(read(segment.doorbell_fd(), &byte, 1) == -1);
    CHECK(errno == EAGAIN);
}
