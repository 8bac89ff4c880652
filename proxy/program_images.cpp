#include "proxy/program_images.hpp"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>

namespace crane::proxy {

namespace {

constexpr char kKernels[] = "[vdso]";
/// More than the symbols of any server take; a file with holes may claim to be of any size.
constexpr uint64_t kMostOfSection = 256 << 20;
/// What is packed there grows by some thousand times at worst, and has no bound of its own.
constexpr uint64_t kMostPackedSymbols = 1 << 20;

/// The file at a place that was opened without opening the file. Takes the place.
int open_plain(int place) {
    struct stat about;
    int file = -1;
    if (place >= 0 && fstat(place, &about) == 0 && S_ISREG(about.st_mode)) {
        char name[32];
        snprintf(name, sizeof(name), "/proc/self/fd/%d", place);
        file = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    }
    if (place >= 0) close(place);
    return file;
}

/// The very file that is mapped, which the kernel shows to the host's root alone; else the one of its name as
/// the process sees it. The server's links lead nowhere else.
int open_image(const ProgramImage& image) {
    const int file = open_plain(open(image.mapped.c_str(), O_PATH | O_CLOEXEC));
    const int root = file >= 0 ? -1 : open(image.root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) return file;
    open_how how{};
    how.flags = O_PATH | O_CLOEXEC;
    how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
    const int place = static_cast<int>(syscall(SYS_openat2, root, image.name.c_str(), &how, sizeof(how)));
    close(root);
    return open_plain(place);
}

bool can_be_read(const char* name, const GElf_Shdr& section) {
    if ((section.sh_flags & SHF_COMPRESSED) || section.sh_size > kMostOfSection) return false;
    if (strcmp(name, ".gnu_debugdata") == 0) return section.sh_size <= kMostPackedSymbols;
    return strncmp(name, ".debug_", 7) != 0 && strncmp(name, ".zdebug_", 8) != 0;
}

/// Takes from the headers in memory what libdwfl would read to no use: it is after names and frames alone.
bool trim(Elf* elf) {
    size_t names = 0, segments = 0;
    bool frames = false;
    if (elf_getshdrstrndx(elf, &names) != 0 || elf_getphdrnum(elf, &segments) != 0) return false;
    GElf_Shdr section;
    if (!gelf_getshdr(elf_getscn(elf, names), &section) || section.sh_size > kMostOfSection) return false;
    for (Elf_Scn* one = elf_nextscn(elf, nullptr); one; one = elf_nextscn(elf, one)) {
        if (!gelf_getshdr(one, &section)) return false;
        if (section.sh_type == SHT_NOBITS || elf_ndxscn(one) == names) continue;
        const char* name = elf_strptr(elf, names, section.sh_name);
        if (name && can_be_read(name, section)) {
            frames = frames || strcmp(name, ".eh_frame") == 0;
            continue;
        }
        section.sh_type = SHT_NOBITS;
        if (!gelf_update_shdr(one, &section)) return false;
    }
    for (size_t i = 0; i < segments; ++i) {
        GElf_Phdr segment;
        if (!gelf_getphdr(elf, static_cast<int>(i), &segment)) return false;
        // Ways to the same without sections: by way of the whole file, and a symbol at a time.
        const bool whole = segment.p_type == PT_GNU_EH_FRAME && !frames;
        if (!whole && segment.p_type != PT_DYNAMIC) continue;
        segment.p_type = PT_NULL;
        if (!gelf_update_phdr(elf, static_cast<int>(i), &segment)) return false;
    }
    return true;
}

/// Before libelf looks at it: what does not fit into the header it would take from elsewhere, of any size.
bool is_program(int file) {
    Elf64_Ehdr header;
    return pread(file, &header, sizeof(header), 0) == sizeof(header) &&
           memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64 &&
           header.e_machine == EM_X86_64 && (header.e_type == ET_EXEC || header.e_type == ET_DYN) &&
           header.e_shnum != 0 && header.e_phnum != PN_XNUM;
}

int find_elf(Dwfl_Module*, void** image, const char*, Dwarf_Addr, char**, Elf** elf) {
    const auto& one = *static_cast<const ProgramImage*>(*image);
    if (one.name == kKernels) {
        *elf = kernels_image();
        return -1;
    }
    const int file = open_image(one);
    if (file < 0) return -1;
    *elf = is_program(file) ? elf_begin(file, ELF_C_READ, nullptr) : nullptr;
    if (*elf && trim(*elf)) return file;
    elf_end(*elf);
    *elf = nullptr;
    close(file);
    return -1;
}

/// libdwfl's own would ask servers for it.
int find_no_debuginfo(Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*, GElf_Word,
                      char**) {
    return -1;
}

}  // namespace

const Dwfl_Callbacks kImageCallbacks{find_elf, find_no_debuginfo, nullptr, nullptr};

std::deque<ProgramImage> images_of(pid_t thread) {
    const std::string process = "/proc/" + std::to_string(thread);
    std::deque<ProgramImage> images;
    std::ifstream maps(process + "/maps");
    for (std::string line; std::getline(maps, line);) {
        uint64_t low = 0, high = 0, offset = 0;
        char rights[5] = "";
        int name_at = 0;
        if (sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %*s %*s %n", &low, &high, rights,
                   &offset, &name_at) != 4 ||
            name_at == 0) {
            continue;
        }
        const std::string name = line.substr(name_at);
        if (name != kKernels && (name.empty() || name[0] != '/')) continue;
        // A program may map its own file once more, for a look into it.
        const bool begins =
            images.empty() || images.back().name != name || (offset == 0 && images.back().high != low);
        if (begins) {
            const std::string range = line.substr(0, line.find(' '));
            images.push_back({name, low, high, false, process + "/map_files/" + range, process + "/root"});
        }
        images.back().high = high;
        images.back().code = images.back().code || rights[2] == 'x';
    }
    return images;
}

void report_images(Dwfl* session, std::deque<ProgramImage>& images) {
    dwfl_report_begin(session);
    for (ProgramImage& image : images) {
        void** data = nullptr;
        Dwfl_Module* module =
            image.code ? dwfl_report_module(session, image.name.c_str(), image.low, image.high) : nullptr;
        if (!module) continue;
        dwfl_module_info(module, &data, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
        *data = &image;
    }
    dwfl_report_end(session, nullptr, nullptr);
}

Elf* kernels_image() {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the kernel tells it as a number
    auto* start = reinterpret_cast<char*>(getauxval(AT_SYSINFO_EHDR));
    if (!start) return nullptr;
    Elf64_Ehdr header;
    memcpy(&header, start, sizeof(header));
    return elf_memory(start, header.e_shoff + header.e_shnum * sizeof(Elf64_Shdr));
}

}  // namespace crane::proxy
