#include "checkpoint/program_check.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <sstream>

namespace crane::checkpoint {
namespace {

constexpr int kMaxInterpreters = 4;  // the kernel's own bound on #! nesting
constexpr uint16_t kMaxProgramHeaders = 512;
constexpr uint16_t kMaxSections = 4096;
constexpr char kDefaultPath[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

class File {
  public:
    explicit File(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
    ~File() {
        if (fd_ >= 0) ::close(fd_);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    bool is_open() const { return fd_ >= 0; }
    bool read_at(uint64_t offset, void* to, size_t size) const {
        return ::pread(fd_, to, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
    }
    std::string head(size_t size) const {
        std::string bytes(size, '\0');
        const ssize_t got = ::pread(fd_, bytes.data(), size, 0);
        bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
        return bytes;
    }

  private:
    int fd_;
};

std::string value_of(const std::vector<std::string>& environment, const std::string& name) {
    const std::string prefix = name + "=";
    for (const std::string& entry : environment)
        if (entry.compare(0, prefix.size(), prefix) == 0) return entry.substr(prefix.size());
    return {};
}

bool is_regular(const std::string& path, struct stat* info) {
    return ::stat(path.c_str(), info) == 0 && S_ISREG(info->st_mode);
}

// Sets check.path, or check.message when there is no such program.
void look_up(const std::string& program, const std::string& cwd, const std::vector<std::string>& environment,
             const ServerRoot& root, ProgramCheck* check) {
    struct stat info {};
    if (program.find('/') != std::string::npos) {
        const std::string path = program[0] == '/' ? program : cwd + "/" + program;
        if (!is_regular(root.on_host(path), &info))
            check->message = program + ": no such program";
        else if ((info.st_mode & 0111) == 0)
            check->message = program + ": permission denied: the file is not executable (chmod +x)";
        else
            check->path = path;
        return;
    }
    std::string path_variable = value_of(environment, "PATH");
    if (path_variable.empty()) path_variable = kDefaultPath;
    std::istringstream folders(path_variable);
    for (std::string folder; std::getline(folders, folder, ':');) {
        const std::string path = (folder.empty() ? cwd : folder) + "/" + program;
        if (is_regular(root.on_host(path), &info) && (info.st_mode & 0111) != 0) {
            check->path = path;
            return;
        }
    }
    check->message = program + ": command not found in " + path_variable;
}

std::string cannot(const std::string& path, const std::string& why) {
    return path + " cannot be scheduled: " + why;
}

// The dynamic loader named by the program, "" when there is none; nothing when the headers are broken.
std::optional<std::string> loader_of(const File& file, const Elf64_Ehdr& header) {
    if (header.e_phnum > kMaxProgramHeaders || header.e_phentsize != sizeof(Elf64_Phdr)) return std::nullopt;
    for (uint16_t i = 0; i < header.e_phnum; ++i) {
        Elf64_Phdr segment;
        if (!file.read_at(header.e_phoff + i * sizeof segment, &segment, sizeof segment)) return std::nullopt;
        if (segment.p_type != PT_INTERP) continue;
        if (segment.p_filesz == 0 || segment.p_filesz > 4096) return std::nullopt;
        std::string loader(segment.p_filesz, '\0');
        if (!file.read_at(segment.p_offset, loader.data(), loader.size())) return std::nullopt;
        return std::string(loader.c_str());
    }
    return std::string();
}

// Go calls the kernel without libc, so even a dynamic Go program would run past the shim.
bool is_go(const File& file, const Elf64_Ehdr& header) {
    if (header.e_shnum == 0 || header.e_shnum > kMaxSections || header.e_shentsize != sizeof(Elf64_Shdr) ||
        header.e_shstrndx >= header.e_shnum)
        return false;
    std::vector<Elf64_Shdr> sections(header.e_shnum);
    if (!file.read_at(header.e_shoff, sections.data(), sections.size() * sizeof(Elf64_Shdr))) return false;
    const Elf64_Shdr& names = sections[header.e_shstrndx];
    for (const Elf64_Shdr& section : sections) {
        char name[32] = {};
        if (section.sh_name >= names.sh_size) continue;
        const uint64_t room = names.sh_size - section.sh_name;
        if (!file.read_at(names.sh_offset + section.sh_name, name, std::min<uint64_t>(room, sizeof name - 1)))
            continue;
        if (std::strcmp(name, ".go.buildinfo") == 0 || std::strcmp(name, ".note.go.buildid") == 0)
            return true;
    }
    return false;
}

std::string check_elf(const std::string& path, const File& file, std::string* loader_found) {
    Elf64_Ehdr header{};
    if (!file.read_at(0, &header, sizeof header) || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_machine != EM_X86_64)
        return cannot(path, "not an x86-64 program; Crane runs 64-bit x86 servers only");
    const std::optional<std::string> loader = loader_of(file, header);
    if (!loader) return cannot(path, "its ELF headers are damaged");
    if (is_go(file, header))
        return cannot(path,
                      "a Go program, which calls the kernel without libc, so that the shim cannot see it");
    if (loader->empty())
        return cannot(path,
                      "statically linked, so that no library can be preloaded; use a dynamically "
                      "linked build of it");
    if (loader->find("ld-linux-x86-64.so") == std::string::npos)
        return cannot(path,
                      "linked to another C library (loader " + *loader + "); Crane's shim is for glibc");
    *loader_found = *loader;
    return {};
}

// The loader drops LD_PRELOAD when executing the file changes privileges.
std::string check_privileges(const std::string& path, const std::string& on_host) {
    struct stat info {};
    if (::stat(on_host.c_str(), &info) != 0) return path + ": " + std::strerror(errno);
    const bool changes_uid = (info.st_mode & S_ISUID) != 0 && info.st_uid != ::geteuid();
    const bool changes_gid =
        (info.st_mode & S_ISGID) != 0 && (info.st_mode & S_IXGRP) != 0 && info.st_gid != ::getegid();
    if (changes_uid || changes_gid)
        return cannot(path,
                      "set-user-ID or set-group-ID, so that nothing can be preloaded; run it as the "
                      "user it changes to");
    if (::geteuid() != 0 && ::getxattr(on_host.c_str(), "security.capability", nullptr, 0) > 0)
        return cannot(path,
                      "it has file capabilities, so that nothing can be preloaded; run it as root or "
                      "remove them (setcap -r on a copy)");
    return {};
}

// The program a #! line runs; looks through `env`, which is only a stepping stone.
std::string interpreter_of(const std::string& head) {
    std::istringstream line(head.substr(2, head.find('\n') - 2));
    std::string interpreter;
    line >> interpreter;
    if (interpreter == "/usr/bin/env" || interpreter == "/bin/env") {
        std::string word;
        while (line >> word)
            if (word[0] != '-' && word.find('=') == std::string::npos) return word;
    }
    return interpreter;
}

}  // namespace

ProgramCheck check_program(const std::string& program, const std::string& cwd,
                           const std::vector<std::string>& environment, const ServerRoot& root) {
    ProgramCheck check;
    std::string next = program;
    for (int depth = 0; depth <= kMaxInterpreters; ++depth) {
        ProgramCheck step;
        look_up(next, cwd, environment, root, &step);
        if (depth == 0) check.path = step.path;
        if (!step.path.empty()) check.files.push_back(step.path);
        check.message = step.message;
        if (!check.message.empty() && depth > 0)
            check.message = check.path + ": interpreter " + check.message;
        if (!check.message.empty()) return check;
        check.message = check_privileges(step.path, root.on_host(step.path));
        if (!check.message.empty()) return check;
        const File file(root.on_host(step.path));
        if (!file.is_open()) {
            check.message = step.path + " cannot be read: " + std::strerror(errno);
            return check;
        }
        const std::string head = file.head(256);
        if (head.compare(0, SELFMAG, ELFMAG) == 0) {
            check.message = check_elf(step.path, file, &check.loader);
            check.ok = check.message.empty();
            return check;
        }
        next = head.compare(0, 2, "#!") == 0 ? interpreter_of(head) : std::string();
        if (next.empty()) {
            check.message = cannot(step.path, "neither an ELF program nor a script with a #! line");
            return check;
        }
    }
    check.message = cannot(check.path, "its #! lines go round in a circle");
    return check;
}

}  // namespace crane::checkpoint
