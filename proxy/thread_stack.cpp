#include "proxy/thread_stack.hpp"

#include <elfutils/libdwfl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>

#include <memory>

#include "proxy/program_images.hpp"

namespace crane::proxy {

namespace {

constexpr int kStackPointer = 7, kInstruction = 16;
/// Frames beyond it are read where they are: the outer ones change the least.
constexpr size_t kCopiedBytes = 256 << 10;

ssize_t read_memory(pid_t thread, uint64_t address, void* to, size_t bytes) {
    const iovec here{to, bytes};
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address in another process
    const iovec there{reinterpret_cast<void*>(address), bytes};
    return process_vm_readv(thread, &here, 1, &there, 1, 0);
}

// --- for libdwfl: one thread, which is given as its copy

pid_t next_thread(Dwfl*, void*, void**) {
    return 0;
}

bool get_thread(Dwfl*, pid_t, void* copy, void** thread) {
    *thread = copy;
    return true;
}

bool read_word(Dwfl*, Dwarf_Addr address, Dwarf_Word* value, void* copy) {
    return static_cast<const StackCopy*>(copy)->read(address, *value);
}

bool set_registers(Dwfl_Thread* thread, void* copy) {
    const auto& one = *static_cast<const StackCopy*>(copy);
    const Dwarf_Word* all = one.registers().data();
    if (one.knows_all_registers()) return dwfl_thread_state_registers(thread, 0, one.registers().size(), all);
    return dwfl_thread_state_registers(thread, kStackPointer, 1, all + kStackPointer) &&
           dwfl_thread_state_registers(thread, kInstruction, 1, all + kInstruction);
}

constexpr Dwfl_Thread_Callbacks kThreadCallbacks{next_thread,   get_thread, read_word,
                                                 set_registers, nullptr,    nullptr};

/// Where the thread is, or will return to.
struct Frame {
    uint64_t address;
    bool returns;  ///< the call is before the address, and may be the last instruction of its function
};

struct Walk {
    std::vector<Frame> frames;
    size_t most;
};

int add_frame(Dwfl_Frame* frame, void* to) {
    auto& walk = *static_cast<Walk*>(to);
    Dwarf_Addr address = 0;
    bool runs = false;
    if (walk.frames.size() == walk.most || !dwfl_frame_pc(frame, &address, &runs)) return DWARF_CB_ABORT;
    walk.frames.push_back({address, !runs});
    return DWARF_CB_OK;
}

const char* file_name(const char* path) {
    const char* slash = path ? strrchr(path, '/') : nullptr;
    return slash ? slash + 1 : path ? path : "?";
}

/// A file and the place in its image are what addr2line and the like want, on any host.
std::string describe(Dwfl* session, const Frame& frame) {
    const uint64_t inside = frame.address - frame.returns;
    GElf_Off offset = 0;
    GElf_Sym symbol;
    Dwfl_Module* module = dwfl_addrmodule(session, inside);
    const char* name =
        module ? dwfl_module_addrinfo(module, inside, &offset, &symbol, nullptr, nullptr, nullptr) : nullptr;
    char text[320];
    if (name) {
        const uint64_t from_start = offset + frame.returns;
        snprintf(text, sizeof(text), "%.255s+0x%lx", name, static_cast<unsigned long>(from_start));
    } else if (module) {
        Dwarf_Addr start = 0;
        const char* file =
            dwfl_module_info(module, nullptr, &start, nullptr, nullptr, nullptr, nullptr, nullptr);
        snprintf(text, sizeof(text), "%.255s(+0x%lx)", file_name(file),
                 static_cast<unsigned long>(frame.address - start));
    } else {
        snprintf(text, sizeof(text), "0x%lx", static_cast<unsigned long>(frame.address));
    }
    return text;
}

}  // namespace

StackCopy StackCopy::of_sleeping(pid_t thread, const ThreadState& state) {
    StackCopy one(thread);
    one.registers_[kStackPointer] = state.stack;
    one.registers_[kInstruction] = state.instruction;
    one.copy();
    return one;
}

StackCopy StackCopy::of_stopped(pid_t thread) {
    StackCopy one(thread);
    user_regs_struct r{};
    one.knows_all_ = ptrace(PTRACE_GETREGS, thread, nullptr, &r) == 0;
    one.registers_ = {r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8,
                      r.r9,  r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rip};
    one.copy();
    return one;
}

void StackCopy::copy() {
    bytes_.resize(kCopiedBytes);
    const ssize_t got = read_memory(thread_, registers_[kStackPointer], bytes_.data(), bytes_.size());
    bytes_.resize(got > 0 ? static_cast<size_t>(got) : 0);
}

bool StackCopy::read(uint64_t address, uint64_t& value) const {
    const uint64_t from_start = address - registers_[kStackPointer];
    if (from_start < bytes_.size() && bytes_.size() - from_start >= sizeof(value)) {
        memcpy(&value, bytes_.data() + from_start, sizeof(value));
        return true;
    }
    return read_memory(thread_, address, &value, sizeof(value)) == sizeof(value);
}

std::vector<std::string> StackCopy::frames(size_t most) const {
    if (registers_[kStackPointer] == 0) return {};
    elf_version(EV_CURRENT);
    std::deque<ProgramImage> images = images_of(thread_);
    // Tells libdwfl what machine this is, whatever files the server has.
    const std::unique_ptr<Elf, int (*)(Elf*)> machine(kernels_image(), elf_end);
    const std::unique_ptr<Dwfl, void (*)(Dwfl*)> session(dwfl_begin(&kImageCallbacks), dwfl_end);
    if (!session) return {};
    report_images(session.get(), images);
    Walk walk{{}, most};
    walk.frames.reserve(most);  // nothing may be thrown through libdwfl
    if (dwfl_attach_state(session.get(), machine.get(), thread_, &kThreadCallbacks,
                          const_cast<StackCopy*>(this))) {
        dwfl_getthread_frames(session.get(), thread_, add_frame, &walk);
    }
    std::vector<std::string> out;
    for (const Frame& frame : walk.frames) out.push_back(describe(session.get(), frame));
    return out;
}

}  // namespace crane::proxy
