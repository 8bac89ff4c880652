// The segment: nobody can resize it, nobody who did not inherit it can open it.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

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

TEST_CASE("segment: another process of the same replica is refused, and takes nothing away", "[proxy]") {
    const Folder folder, copy;
    int ready[2], ended[2];
    REQUIRE(pipe2(ready, O_CLOEXEC) == 0);
    REQUIRE(pipe2(ended, O_CLOEXEC) == 0);
    const std::string cluster = own_cluster();
    const pid_t other = fork();
    if (other == 0) {
        auto segment = std::make_unique<Segment>(folder.path, cluster, 4, true);
        char byte = 'r';
        if (write(ready[1], &byte, 1) == 1 && read(ended[0], &byte, 1) == 1 && byte == 'c') segment.reset();
        _exit(0);
    }
    char byte = 0;
    REQUIRE(read(ready[0], &byte, 1) == 1);
    const std::string words = "runs on this machine already, as process " + std::to_string(other) +
                              ", with another state directory";
    for (int attempt = 0; attempt < 2; ++attempt)
        CHECK_THROWS_WITH(Segment(copy.path, cluster, 4, true), Catch::Contains(words));
    CHECK(fs::is_directory(fs::read_symlink(folder.path + "/shared")));
    const bool killed = GENERATE(true, false);
    if (killed) kill(other, SIGKILL);
    REQUIRE(write(ended[1], "c", 1) == 1);
    REQUIRE(waitpid(other, nullptr, 0) == other);
    const Segment mine(copy.path, cluster, 4, true);
    CHECK(fs::is_directory(fs::read_symlink(copy.path + "/shared")));
    for (const int fd : {ready[0], ready[1], ended[0], ended[1]}) close(fd);
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
