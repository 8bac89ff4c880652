// Base images: paths in them, their store, and how they come from another replica.
#include <stdlib.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "checkpoint/fresh_root.hpp"
#include "checkpoint/image_store.hpp"
#include "checkpoint/inventory.hpp"
#include "checkpoint/processes.hpp"
#include "checkpoint/program_check.hpp"
#include "checkpoint/server_root.hpp"
#include "proxy/image_files.hpp"

using namespace crane::checkpoint;
using crane::proxy::ImageFiles;
namespace fs = std::filesystem;

namespace {

struct TemporaryDirectory {
    std::string path;
    TemporaryDirectory() {
        char name[] = "/tmp/crane-unit-images-XXXXXX";
        REQUIRE(mkdtemp(name) != nullptr);
        path = name;
    }
    ~TemporaryDirectory() { fs::remove_all(path); }
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
    std::string write(const std::string& name, const std::string& text) const {
        fs::create_directories(fs::path(path + "/" + name).parent_path());
        std::ofstream(path + "/" + name, std::ios::binary) << text;
        return path + "/" + name;
    }
};

std::string squashfs(size_t bytes, char fill) {
    return "hsqs" + std::string(bytes - 4, fill);
}

template <typename Call>
std::string why_not(const Call& call) {
    try {
        call();
        return "";
    } catch (const std::runtime_error& error) {
        return error.what();
    }
}

}  // namespace

TEST_CASE("base image: links in it lead nowhere outside", "[image]") {
    const TemporaryDirectory tree;
    tree.write("usr/bin/prog", "x");
    fs::create_symlink("/usr/bin", tree.path + "/bin");
    fs::create_symlink("../../../../../../etc", tree.path + "/usr/up");
    fs::create_symlink("/etc/passwd", tree.path + "/outside");
    fs::create_symlink("loop", tree.path + "/loop");
    const ServerRoot root(tree.path);
    CHECK(root.resolve("/bin/prog") == "/usr/bin/prog");
    CHECK(root.on_host("/bin/prog") == tree.path + "/usr/bin/prog");
    CHECK(root.resolve("/bin/../bin/./prog") == "/usr/bin/prog");
    CHECK(root.resolve("/") == "/");
    CHECK(root.resolve("/../..") == "/");
    CHECK_FALSE(root.has("/usr/up"));  // there is no /etc in it
    CHECK_FALSE(root.has("/outside"));
    CHECK(root.on_host("/outside") == tree.path + "/etc/passwd");
    CHECK(root.on_host("/bin/sh") == tree.path + "/usr/bin/sh");  // and not what this host has there
    CHECK_FALSE(fs::exists(root.on_host("/loop")));
    CHECK_FALSE(root.has("/loop"));
    CHECK_FALSE(root.has("/usr/bin/prog/x"));
    CHECK(root.on_host("/not/there") == tree.path + "/not/there");
    tree.write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nserved:x:77:78::/srv:/bin/sh\n");
    CHECK(root.resolve("/usr/up/passwd") == "/etc/passwd");
}

TEST_CASE("base image: users and groups are its own", "[image]") {
    const TemporaryDirectory tree;
    tree.write("etc/passwd", "served:x:77:78::/srv:/bin/sh\n");
    tree.write("etc/group", "served:x:78:\nmore:x:79:other,served\nnone:x:80:other\n");
    const ServerRoot root(tree.path);
    REQUIRE(root.user("served"));
    CHECK(root.user("served")->uid == 77);
    CHECK(root.user("served")->home == "/srv");
    CHECK_FALSE(root.user("root"));
    CHECK(root.group("more") == gid_t{79});
    CHECK_FALSE(root.group("root"));
    CHECK(root.groups_of("served", 78) == std::vector<gid_t>{78, 79});
    CHECK(ServerRoot().user("root"));
    CHECK(ServerRoot().group("root") == gid_t{0});
}

TEST_CASE("base image: where it has no passwords, accounts are not said to have any", "[image]") {
    const bool has = GENERATE(false, true);
    const TemporaryDirectory tree, layer;
    const std::string accounts = "root:x:0:0:x:y:/root:/bin/sh\nshort\nopen::5:5:::\nlast:x:6:6:::";
    tree.write("etc/passwd", accounts);
    fs::permissions(tree.path + "/etc/passwd", fs::perms(0604));
    if (has) tree.write("etc/shadow", "root:*:::::::\n");
    fs::create_directory(layer.path + "/upper");
    lock_accounts({"/", layer.path + "/upper", "", tree.path}, ServerRoot(tree.path));
    const std::string written = layer.path + "/upper/etc/passwd";
    REQUIRE(fs::exists(written) == !has);
    if (has) return;
    CHECK(read_text_file(written) == "root:*:0:0:x:y:/root:/bin/sh\nshort\nopen::5:5:::\nlast:*:6:6:::");
    CHECK(fs::status(written).permissions() == fs::perms(0604));
}

TEST_CASE("base image: a program is looked for in it", "[image]") {
    const TemporaryDirectory tree;
    fs::copy_file("/bin/true", tree.write("usr/bin/placeholder", ""), fs::copy_options::overwrite_existing);
    fs::rename(tree.path + "/usr/bin/placeholder", tree.path + "/usr/bin/only-here");
    fs::permissions(tree.path + "/usr/bin/only-here", fs::perms(0755));
    fs::create_symlink("/usr/bin", tree.path + "/bin");
    const ServerRoot root(tree.path);
    CHECK(check_program("only-here", "/", {"PATH=/bin"}, root).path == "/bin/only-here");
    CHECK(check_program("only-here", "/", {"PATH=/bin"}, root).ok);
    CHECK_FALSE(check_program("sh", "/", {"PATH=/bin"}, root).ok);
    CHECK_FALSE(check_program("only-here", "/", {"PATH=/bin"}).ok);
}

TEST_CASE("base image: names", "[image]") {
    const std::string digits(64, 'a');
    CHECK(image_sum_in("sha256:" + digits) == digits);
    for (const std::string& name :
         {digits, "sha256:" + digits + "a", "sha256:" + digits.substr(1), std::string("sha256:"),
          "sha256:" + std::string(64, 'A'), "md5:" + digits, std::string()})
        CHECK_FALSE(image_sum_in(name));
    CHECK(image_in("sha256:" + digits + " (the base image)\n0123 (Crane's shim)\n") == digits);
    CHECK(image_in("0123 /usr/bin/redis-server\n") == "");
    CHECK(image_in("sha256:zz (the base image)\n") == "");
}

TEST_CASE("base image: a store keeps what it was given, under its sum", "[image]") {
    const TemporaryDirectory dir;
    ImageStore store(dir.path + "/store");
    CHECK(store.list().empty());
    const std::string file = dir.write("image", squashfs(3 << 20, 'x'));
    const std::string sum = store.add(file);
    CHECK(sum == sha256_of_file(File(file, O_RDONLY), never));
    CHECK(store.add(file) == sum);
    REQUIRE(store.list().size() == 1);
    CHECK(store.list()[0].sum == sum);
    CHECK(store.list()[0].bytes == 3 << 20);
    CHECK(store.has(sum));
    CHECK_THAT(why_not([&] { store.add(dir.write("text", "no image")); }),
               Catch::Contains("crane image make"));
    CHECK_THAT(why_not([&] { store.add(dir.path + "/absent"); }), Catch::Contains("No such file"));
    // What an add that was killed has left.
    dir.write("store/.adding-999999999", "x");
    store.add(file);
    CHECK_FALSE(fs::exists(dir.path + "/store/.adding-999999999"));
    CHECK(store.remove(sum));
    CHECK_FALSE(store.remove(sum));
    CHECK(fs::is_empty(dir.path + "/store"));
}

TEST_CASE("base image: one that is damaged is not used", "[image]") {
    const TemporaryDirectory dir;
    ImageStore store(dir.path + "/store");
    const std::string sum = store.add(dir.write("image", squashfs(100'000, 'x')));
    CheckedImages images;
    images.check(store.path_of(sum), sum);
    fs::permissions(store.path_of(sum), fs::perms(0644));
    dir.write("store/" + sum + ".squashfs", squashfs(100'000, 'y'));
    CHECK_THAT(why_not([&] { images.check(store.path_of(sum), sum); }), Catch::Contains("is damaged"));
    store.remove(sum);
    CHECK_THAT(why_not([&] { images.check(store.path_of(sum), sum); }),
               Catch::Contains("is not on this host"));
}

TEST_CASE("base image: one comes in pieces, and is taken when it is whole and right", "[image]") {
    const TemporaryDirectory dir;
    const std::string bytes = squashfs(10'000, 'x');
    ImageStore from(dir.path + "/from");
    const std::string sum = from.add(dir.write("image", bytes));
    from.add(dir.write("other", squashfs(5'000, 'y')));
    const uint64_t number = crane::proxy::image_number(sum);
    ImageFiles source(from.folder(), "a", 0);
    REQUIRE(source.offers(number).size() == 1);
    CHECK(source.offers(number + 1).empty());
    const crane::proxy::Offer offer = source.offers(number)[0];
    CHECK(offer.bytes == bytes.size());
    const std::string manifest = source.read(
        {1, offer.name, crane::proxy::kManifestFile, 0, static_cast<uint32_t>(offer.manifest_bytes)});
    CHECK(source.read({2, offer.name, 1, 4, 3}) == "xxx");
    CHECK(why_not([&] { source.read({3, offer.name, 1, 9'999, 2}); }) != "");
    CHECK(why_not([&] { source.read({4, offer.name, 2, 0, 1}); }) != "");
    CHECK(why_not([&] { source.read({5, {number, std::string(32, '0')}, 1, 0, 1}); }) != "");

    const std::string to = dir.path + "/to";
    {
        ImageFiles first(to, "b", 0);
        CHECK_FALSE(first.is_manifest(offer.name, manifest));  // nothing is wanted
        first.want(sum);
        CHECK(first.present().newest == 0);
        CHECK_FALSE(first.is_manifest(offer.name, manifest + " "));
        CHECK_FALSE(first.is_manifest({number + 1, offer.name.id}, manifest));
        CHECK_FALSE(first.is_manifest(offer.name, "{}"));
        CHECK(first.begin(offer.name, manifest)[0].have == 0);
        first.append(0, 0, bytes.substr(0, 4'000));
        CHECK(why_not([&] { first.append(0, 5'000, "x"); }) != "");
        CHECK(why_not([&] { first.append(0, 4'000, bytes); }) != "");
    }
    ImageFiles next(to, "b", 0);  // another life
    next.want(sum);
    CHECK(next.begin(offer.name, manifest)[0].have == 4'000);
    next.append(0, 4'000, std::string(6'000, 'y'));
    CHECK_FALSE(next.check(0, never));
    CHECK(next.begin(offer.name, manifest)[0].have == 0);
    next.append(0, 0, bytes);
    REQUIRE(next.check(0, never));
    next.publish();
    CHECK(next.present().newest == number);
    CHECK(ImageStore(to).list().size() == 1);
    CHECK(std::distance(fs::directory_iterator(to), {}) == 1);
    CheckedImages().check(ImageStore(to).path_of(sum), sum);
}

TEST_CASE("base image: none comes where the disk has no room for it", "[image]") {
    const TemporaryDirectory dir;
    ImageStore from(dir.path + "/from");
    const std::string sum = from.add(dir.write("image", squashfs(10'000, 'x')));
    ImageFiles source(from.folder(), "a", 0);
    const crane::proxy::Offer offer = source.offers(crane::proxy::image_number(sum))[0];
    const std::string manifest =
        source.read({1, offer.name, 0, 0, static_cast<uint32_t>(offer.manifest_bytes)});
    ImageFiles full(dir.path + "/to", "b", 1ULL << 60);
    full.want(sum);
    CHECK_THAT(why_not([&] { full.begin(offer.name, manifest); }), Catch::Contains("free some space"));
}
