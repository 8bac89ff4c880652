#include "interpose/core/x86_writes.hpp"

#include <cstring>

#include "interpose/core/x86_length.hpp"

namespace crane::interpose {

namespace {

using Form = InstructionParts::Form;

/// No single operand is larger, but for those that are not known here.
constexpr uint32_t kLargestOperandBytes = 64;
constexpr uint64_t kDirectionFlag = 0x400;
constexpr unsigned kDestination = 7;  // rdi

constexpr bool between(unsigned opcode, unsigned first, unsigned last) {
    return opcode >= first && opcode <= last;
}

class Writes {
  public:
    Writes(const uint8_t* code, const InstructionParts& parts, size_t length, const Registers& registers,
           uint64_t thread_base)
        : code_(code), parts_(parts), length_(length), registers_(registers), thread_base_(thread_base) {}

    bool find(Written& out) {
        if (parts_.segment == 0x65) return false;
        switch (parts_.map) {
            case 0:
                return one_byte(out);
            case 1:
                return parts_.form == Form::kLegacy ? two_bytes(out) : vectors(out);
            default:
                return parts_.form == Form::kLegacy ? three_bytes(out) : vectors(out);
        }
    }

  private:
    bool has_operand() const { return parts_.operand_at != 0; }
    unsigned modrm() const { return code_[parts_.operand_at]; }
    bool in_memory() const { return has_operand() && modrm() < 0xc0; }
    unsigned field() const { return modrm() >> 3 & 7; }

    bool nothing() const { return true; }
    bool push(Written& out) const {
        out = {registers_.stack() - 8, 8};
        return true;
    }
    int32_t displacement(size_t at, unsigned mod) const {
        if (mod == 1) return static_cast<int8_t>(code_[at]);
        int32_t value = 0;
        memcpy(&value, code_ + at, sizeof(value));
        return value;
    }

    /// What ModRM names, as far as an operand may reach.
    bool operand(Written& out) const {
        if (!in_memory()) return true;
        if (parts_.short_addresses) return false;
        const unsigned mod = modrm() >> 6, rm = modrm() & 7;
        size_t at = parts_.operand_at + size_t{1};
        unsigned base = rm;
        uint64_t place = parts_.segment == 0x64 ? thread_base_ : 0;
        if (rm == 4) {
            const unsigned sib = code_[at++];
            const unsigned index = (sib >> 3 & 7) | (parts_.high_index ? 8 : 0);
            if (index != kStackRegister) place += registers_.general[index] << (sib >> 6);
            base = sib & 7;
        }
        const bool has_base = base != 5 || mod != 0;
        if (has_base) place += registers_.general[base | (parts_.high_base ? 8 : 0)];
        if (!has_base && rm == 5) place += registers_.instruction + length_;
        if (mod != 0 || !has_base)
            place += static_cast<uint64_t>(int64_t{displacement(at, has_base ? mod : 2)});
        out = {place, kLargestOperandBytes};
        return true;
    }

    /// movs and stos. A traced one traps behind each round, so one at a time is looked at.
    bool strings(Written& out) const {
        if (parts_.short_addresses || (registers_.flags & kDirectionFlag)) return false;
        out = {registers_.general[kDestination], 8};
        return true;
    }

    bool one_byte(Written& out) const {
        const unsigned opcode = parts_.opcode;
        if (between(opcode, 0x50, 0x57) || opcode == 0x68 || opcode == 0x6a || opcode == 0xe8)
            return push(out);
        if (between(opcode, 0x6c, 0x6f) || between(opcode, 0x9b, 0x9d)) return false;  // ins, pushf
        if (opcode == 0xa4 || opcode == 0xa5 || opcode == 0xaa || opcode == 0xab) return strings(out);
        switch (opcode) {
            case 0x8d:  // lea
                return nothing();
            case 0x8e:  // to a segment
            case 0x8f:
            case 0xa2:
            case 0xa3:
            case 0xc8:  // enter
            case 0xca:
            case 0xcb:
            case 0xcc:
            case 0xcd:
            case 0xcf:
            case 0xf1:
            case 0xf4:
            case 0xfa:
            case 0xfb:
                return false;
            case 0xc6:
            case 0xc7:  // the other fields are those of transactions
                return field() == 0 && operand(out);
            case 0xd9:
            case 0xdd:  // the processor's whole state of numbers
                return !(in_memory() && (field() == 6 || field() == 4)) && operand(out);
            case 0xff:
                if (field() == 2 || field() == 6) return push(out);
                return field() != 3 && field() != 5 && field() != 7 && operand(out);
            default:
                break;
        }
        if (between(opcode, 0xe4, 0xe7) || between(opcode, 0xec, 0xef)) return false;  // ports
        return operand(out);
    }

    bool two_bytes(Written& out) const {
        const unsigned opcode = parts_.opcode;
        // What is the system's, and what the processor draws, counts or tells of itself.
        if (opcode < 0x0d || opcode == 0x0e || between(opcode, 0x20, 0x27) || between(opcode, 0x30, 0x37))
            return false;
        if (opcode == 0x0d || between(opcode, 0x18, 0x1f)) return nothing();  // prefetch and nop
        switch (opcode) {
            case 0xa0:  // push fs
            case 0xa1:
            case 0xa2:  // cpuid
            case 0xa8:
            case 0xa9:
            case 0xaa:
            case 0xf7:  // maskmov
            case 0xff:
                return false;
            case 0xab:
            case 0xb3:
            case 0xbb:  // a bit that may lie anywhere
                return !in_memory();
            case 0xae:
                return in_memory() ? between(field(), 2, 3) && !parts_.repeats && operand(out)
                                   : between(field(), 5, 7) && !parts_.repeats;
            case 0xc7:  // cmpxchg8b and cmpxchg16b; behind it stands what draws, or saves state
                return in_memory() && field() == 1 && operand(out);
            default:
                return operand(out);
        }
    }

    bool three_bytes(Written& out) const {
        if (parts_.map != 2 && parts_.map != 3) return false;
        // enqcmd, movdir64b: where they write is in a register.
        if (parts_.map == 2 && between(parts_.opcode, 0xf5, 0xff) && parts_.opcode != 0xf6) return false;
        return operand(out);
    }

    /// Under EVEX short displacements are scaled, by what it takes a table to know: only what reads may have
    /// them. Gathers are named wrongly, but only read.
    bool vectors(Written& out) const {
        const unsigned opcode = parts_.opcode;
        if (!in_memory()) return !(parts_.map == 1 && opcode == 0xf7);
        if (parts_.map == 2 && (opcode == 0x49 || opcode == 0x4b)) return false;  // tiles
        if (parts_.form == Form::kVex) return parts_.map <= 3 && operand(out);
        if (parts_.map == 1) return !is_store(opcode) || (modrm() >> 6 != 1 && operand(out));
        if (parts_.map == 2)
            return !(opcode == 0x63 || opcode == 0x8a || opcode == 0x8b || between(opcode, 0xa0, 0xa3) ||
                     between(opcode, 0x10, 0x15) || between(opcode, 0x20, 0x25) ||
                     between(opcode, 0x30, 0x35));
        if (parts_.map == 3) return !(between(opcode, 0x14, 0x1d) || opcode == 0x39 || opcode == 0x3b);
        return false;
    }

    static bool is_store(unsigned opcode) {
        return opcode == 0x11 || opcode == 0x13 || opcode == 0x17 || opcode == 0x29 || opcode == 0x2b ||
               opcode == 0x7e || opcode == 0x7f || opcode == 0x91 || opcode == 0xd6 || opcode == 0xe7;
    }

    const uint8_t* code_;
    const InstructionParts& parts_;
    size_t length_;
    const Registers& registers_;
    uint64_t thread_base_;
};

}  // namespace

bool find_written(const uint8_t* code, size_t bytes, const Registers& registers, uint64_t thread_base,
                  Written& out) {
    out = {};
    InstructionParts parts;
    const size_t length = read_instruction(code, bytes, parts);
    return length != 0 && Writes(code, parts, length, registers, thread_base).find(out);
}

}  // namespace crane::interpose
