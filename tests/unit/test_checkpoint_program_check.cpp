#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "checkpoint/program_check.hpp"

namespace fs = std::filesystem;
using crane::checkpoint::check_program;
using crane::checkpoint::ProgramCheck;

namespace {

struct Folder {
    std::string path;
    Folder() {
        char name[] = "/tmp/crane-check-XXXXXX";
        path = ::mkdtemp(name);
    }
    ~Folder() { fs::remove_all(path); }
    std::string write(const std::string& name, const std::string& bytes, unsigned mode = 0755) const {
        const std::string file = path + "/" + name;
        std::ofstream(file, std::ios::binary) << bytes;
        ::chmod(file.c_str(), mode);
        return file;
    }
};

// A minimal ELF image: header, one optional PT_INTERP, one optional named section.
std::string make_elf(const std::string& loader, const std::string& section = "",
                     uint16_t machine = EM_X86_64) {
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_machine = machine;
    header.e_type = ET_DYN;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_shentsize = sizeof(Elf64_Shdr);
    const std::string names = std::string(1, '\0') + section + std::string(1, '\0');
    Elf64_Phdr interp{};
    interp.p_type = PT_INTERP;
    interp.p_offset = sizeof header + sizeof interp;
    interp.p_filesz = loader.size() + 1;
    header.e_phnum = loader.empty() ? 0 : 1;
    header.e_phoff = sizeof header;
    std::string body(reinterpret_cast<char*>(&interp), sizeof interp);
    body += loader + std::string(1, '\0');
    Elf64_Shdr sections[2] = {};
    if (!section.empty()) {
        sections[0].sh_offset = sizeof header + body.size();
        sections[0].sh_size = names.size();
        sections[1].sh_name = 1;
        body += names;
        header.e_shoff = sizeof header + body.size();
        header.e_shnum = 2;
        header.e_shstrndx = 0;
        body.append(reinterpret_cast<char*>(sections), sizeof sections);
    }
    return std::string(reinterpret_cast<char*>(&header), sizeof header) + body;
}

constexpr char kGlibc[] = "/lib64/ld-linux-x86-64.so.2";

}  // namespace

TEST_CASE("a dynamic program found through PATH is accepted", "[checkpoint]") {
    const ProgramCheck check = check_program("sh", "/", {"PATH=/nowhere:/bin"});
    CHECK(check.ok);
    CHECK(check.path == "/bin/sh");
    CHECK(check.message.empty());
}

TEST_CASE("what cannot be found or executed is named", "[checkpoint]") {
    const Folder folder;
    folder.write("plain", "text", 0644);
    CHECK_THAT(check_program("no-such-thing", "/", {"PATH=/bin"}).message,
               Catch::Contains("command not found in /bin"));
    CHECK_THAT(check_program("./absent", folder.path, {}).message, Catch::Contains("no such program"));
    CHECK_THAT(check_program("./plain", folder.path, {}).message, Catch::Contains("not executable"));
}

TEST_CASE("programs that the shim cannot enter are refused", "[checkpoint]") {
    const Folder folder;
    const auto message = [&](const std::string& bytes) {
        const ProgramCheck check = check_program(folder.write("program", bytes), "/", {});
        CHECK_FALSE(check.ok);
        return check.message;
    };
    CHECK(check_program(folder.write("good", make_elf(kGlibc)), "/", {}).ok);
    CHECK_THAT(message(make_elf("")), Catch::Contains("cannot be scheduled: statically linked"));
    CHECK_THAT(message(make_elf(kGlibc, ".go.buildinfo")), Catch::Contains("Go program"));
    CHECK_THAT(message(make_elf(kGlibc, ".note.go.buildid")), Catch::Contains("Go program"));
    CHECK_THAT(message(make_elf("/lib/ld-musl-x86_64.so.1")), Catch::Contains("another C library"));
    CHECK_THAT(message(make_elf(kGlibc, "", EM_AARCH64)), Catch::Contains("not an x86-64 program"));
    CHECK_THAT(message("just text"), Catch::Contains("neither an ELF program nor a script"));
    CHECK_THAT(message(make_elf(kGlibc).substr(0, 80)), Catch::Contains("damaged"));
    CHECK(check_program(folder.write("c", make_elf(kGlibc, ".text")), "/", {}).ok);
}

TEST_CASE("scripts are judged by their interpreter", "[checkpoint]") {
    const Folder folder;
    CHECK(check_program(folder.write("s1", "#!/bin/sh\nexit 0\n"), "/", {}).ok);
    CHECK(check_program(folder.write("s2", "#! /usr/bin/env -S A=b sh -e\n"), "/", {"PATH=/bin"}).ok);
    const std::string stat = folder.write("static", make_elf(""));
    CHECK_THAT(check_program(folder.write("s3", "#!" + stat + "\n"), "/", {}).message,
               Catch::Contains(stat + " cannot be scheduled: statically linked"));
    CHECK_THAT(check_program(folder.write("s4", "#!/no/where\n"), "/", {}).message,
               Catch::Contains("interpreter /no/where: no such program"));
    const std::string loop = folder.path + "/loop";
    folder.write("loop", "#!" + loop + "\n");
    CHECK_THAT(check_program(loop, "/", {}).message, Catch::Contains("circle"));
}

TEST_CASE("set-user-ID programs are refused when they change the user", "[checkpoint]") {
    const Folder folder;
    const std::string path = folder.write("suid", make_elf(kGlibc), 04755);
    CHECK(check_program(path, "/", {}).ok);  // to ourselves: the loader keeps LD_PRELOAD
    if (::geteuid() != 0) {
        WARN("not root: the refusing half is not tested");
        return;
    }
    REQUIRE(::chown(path.c_str(), 65534, 65534) == 0);
    ::chmod(path.c_str(), 04755);
    CHECK_THAT(check_program(path, "/", {}).message, Catch::Contains("set-user-ID"));
}
