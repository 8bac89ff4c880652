// What craned, root on the host, does in folders that a server writes to: whatever that has made there.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "checkpoint/domain_files.hpp"
#include "checkpoint/file_identities.hpp"
#include "checkpoint/folder_walk.hpp"
#include "checkpoint/fresh_root.hpp"
#include "checkpoint/kept_times.hpp"
#include "checkpoint/own_files.hpp"
#include "checkpoint/run_folders.hpp"
#include "checkpoint/server_files.hpp"

namespace fs = std::filesystem;
using namespace crane::checkpoint;

namespace {

constexpr uint64_t kSecond = 1'000'000'000;

struct Place {
    std::string path;
    Place() {
        char name[] = "/tmp/crane-server-XXXXXX";
        path = ::mkdtemp(name);
        fs::create_directories(path + "/container/upper/run/crane-init");
        fs::create_directories(path + "/container/upper/run/crane");
        std::ofstream(path + "/container/layers") << "";
        std::ofstream(path + "/host") << "the host's";
    }
    ~Place() { remove_tree(path); }
    std::string container() const { return path + "/container"; }
    std::string upper() const { return container() + "/upper"; }
    std::string of_host() const {
        std::ifstream in(path + "/host");
        return {std::istreambuf_iterator<char>(in), {}};
    }
};

std::string text_of(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
}

/// Folders in folders, as a server makes them that goes down into each. Returns their path below `top`.
std::string dig(const std::string& top, size_t depth, const std::string& name, const std::string& file) {
    int here = ::open(top.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    std::string path;
    for (size_t i = 0; i < depth; ++i) {
        REQUIRE(::mkdirat(here, name.c_str(), 0755) == 0);
        const int next = ::openat(here, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        REQUIRE(next >= 0);
        ::close(here);
        here = next;
        path += "/" + name;
    }
    const int made = ::openat(here, file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    REQUIRE(made >= 0);
    ::close(made);
    ::close(here);
    return path + "/" + file;
}

/// A file whose path is not longer than a server may name it at once, and its path below the container's
/// folder.
std::string dig_to_the_limit(const Place& place) {
    const std::string deep = dig(place.upper(), 20, std::string(200, 'd'), std::string(60, 'f'));
    REQUIRE(deep.size() < 4096 - sizeof("./upper"));
    REQUIRE((place.upper() + deep).size() > 4096);
    return "/upper" + deep;
}

struct statx look(const std::string& container, const std::string& path) {
    const Folder folder(container);
    const auto info = Lookup(folder).look(path, STATX_BASIC_STATS);
    REQUIRE(info);
    return *info;
}

/// Fewer descriptors than the folders are deep.
class FewFiles {
  public:
    FewFiles() {
        REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
        rlimit few = before_;
        few.rlim_cur = 256;
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    }
    ~FewFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }

  private:
    rlimit before_{};
};

}  // namespace

TEST_CASE("server files: what craned writes takes the place of links and pipes, and leads nowhere",
          "[checkpoint]") {
    const Place place;
    const std::string own = place.upper() + "/run/crane-init";
    fs::create_symlink(place.path + "/host", own + "/domain");
    fs::create_symlink(place.path + "/host", own + "/crane-init");
    REQUIRE(::mkfifo((own + "/stdout").c_str(), 0600) == 0);
    CHECK_THROWS_WITH(check_own_files(place.upper()), Catch::Contains("Crane's own"));
    lay_out_init(place.upper(), "/bin/true", "what crane-init reads");
    CHECK(place.of_host() == "the host's");
    CHECK(text_of(own + "/domain") == "what crane-init reads");
    CHECK(fs::file_size(own + "/crane-init") == fs::file_size("/bin/true"));
    CHECK_NOTHROW(check_own_files(place.upper()));
    struct stat info {};
    REQUIRE(::lstat((own + "/crane-init").c_str(), &info) == 0);
    CHECK((info.st_mode & (S_IFMT | 07777)) == (S_IFREG | 0755));
}

TEST_CASE("server files: a link in the place of a folder is not gone through", "[checkpoint]") {
    const Place place;
    const std::string own = place.upper() + "/run/crane-init";
    const std::string elsewhere = place.path + "/elsewhere";
    fs::create_directories(elsewhere + "/crane-init");
    SECTION("of the last one") {
        fs::remove(own);
        fs::create_directory_symlink(elsewhere + "/crane-init", own);
    }
    SECTION("of one above") {
        fs::remove_all(place.upper() + "/run");
        fs::create_directory_symlink(elsewhere, place.upper() + "/run");
    }
    CHECK_THROWS_WITH(check_own_files(place.upper()), Catch::Contains("Crane's own"));
    CHECK_THROWS(lay_out_init(place.upper(), "/bin/true", "text"));
    CHECK(fs::is_empty(elsewhere + "/crane-init"));
    const mode_t before = static_cast<mode_t>(fs::status(elsewhere).permissions());
    fs::create_directory_symlink(elsewhere, place.upper() + "/link");
    CHECK_THROWS(make_folder(place.upper() + "/link", 01777, ::geteuid(), ::getegid()));
    CHECK(static_cast<mode_t>(fs::status(elsewhere).permissions()) == before);
}

TEST_CASE("server files: what is read is a file of its own, and no pipe is waited for", "[checkpoint]") {
    const Place place;
    const Folder folder(place.upper());
    fs::create_symlink(place.path + "/host", place.upper() + "/link");
    REQUIRE(::mkfifo((place.upper() + "/pipe").c_str(), 0600) == 0);
    folder.write("file", "text");
    CHECK_THROWS(folder.open("link"));
    CHECK_THROWS(folder.open("pipe"));
    CHECK(folder.open("file")->read(0, 100) == "text");
}

TEST_CASE("server files: a path as long as a server may name it stops no restart", "[checkpoint]") {
    const Place place;
    const std::string deep = dig_to_the_limit(place);
    CHECK(settle_times(place.container(), 1, 2'000 * kSecond + 7) >= 21);
    CHECK(look(place.container(), deep).stx_mtime.tv_sec == 2'000);
    CHECK(look(place.container(), fs::path(deep).parent_path()).stx_mtime.tv_sec == 2'000);
    CHECK(settle_times(place.container(), 1, 3'000 * kSecond) == 0);

    // An image of the server has a list of those that are not settled.
    unsettle(place.container(), deep + std::string(1, '\0'));
    CHECK(look(place.container(), deep).stx_mtime.tv_sec > 1'000'000'000);
    const std::string unsettled = unsettled_files(place.container(), 1);
    CHECK(unsettled == deep + std::string(1, '\0'));
    CHECK(settle_times(place.container(), 1, 4'000 * kSecond) == 1);

    // A folder's time, which CRIU changes, is put back.
    const std::string above = fs::path(deep).parent_path();
    const FolderTimes times(place.container());
    const Folder base(place.container());
    Lookup(base).stamp(above, {5'000, 0});
    times.set_again();
    CHECK(look(place.container(), above).stx_mtime.tv_sec == 2'000);

    // What the kernel tells it by is noted.
    fs::create_directories(place.container() + "/dev/shm");
    CHECK_THAT(file_identities(place.container(), {{place.upper(), "/upper"}}), Catch::Contains(deep));
}

TEST_CASE("server files: deeper than an archive brings back the files are settled, and no archive is made",
          "[checkpoint]") {
    const Place place;
    dig(place.upper(), 30, std::string(200, 'd'), "file");
    CHECK(settle_times(place.container(), 1, 2'000 * kSecond) >= 31);
    CHECK(settle_times(place.container(), 1, 3'000 * kSecond) == 0);
    const std::string archive = place.path + "/archive";
    CHECK_THROWS_WITH(pack_files(place.container(), archive), Catch::Contains("no archive"));
    CHECK_THROWS_WITH(copy_files(place.container(), place.path + "/copy"), Catch::Contains("no archive"));
    CHECK_THROWS_WITH(pack_folder(place.upper(), archive, Pace::kWaitedFor), Catch::Contains("no archive"));
    CHECK_FALSE(fs::exists(archive));
}

TEST_CASE("server files: folders deeper than a process may have files open are removed", "[checkpoint]") {
    const Place place;
    for (const char* top : {"/tmp", "/run", "/var"}) {
        fs::create_directories(place.upper() + top);
        dig(place.upper() + top, 1'000, "d", "file");
    }
    fs::create_directory_symlink(place.path, place.upper() + "/run/link");
    fs::create_directories(place.container() + "/work");
    const FewFiles few;
    const ServerRoot none;
    if (::geteuid() == 0) {
        renew_layers(place.container(), "", none);
        CHECK_FALSE(fs::exists(place.upper() + "/tmp/d"));
        CHECK_FALSE(fs::exists(place.upper() + "/run/d"));
        CHECK(fs::exists(place.upper() + "/var/d"));
    }
    make_container_dir(place.container(), {});
    CHECK(fs::is_empty(place.container()));
    CHECK(place.of_host() == "the host's");
}

TEST_CASE("server files: a walk visits all once, folders before or after what is in them", "[checkpoint]") {
    const Place place;
    const std::string top = place.path + "/walked";
    fs::create_directories(top + "/a/b");
    std::ofstream(top + "/a/b/file") << "x";
    fs::create_directory_symlink(place.path, top + "/a/link");
    std::string first, last;
    walk_folder(Folder(top), FolderOrder::kFirst, [&](const Walked& one) {
        if (one.path.find("link") == std::string::npos) first += one.path + (one.is_folder ? "/ " : " ");
    });
    walk_folder(Folder(top), FolderOrder::kLast, [&](const Walked& one) {
        if (one.path.find("link") == std::string::npos) last += one.path + " ";
        if (one.path == "/a/link") CHECK((!one.is_folder && S_ISLNK(one.look().st_mode)));
    });
    CHECK(first == "/a/ /a/b/ /a/b/file ");
    CHECK(last == "/a/b/file /a/b /a ");
}
