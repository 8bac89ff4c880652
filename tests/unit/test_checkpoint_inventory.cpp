// What a server is made of on this host is found, and what of it has changed is named.
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "checkpoint/inventory.hpp"

namespace fs = std::filesystem;
using namespace crane::checkpoint;

namespace {

struct Server {
    fs::path folder;
    DomainSpec spec;
    Inventory inventory;

    Server() {
        // Not below /tmp, which each container has of its own.
        char name[] = "/var/tmp/crane-inventory-XXXXXX";
        folder = ::mkdtemp(name);
        write("server", "#!/bin/sh\nexec sleep 1000\n", 0755);
        write("libcrane.so", "the shim");
        write("server.conf", "one");
        spec.argv = {folder / "server", "server.conf"};
        spec.cwd = folder;
        spec.environment = {"PATH=/bin"};
        spec.shim_path = folder / "libcrane.so";
    }
    ~Server() { fs::remove_all(folder); }
    void write(const std::string& name, const std::string& text, mode_t mode = 0644) const {
        std::ofstream(folder / name, std::ios::binary) << text;
        ::chmod((folder / name).c_str(), mode);
    }
    std::string path(const std::string& name) const { return folder / name; }
    std::string take() { return inventory.take(spec); }
    bool has(const std::string& name) { return take().find(" " + name + "\n") != std::string::npos; }
};

}  // namespace

TEST_CASE("inventory: a script, what runs it, the libraries of that, named files and the shim",
          "[inventory]") {
    Server server;
    CHECK(server.has(server.path("server")));
    CHECK(server.has("/bin/sh"));
    CHECK(server.has("/lib/x86_64-linux-gnu/libc.so.6"));
    CHECK(server.has("/lib64/ld-linux-x86-64.so.2"));
    CHECK(server.has(server.path("server.conf")));
    CHECK(server.has(std::string(kShimPart)));
    CHECK_FALSE(server.has(server.path("libcrane.so")));
    CHECK(server.take() == server.take());
}

// A Java machine is started through /usr/bin/java, and has its libraries beside where that leads.
TEST_CASE("inventory: libraries beside a program that is started through a link", "[inventory]") {
    Server server;
    server.write("main.c", "int main(void) { return 0; }");
    fs::create_directory(server.folder / "real");
    const std::string in = "cd " + server.folder.string() + " && g++ -x c ";
    REQUIRE(std::system((in + "-shared -o real/libown.so /dev/null").c_str()) == 0);
    REQUIRE(std::system((in + "-o real/program main.c -Wl,--no-as-needed -Lreal -lown '-Wl,-rpath,$ORIGIN'")
                            .c_str()) == 0);
    fs::create_symlink("real/program", server.folder / "program");
    server.spec.argv = {server.path("program")};
    CHECK(server.has(server.path("real/libown.so")));
    CHECK(server.has(server.path("program")));
}

TEST_CASE("inventory: what a word names behind '=' counts, and what is made anew or huge does not",
          "[inventory]") {
    Server server;
    server.write("other.conf", "");
    server.write("data", "");
    fs::resize_file(server.path("data"), (256ULL << 20) + 1);
    std::ofstream("/tmp/crane-inventory-test") << "";
    server.spec.argv.insert(server.spec.argv.end(),
                            {"--conf=" + server.path("other.conf"), "--data", "data",
                             "/tmp/crane-inventory-test", "", "no-such-file", "/etc"});
    CHECK(server.has(server.path("other.conf")));
    CHECK_FALSE(server.has(server.path("data")));
    CHECK_FALSE(server.has("/tmp/crane-inventory-test"));
    CHECK_FALSE(server.has("/etc"));
    fs::remove("/tmp/crane-inventory-test");
    server.spec.isolation = Isolation::kNone;  // what a command line names the server may write
    CHECK_FALSE(server.has(server.path("server.conf")));
    CHECK(server.has(server.path("server")));
}

TEST_CASE("inventory: what has changed is named, whatever its size and time say", "[inventory]") {
    Server server;
    const std::string was = server.take();
    CHECK(inventory_difference(was, server.take(), true) == "");
    const auto time = fs::last_write_time(server.path("server.conf"));
    server.write("server.conf", "two");
    fs::last_write_time(server.path("server.conf"), time);
    CHECK(inventory_difference(was, server.take(), true) == server.path("server.conf") + " has changed");
    server.write("server.conf", "one");
    CHECK(inventory_difference(was, server.take(), true) == "");
    server.write("libcrane.so", "another shim");
    CHECK(inventory_difference(was, server.take(), true) == "(Crane's shim) has changed");
    CHECK(inventory_difference(was, server.take(), false) == "");
    server.spec.argv.pop_back();
    CHECK(inventory_difference(was, server.take(), false) ==
          server.path("server.conf") + " is not used any more");
    CHECK(inventory_difference(server.take(), was, false) == server.path("server.conf") + " is new");
    CHECK(inventory_difference("a 1\na 2\na 3\na 4\na 5\na 6\n", "", true) ==
          "1 is not used any more, 2 is not used any more, 3 is not used any more, 4 is not used any more "
          "and 2 "
          "files more");
}

TEST_CASE("inventory: a link is what it leads to, and odd names stay on one line", "[inventory]") {
    Server server;
    server.write("a", "one");
    server.write("b", "two");
    server.write("odd \n\xff%", "text");
    fs::create_symlink(server.path("a"), server.path("link"));
    server.spec.argv.insert(server.spec.argv.end(), {"link", "odd \n\xff%"});
    const std::string was = server.take();
    CHECK(server.has(server.path("odd%20%0A%FF%25")));
    fs::remove(server.path("link"));
    fs::create_symlink(server.path("b"), server.path("link"));
    CHECK(inventory_difference(was, server.take(), true) == server.path("link") + " has changed");
}

TEST_CASE("inventory: a server that is not there is an error with its name", "[inventory]") {
    Server server;
    server.spec.argv[0] = "no-such-server";
    CHECK_THROWS_WITH(server.take(), Catch::Contains("no-such-server"));
}

TEST_CASE("inventory: libraries as the loader lists them", "[inventory]") {
    CHECK(listed_libraries(
              "\tlinux-vdso.so.1 (0x7f)\n\tlibm.so.6 => /lib/libm.so.6 (0x7f)\n"
              "\tlibx.so => not found\n\t/lib64/ld.so (0x7f)\n\t/lib64/a.so => /usr/a.so (0x1)\n") ==
          std::vector<std::string>{"/lib/libm.so.6", "/lib64/ld.so", "/usr/a.so"});
    CHECK(listed_libraries("").empty());
}
