// The files of a server between two servers: their times, and their way into an archive and out of it.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "checkpoint/command.hpp"
#include "checkpoint/domain_files.hpp"

namespace fs = std::filesystem;
using namespace crane::checkpoint;

namespace {

constexpr uint64_t kSecond = 1'000'000'000;

struct Folder {
    std::string path;
    Folder() {
        char name[] = "/tmp/crane-files-XXXXXX";
        path = ::mkdtemp(name);
        fs::create_directories(path + "/upper/var/data");
        fs::create_directories(path + "/mounts/0/upper");
        std::ofstream(path + "/layers") << "/disk\n";
    }
    ~Folder() { fs::remove_all(path); }
};

struct stat look(const std::string& path) {
    struct stat info {};
    REQUIRE(::lstat(path.c_str(), &info) == 0);
    return info;
}

void write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
}

std::string read(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
}

void set_mtime(const std::string& path, time_t seconds, long ns) {
    const timespec times[2] = {{0, UTIME_OMIT}, {seconds, ns}};
    REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0);
}

}  // namespace

TEST_CASE("files: what nobody has looked at since it changed gets the decided time", "[checkpoint]") {
    Folder folder;
    const std::string data = folder.path + "/upper/var/data", other = folder.path + "/mounts/0/upper";
    write(data + "/seen", "x");
    set_mtime(data + "/seen", 1'000, 5);
    write(data + "/unseen", "y");
    write(other + "/unseen", "z");
    REQUIRE(::symlink("unseen", (other + "/link").c_str()) == 0);
    // The clock that stamps files may stand behind the one that tells the time.
    CHECK(settle_times(folder.path, ~uint64_t{0}, 2'000 * kSecond) == 0);
    CHECK(settle_times(folder.path, 1, 2'000 * kSecond + 7) >= 3);
    CHECK(look(data + "/seen").st_mtim.tv_sec == 1'000);
    for (const std::string& path : {data + "/unseen", other + "/unseen", other + "/link", data}) {
        CAPTURE(path);
        CHECK(look(path).st_mtim.tv_sec == 2'000);
        CHECK(look(path).st_mtim.tv_nsec == 7);
    }
    CHECK(settle_times(folder.path, 1, 3'000 * kSecond) == 0);
}

TEST_CASE("files: an archive brings all of them back, but for those that begin fresh", "[checkpoint][root]") {
    if (::geteuid() != 0) {
        WARN("not root: owners and devices cannot be made");
        return;
    }
    Folder from, to;
    const std::string data = from.path + "/upper/var/data";
    write(data + "/file", "contents");
    REQUIRE(::chmod((data + "/file").c_str(), 04640) == 0);
    REQUIRE(::lchown((data + "/file").c_str(), 12345, 54321) == 0);
    REQUIRE(::chmod((data + "/file").c_str(), 04640) == 0);
    fs::create_hard_link(data + "/file", data + "/same");
    REQUIRE(::symlink("/nowhere", (data + "/link").c_str()) == 0);
    REQUIRE(::mknod((data + "/removed").c_str(), S_IFCHR, ::makedev(0, 0)) == 0);  // overlayfs: it is gone
    REQUIRE(::setxattr(data.c_str(), "trusted.overlay.opaque", "y", 1, 0) == 0);
    write(data + "/holes", "");
    REQUIRE(::truncate((data + "/holes").c_str(), 64 << 20) == 0);
    const std::string odd = data + "/a name\nwith\\ all \xff";
    write(odd, "odd");
    write(from.path + "/mounts/0/upper/other", "disk");
    fs::create_directories(from.path + "/upper/tmp");
    write(from.path + "/upper/tmp/gone", "");
    fs::create_directories(from.path + "/upper/var/tmp");
    write(from.path + "/upper/var/tmp/stays", "");
    fs::create_directories(from.path + "/work");
    set_mtime(data + "/file", 1'500, 123'456'789);
    set_mtime(data, 1'600, 1);
    const bool copied = GENERATE(false, true);
    CAPTURE(copied);
    if (copied) {
        copy_files(from.path, from.path + "/copy");
        fs::remove_all(from.path + "/upper");
        pack_copy(from.path + "/copy", from.path + "/archive");
    } else {
        pack_files(from.path, from.path + "/archive");
    }
    fs::remove_all(to.path + "/upper");
    unpack_files(from.path + "/archive", to.path);

    const std::string back = to.path + "/upper/var/data";
    const struct stat file = look(back + "/file");
    CHECK(read(back + "/file") == "contents");
    CHECK((file.st_mode & 07777) == 04640);
    CHECK(file.st_uid == 12345);
    CHECK(file.st_gid == 54321);
    CHECK(file.st_mtim.tv_sec == 1'500);
    CHECK(file.st_mtim.tv_nsec == 123'456'789);
    CHECK(look(back + "/same").st_ino == file.st_ino);
    CHECK(fs::read_symlink(back + "/link") == "/nowhere");
    const struct stat removed = look(back + "/removed");
    CHECK(S_ISCHR(removed.st_mode));
    CHECK(removed.st_rdev == ::makedev(0, 0));
    char opaque = 0;
    CHECK(::getxattr(back.c_str(), "trusted.overlay.opaque", &opaque, 1) == 1);
    CHECK(opaque == 'y');
    CHECK(look(back).st_mtim.tv_sec == 1'600);
    CHECK(look(back + "/holes").st_size == 64 << 20);
    CHECK(look(back + "/holes").st_blocks < 100);
    CHECK(read(to.path + "/upper/var/data/a name\nwith\\ all \xff") == "odd");
    CHECK(read(to.path + "/mounts/0/upper/other") == "disk");
    CHECK(read(to.path + "/layers") == "/disk\n");
    CHECK(fs::exists(to.path + "/upper/tmp/gone") == copied);  // of a server that goes on
    CHECK(fs::exists(to.path + "/upper/var/tmp/stays"));
    CHECK_FALSE(fs::exists(to.path + "/work"));
}

TEST_CASE("files: what goes wrong is said", "[checkpoint]") {
    Folder folder;
    write(folder.path + "/archive", "no archive");
    CHECK_THROWS_WITH(unpack_files(folder.path + "/archive", folder.path),
                      Catch::Contains("unpacking the server's files") && Catch::Contains("tar"));
    CHECK_THROWS_WITH(copy_files("/nowhere", folder.path + "/copy"),
                      Catch::Contains("copying the server's files") && Catch::Contains("/nowhere"));
    CHECK_THROWS_WITH(pack_files(folder.path, "/nowhere/archive"),
                      Catch::Contains("packing the server's files") && Catch::Contains("/nowhere/archive"));
}

TEST_CASE("files: a program is ended by what its check throws, and says nothing of it", "[checkpoint]") {
    Folder folder;
    int asked = 0;
    const Check full = [&asked] {
        if (++asked == 3) throw std::runtime_error("the disk is full");
    };
    CHECK_THROWS_WITH(run_command({"/bin/sleep", "1000"}, "sleeping", 0, full), "the disk is full");
    CHECK(asked == 3);
    CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);  // and it is waited for
    // One that would be too late is not begun.
    asked = 2;
    CHECK_THROWS_WITH(copy_files(folder.path, folder.path + "/copy", full), "the disk is full");
    CHECK(fs::is_empty(folder.path + "/copy"));
    asked = 2;
    CHECK_THROWS_WITH(pack_folder(folder.path, folder.path + "/archive", Pace::kInBackground, full),
                      "the disk is full");
    CHECK_FALSE(fs::exists(folder.path + "/archive"));
    asked = -1'000'000;
    run_command({"/bin/true"}, "doing nothing", 0, full);
}
