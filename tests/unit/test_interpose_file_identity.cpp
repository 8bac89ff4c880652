// Inode numbers as the domain shows them: a file keeps its own, and no other file is taken for it.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

#include "base/file_key.hpp"
#include "interpose/core/file_identity.hpp"
#include "test_interpose_domain.hpp"
#include "tests/unit/test_paxos_directory.hpp"

using namespace crane::interpose;
using namespace crane::interpose::testing;

namespace {

struct Folder : crane::paxos::testing::TemporaryDirectory {
    std::string at(const char* name) const { return path + "/" + name; }
    int make(const char* name) const { return open(at(name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600); }
};

struct statx look(const std::string& path, int fd = AT_FDCWD) {
    struct statx info {};
    REQUIRE(statx(fd, path.c_str(), AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, crane::kFileKeyMask, &info) == 0);
    return info;
}

uint64_t shown(const std::string& path) {
    return stable_inode(look(path), AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW);
}

}  // namespace

TEST_CASE("file identity: a new file at the inode of one that is gone is another, within one tick, too",
          "[interpose]") {
    PlainDomain domain;
    const Folder folder;
    const int fd = folder.make("first");
    const std::string first = folder.at("first"), second = folder.at("second");
    struct statx info = look(first);
    const uint64_t number = shown(first);

    const NameToGo name(AT_FDCWD, first.c_str());
    REQUIRE(unlink(first.c_str()) == 0);
    name.gone();
    struct statx open_one = look("", fd);
    CHECK(open_one.stx_nlink == 0);
    CHECK(stable_inode(open_one, fd, "", AT_EMPTY_PATH) == number);  // who has it open sees it as ever

    close(fd);
    close(folder.make("second"));  // as the kernel would make it: the same inode, born in the same tick
    const uint64_t other = stable_inode(info, AT_FDCWD, second.c_str(), AT_SYMLINK_NOFOLLOW);
    CHECK(other != number);
    CHECK(other == inode_for_path(second.c_str(), nullptr));
    CHECK(stable_inode(info, AT_FDCWD, second.c_str(), AT_SYMLINK_NOFOLLOW) == other);
}

TEST_CASE("file identity: a file that has another name, or was renamed to its own, keeps its number",
          "[interpose]") {
    PlainDomain domain;
    const Folder folder;
    close(folder.make("file"));
    const std::string file = folder.at("file"), linked = folder.at("linked");
    const uint64_t number = shown(file);
    {
        const NameToGo name(AT_FDCWD, file.c_str());
        REQUIRE(rename(file.c_str(), file.c_str()) == 0);
        name.gone();
    }
    CHECK(shown(file) == number);
    REQUIRE(link(file.c_str(), linked.c_str()) == 0);
    {
        const NameToGo name(AT_FDCWD, file.c_str());
        REQUIRE(unlink(file.c_str()) == 0);
        name.gone();
    }
    CHECK(shown(linked) == number);
    {
        const std::string nothing = folder.at("nothing");
        const NameToGo name(AT_FDCWD, nothing.c_str());
        name.gone();
    }
    CHECK(shown(linked) == number);
}
