// Images of real servers in real containers, confined as they are by default, taken and restored by CRIU.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <thread>

#include "base/reserved_descriptors.hpp"
#include "checkpoint/criu.hpp"
#include "checkpoint/criu_message.hpp"
#include "checkpoint/criu_program.hpp"
#include "checkpoint/domain_host.hpp"
#include "checkpoint/processes.hpp"

namespace fs = std::filesystem;
using namespace crane::checkpoint;

namespace {

constexpr char kFileInside[] = "/var/tmp/counted";

bool can_take_images() {
    const bool can = ::geteuid() == 0 && fs::exists("/usr/bin/lxc-start") && !find_criu().empty();
    if (!can) WARN("no root, no LXC or no CRIU (scripts/install_criu.sh): images are not tested");
    return can;
}

bool eventually(const std::function<bool()>& holds, int timeout_ms = 20000) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    while (std::chrono::steady_clock::now() < deadline) {
        if (holds()) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return holds();
}

std::string program(const std::string& name) {
    const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
    for (const char* folder : {"../programs", "../../programs"})
        if (fs::exists(here / folder / name)) return fs::canonical(here / folder / name);
    return (here / name).string();
}

/// What the counter inherits: a page that craned reads, and the pipe that wakes craned, like the real ones.
struct Outside {
    int page = ::memfd_create("crane-transport", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int bell = -1, rung = -1;
    volatile uint64_t* count = nullptr;

    Outside() {
        int ends[2];
        REQUIRE(::pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0);
        rung = ends[0];
        bell = ::open(("/proc/self/fd/" + std::to_string(ends[1])).c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
        ::close(ends[1]);
        REQUIRE(::ftruncate(page, 4096) == 0);
        REQUIRE(::fcntl(page, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
        count = static_cast<volatile uint64_t*>(
            ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0));
    }
    ~Outside() {
        ::munmap(const_cast<uint64_t*>(count), 4096);
        for (const int fd : {page, bell, rung}) ::close(fd);
    }
    Outside(const Outside&) = delete;
    Outside& operator=(const Outside&) = delete;
    std::vector<DomainSpec::Inherited> handed_down() const {
        return {{page, crane::kTransportPlace}, {bell, crane::kDoorbellPlace}};
    }
    /// Servers are dumped at a point of the log, where nothing of them runs.
    void rest(bool still) const {
        count[1] = still ? 1 : 0;
        REQUIRE(eventually([&] { return (count[2] != 0) == still; }));
    }
    bool rings() const {
        char bytes[4096];
        return ::read(rung, bytes, sizeof bytes) > 0;
    }
};

struct Counter {
    std::string folder, images;
    DomainSpec spec;

    Counter() {
        char name[] = "/var/tmp/crane-images-XXXXXX";
        folder = ::mkdtemp(name);
        images = folder + "/images";
        spec.name = "crane-test-" + folder.substr(folder.size() - 6);
        spec.state_dir = folder + "/r1";
        fs::create_directories(spec.state_dir);
        spec.argv = {program("image_counter"), kFileInside};
        spec.cwd = "/";
        spec.environment = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"};
        spec.init_path = fs::read_symlink("/proc/self/exe").parent_path().string() + "/crane-init";
        spec.schedule = false;
        spec.user = "nobody";
    }
    ~Counter() {
        DomainHost::clean(spec);
        fs::remove_all(folder);
    }
    Counter(const Counter&) = delete;
    Counter& operator=(const Counter&) = delete;

    std::string file() const {
        for (const auto& entry : fs::recursive_directory_iterator(spec.state_dir + "/container"))
            if (entry.path().filename() == "counted") return entry.path();
        return spec.state_dir + "/container/upper" + kFileInside;
    }
    uint64_t counted() const {
        std::ifstream lines(file());
        uint64_t count = 0, last = 0;
        for (long pid = 0; lines >> count >> pid;) last = count;
        return last;
    }
    /// Every number once and in order, children with one pid after the other.
    void check_lines() const {
        std::ifstream lines(file());
        uint64_t expected = 1;
        long last_child = 0;
        size_t wrong = 0;
        uint64_t count = 0;
        for (long pid = 0; lines >> count >> pid; ++expected) {
            wrong += count != expected;
            if (pid == 0) continue;
            wrong += last_child != 0 && pid != last_child + 1;
            last_child = pid;
        }
        INFO("counted to " << count << ", last child " << last_child);
        CHECK(wrong == 0);
        CHECK(last_child > 0);
    }
};

bool stands_still(pid_t pid) {
    const std::string stat = read_text_file("/proc/" + std::to_string(pid) + "/stat");
    const size_t name_end = stat.rfind(") ");
    return name_end != std::string::npos && (stat[name_end + 2] == 'T' || stat[name_end + 2] == 't');
}

/// A dump that came to nothing must not be felt.
void check_runs_on(const Counter& counter, const DomainHost& host) {
    const uint64_t before = counter.counted();
    CHECK(eventually([&] { return counter.counted() > before + 40; }));
    for (const pid_t pid : descendants_of(host.init_pid())) CHECK_FALSE(stands_still(pid));
    for (const auto& entry : fs::directory_iterator(counter.images))
        CHECK(entry.path().extension() == ".log");
    counter.check_lines();
}

std::string error_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const CriuError& error) {
        CHECK_FALSE(error.server_lost);
        return error.what();
    }
    return "no error";
}

using FileTimes = std::map<std::string, long>;

FileTimes files_of(const DomainSpec& spec) {
    FileTimes files;
    for (const auto& entry : fs::recursive_directory_iterator(spec.state_dir + "/container/upper")) {
        struct stat info {};
        if (::lstat(entry.path().c_str(), &info) == 0)
            files[entry.path()] = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec;
    }
    return files;
}

/// What has come, gone or been changed, by name.
std::string changes(const FileTimes& before, const FileTimes& after) {
    std::string names;
    for (const auto& [path, time_ns] : after)
        if (const auto had = before.find(path); had == before.end() || had->second != time_ns)
            names += path + "\n";
    for (const auto& [path, time_ns] : before)
        if (after.count(path) == 0) names += path + "\n";
    return names;
}

uint64_t bytes_on_disk(const std::string& folder) {
    uint64_t sum = 0;
    for (const auto& entry : fs::directory_iterator(folder)) {
        struct stat info {};
        if (::stat(entry.path().c_str(), &info) == 0) sum += static_cast<uint64_t>(info.st_blocks) * 512;
    }
    return sum;
}

}  // namespace

TEST_CASE("a server is restored from its image where it was, and again from an image of that",
          "[checkpoint][root]") {
    if (!can_take_images()) return;
    Counter counter;
    const Outside outsides[3];  // of the start and of each restore
    counter.spec.inherited = outsides[0].handed_down();
    DomainHost host(counter.spec);
    host.start();
    REQUIRE(eventually([&] { return counter.counted() > 40; }));
    for (int generation = 1; generation <= 2; ++generation) {
        const std::string images = counter.images + std::to_string(generation);
        uintmax_t file_size = 0;
        outsides[generation - 1].rest(true);
        const FileTimes files = files_of(counter.spec);
        const ImageReport taken = host.take_image(images, [&] { file_size = fs::file_size(counter.file()); });
        CHECK(changes(files, files_of(counter.spec)) == "");  // the server would see it
        outsides[generation - 1].rest(false);
        const uint64_t at_dump = counter.counted();
        INFO("image " << generation << ": " << taken.wall_us / 1000 << " ms, frozen "
                      << taken.frozen_us / 1000 << " ms, " << bytes_on_disk(images) / 1024 << " KiB");
        CHECK(taken.frozen_us > 0);
        CHECK(taken.frozen_us <= taken.wall_us);
        CHECK(bytes_on_disk(images) < 8 << 20);  // the memfd's hole of 400 MB is none of it
        CHECK(eventually([&] { return counter.counted() > at_dump + 40; }));  // runs on
        counter.check_lines();
        REQUIRE(host.kill_all(Files::kKept));

        fs::resize_file(counter.file(), file_size);
        const uint64_t in_image = counter.counted();
        const Outside& again = outsides[generation];
        host.hand_down(again.handed_down());
        const ImageReport restored = host.restore(images);
        INFO("restored in " << restored.wall_us / 1000 << " ms");
        CHECK(eventually([&] { return counter.counted() > in_image + 40; }));
        counter.check_lines();
        CHECK(eventually([&] { return *again.count > in_image + 40; }));
        CHECK(again.rings());
        CHECK_FALSE(host.poll_exit());
        if (generation == 1) continue;
        CHECK(host.terminate());
        CHECK(eventually([&] { return host.poll_exit().has_value(); }));
        CHECK(host.poll_exit()->signal == SIGTERM);
    }
}

TEST_CASE("an image that there is no room for any more is left unfinished", "[checkpoint][root]") {
    if (!can_take_images()) return;
    Counter counter;
    const Outside outside;
    counter.spec.inherited = outside.handed_down();
    DomainHost host(counter.spec);
    host.start();
    REQUIRE(eventually([&] { return counter.counted() > 40; }));
    const std::string archive = counter.images + ".files", image = counter.images + ".image";
    // While its files are copied, and it is frozen; and later, when it runs on.
    for (const std::string& begun : {archive, image}) {
        outside.rest(true);
        const auto full = [&] {
            if (begun == archive || fs::exists(archive)) throw std::runtime_error("the disk is full");
        };
        CHECK_THROWS_WITH(host.take_whole_image(0, full)->pack(archive, image, full),
                          Catch::EndsWith("the disk is full"));
        outside.rest(false);
        CHECK_FALSE(fs::exists(image));
        CHECK_FALSE(fs::exists(counter.spec.state_dir + "/image"));
        fs::remove(archive);
    }
    fs::create_directories(counter.images);
    check_runs_on(counter, host);
}

TEST_CASE("an image that is refused while the server is frozen leaves it running", "[checkpoint][root]") {
    if (!can_take_images()) return;
    Counter counter;
    const Outside outside;
    counter.spec.inherited = outside.handed_down();
    DomainHost host(counter.spec);
    host.start();
    REQUIRE(eventually([&] { return counter.counted() > 40; }));
    outside.rest(true);
    const auto refuse = [] { throw std::runtime_error("the disk is full"); };
    CHECK(error_of([&] { host.take_image(counter.images, refuse); }) ==
          "no image of the server was taken: the disk is full");
    outside.rest(false);
    check_runs_on(counter, host);
}

TEST_CASE("a restore that comes to nothing leaves nothing running, and can be tried again",
          "[checkpoint][root]") {
    if (!can_take_images()) return;
    Counter counter;
    DomainHost host(counter.spec);
    host.start();
    REQUIRE(eventually([&] { return counter.counted() > 40; }));
    uintmax_t file_size = 0;
    host.take_image(counter.images, [&] { file_size = fs::file_size(counter.file()); });
    REQUIRE(host.kill_all(Files::kKept));
    fs::resize_file(counter.file(), file_size - 1);  // as if of another time
    std::string error;
    try {
        host.restore(counter.images);
    } catch (const std::runtime_error& problem) {
        error = problem.what();
    }
    CHECK_THAT(error, Catch::Contains("was not restored from") && Catch::Contains("bad size"));
    CHECK(host.init_pid() == 0);
    CHECK(find_processes([&](pid_t pid) {
              const std::vector<std::string> words = command_line(pid);
              return !words.empty() && words[0] == counter.spec.argv[0];
          }).empty());
    fs::resize_file(counter.file(), file_size);
    std::ofstream(counter.file(), std::ios::in | std::ios::out | std::ios::ate).seekp(-1, std::ios::end)
        << "\n";
    const uint64_t in_image = counter.counted();
    host.restore(counter.images);
    CHECK(eventually([&] { return counter.counted() > in_image + 40; }));
}

TEST_CASE("a restore writes nowhere where the server's links lead", "[checkpoint][root]") {
    if (!can_take_images()) return;
    Counter counter;
    const std::string shared = counter.spec.state_dir + "/shared", host_file = counter.folder + "/host";
    std::ofstream(host_file) << "the host's";
    const auto of_host = [&] { return read_text_file(host_file); };
    const Outside outside;
    counter.spec.inherited = outside.handed_down();
    DomainHost host(counter.spec);
    host.start();
    REQUIRE(eventually([&] { return counter.counted() > 40; }));
    std::ofstream(shared + "/trace") << "of the schedule";
    uintmax_t file_size = 0;
    outside.rest(true);
    const std::string own = "/proc/" + std::to_string(host.init_pid()) + "/root/run/crane-init";
    fs::create_symlink(host_file, own + "/stray");
    CHECK_THAT(error_of([&] { host.take_image(counter.images); }), Catch::Contains("/run/crane-init/stray"));
    fs::remove(own + "/stray");
    const std::string images = counter.images + "2";
    host.take_image(images, [&] { file_size = fs::file_size(counter.file()); });
    REQUIRE(host.kill_all(Files::kKept));
    fs::resize_file(counter.file(), file_size);
    // A server that is traced may write there.
    for (const char* name : {"/trace", "/files-again"}) {
        fs::remove(shared + name);
        fs::create_symlink(host_file, shared + name);
    }
    host.hand_down(outside.handed_down());
    host.restore(images);
    CHECK(of_host() == "the host's");
    CHECK(fs::file_size(shared + "/trace") == 15);
    CHECK_FALSE(fs::is_symlink(shared + "/trace"));
    REQUIRE(host.kill_all(Files::kKept));
    // Of a server that is root in its container, taken by a craned that did not look.
    const std::string inside = counter.spec.state_dir + "/container/upper/run/crane-init";
    SECTION("of a file") {
        fs::remove(inside + "/domain");
        fs::create_symlink(host_file, inside + "/domain");
    }
    SECTION("of the folder") {
        fs::rename(inside, inside + "-moved");
        fs::create_directories(counter.folder + "/of-host");
        fs::create_directory_symlink(counter.folder + "/of-host", inside);
    }
    CHECK_THAT(error_of([&] { host.restore(images); }), Catch::Contains("Crane's own"));
    CHECK(of_host() == "the host's");
    CHECK((!fs::exists(counter.folder + "/of-host") || fs::is_empty(counter.folder + "/of-host")));
}

TEST_CASE("what craned does while a server is frozen is not counted as CRIU's time", "[checkpoint][root]") {
    if (!can_take_images()) return;
    Counter counter;
    const Outside outside, again;
    counter.spec.inherited = outside.handed_down();
    counter.spec.start_timeout_ms = 10'000;
    DomainHost host(counter.spec);
    host.start();
    REQUIRE(eventually([&] { return counter.counted() > 40; }));
    outside.rest(true);
    CriuJob job;
    job.init = host.init_pid();
    job.helper = fs::path(counter.spec.init_path).replace_filename("crane-criu");
    job.folder = counter.images + "-dump";
    job.timeout_ms = 10'000;
    // Longer than that: what is waited for is the time itself.
    job.while_frozen = [] { std::this_thread::sleep_for(std::chrono::milliseconds(10'500)); };
    fs::create_directories(job.folder);
    CHECK(run_criu(job).frozen_us > 0);
    uintmax_t file_size = 0;
    host.take_image(counter.images, [&] { file_size = fs::file_size(counter.file()); });
    REQUIRE(host.kill_all(Files::kKept));
    fs::resize_file(counter.file(), file_size);
    const uint64_t in_image = counter.counted();
    host.hand_down(again.handed_down());
    host.restore(counter.images, job.while_frozen);
    CHECK(eventually([&] { return counter.counted() > in_image + 40; }));
}

TEST_CASE("what a killed craned has left of images goes when a server begins", "[checkpoint][root]") {
    if (::geteuid() != 0) return;
    Counter counter;
    counter.spec.argv = {"/bin/sleep", "60"};
    counter.spec.isolation = Isolation::kNone;
    const std::string& state = counter.spec.state_dir;
    const std::vector<std::string> left = {state + "/image", state + "/restored"};
    const auto leave = [&] {
        for (const std::string& folder : left) {
            fs::create_directories(folder + "/processes");
            std::ofstream(folder + "/processes/pages-1.img") << "memory";
        }
    };
    DomainHost host(counter.spec);
    leave();
    host.start();
    for (const std::string& folder : left) CHECK_FALSE(fs::exists(folder));
    leave();
    CHECK(host.kill_all());
    CHECK_THROWS(host.unpack_files(counter.folder + "/none"));
    for (const std::string& folder : left) CHECK_FALSE(fs::exists(folder));
    leave();
    DomainHost::clean(counter.spec);
    for (const std::string& folder : left) CHECK_FALSE(fs::exists(folder));
}

TEST_CASE("a server that CRIU cannot dump runs on, and CRIU's reason is told", "[checkpoint][root]") {
    if (!can_take_images()) return;
    Counter counter;
    counter.spec.argv.emplace_back("undumpable");
    const Outside outside;
    counter.spec.inherited = outside.handed_down();
    DomainHost host(counter.spec);
    host.start();
    REQUIRE(eventually([&] { return counter.counted() > 40; }));
    outside.rest(true);
    const std::string error = error_of([&] { host.take_image(counter.images); });
    outside.rest(false);
    CHECK_THAT(error, Catch::StartsWith("no image of the server was taken: ") && Catch::Contains("Error (") &&
                          Catch::Contains("crane check"));
    check_runs_on(counter, host);
    CHECK_THAT(error_of([&] { host.take_image(counter.images); }), Catch::Contains("is not empty"));
}

TEST_CASE("a folder that holds no whole image is refused before anything is started", "[checkpoint][root]") {
    if (!can_take_images()) return;
    Counter counter;
    DomainHost host(counter.spec);
    CHECK_THAT(error_of([&] { host.restore(counter.images); }),
               Catch::Contains("holds no image of a server"));
    CHECK_THAT(error_of([&] { host.take_image(counter.images); }), Catch::Contains("does not run"));
    CHECK(host.init_pid() == 0);
}

TEST_CASE("criu messages: what is asked is in the bytes, what is answered is read", "[checkpoint]") {
    CriuRequest request;
    request.images_fd = 4;
    request.root_pid = 300;
    request.log_file = "dump.log";
    request.watched = {"/watched"};
    const std::string dump = encode(request);
    CHECK(dump.substr(0, 3) == std::string("\x08\x01\x12", 3));             // type DUMP, options
    CHECK(dump.find(std::string("\x08\x04\x10\xac\x02\x18\x01", 7)) == 4);  // folder 4, pid 300, runs on
    CHECK(dump.find(std::string("\x52\x08") + "dump.log") != std::string::npos);      // field 10
    CHECK(dump.find(std::string("\xa2\x02\x08") + "/watched") != std::string::npos);  // field 36
    const auto stage = decode_criu_answer(std::string("\x08\x06\x10\x01\x2a\x0b\x0a\x09post-dump", 17));
    REQUIRE(stage);
    CHECK(stage->stage == "post-dump");
    const auto restored = decode_criu_answer(std::string("\x08\x02\x10\x01\x22\x02\x08\x02", 8));
    REQUIRE(restored);
    CHECK(restored->success);
    CHECK(restored->restored_pid == 2);
    const auto failed = decode_criu_answer(std::string("\x08\x01\x10\x00\x38\x05\x4a\x02no", 10));
    REQUIRE(failed);
    CHECK_FALSE(failed->success);
    CHECK(failed->error == "no");
    for (const std::string& torn : {std::string("\x08"), std::string("\x4a\x7fno"), std::string("\x0b\x01")})
        CHECK_FALSE(decode_criu_answer(torn));
    CHECK(frozen_us(std::string(12, '\0') + std::string("\x0a\x05\x08\x64\x10\xc8\x01", 7)) == 300);
    CHECK_FALSE(frozen_us("short"));
}
