#include "interpose/core/x86_effects.hpp"

#include <cstring>

#include "interpose/core/x86_length.hpp"

namespace crane::interpose {

namespace {

constexpr unsigned kAccumulator = 0, kCount = 1, kData = 2, kStackPointer = 4, kFramePointer = 5;
constexpr uint8_t kRexR = 4, kRexX = 2, kRexB = 1;
constexpr int32_t kPageBytes = 4096;
constexpr uint8_t kEndbr[] = {0x1e, 0xfa};

constexpr RegisterSet one(unsigned number) {
    return RegisterSet{1} << number;
}
constexpr bool between(unsigned opcode, unsigned first, unsigned last) {
    return opcode >= first && opcode <= last;
}

class Reader {
  public:
    Reader(const uint8_t* code, Effects& out) : at_(code), out_(out) {}

    /// The instruction is whole: it has out.length bytes.
    bool read() {
        for (; *at_ == 0x66 || *at_ == 0x2e || *at_ == 0x3e || *at_ == 0x64 || *at_ == 0x65; ++at_)
            in_segment_ = in_segment_ || *at_ >= 0x64;
        if (*at_ == 0xf3) return at_[1] == 0x0f && memcmp(at_ + 2, kEndbr, sizeof(kEndbr)) == 0;
        if ((*at_ & 0xf0) == 0x40) rex_ = *at_++;
        opcode_ = *at_++;
        if (opcode_ == 0x0f) return two_bytes();
        if (opcode_ < 0x40) return arithmetic(opcode_ >> 3 & 7, opcode_ & 7);
        if (between(opcode_, 0x70, 0x7f)) return jump_if(static_cast<int8_t>(*at_));
        if (between(opcode_, 0xb0, 0xbf)) return write(numbered(opcode_ & 7, opcode_ < 0xb8));
        return moves() || tests() || groups() || others();
    }

  private:
    // --- operands

    bool byte_sized() const { return (opcode_ & 1) == 0; }

    /// A register that the opcode names itself.
    unsigned numbered(unsigned number, bool byte) const {
        return byte && rex_ == 0 && number >= 4 ? number - 4 : number | (rex_ & kRexB ? 8 : 0);
    }

    /// ModRM and what belongs to it; `byte`: the operands are bytes, and ah to bh parts of the first four.
    void operands(bool byte) {
        const unsigned modrm = *at_++, mod = modrm >> 6, rm = modrm & 7;
        field_ = modrm >> 3 & 7;
        register_ = byte && rex_ == 0 && field_ >= 4 ? field_ - 4 : field_ | (rex_ & kRexR ? 8 : 0);
        in_memory_ = mod != 3;
        if (!in_memory_) {
            other_ = numbered(rm, byte);
            return;
        }
        unsigned base = rm | (rex_ & kRexB ? 8 : 0);
        bool has_base = rm != 5 || mod != 0, has_index = false;
        if (rm == 4) {
            const unsigned sib = *at_++;
            const unsigned index = (sib >> 3 & 7) | (rex_ & kRexX ? 8 : 0);
            has_index = index != kStackPointer;
            if (has_index) out_.addresses |= one(index);
            base = (sib & 7) | (rex_ & kRexB ? 8 : 0);
            has_base = (sib & 7) != 5 || mod != 0;
        }
        if (has_base) out_.addresses |= one(base);
        displacement_ = mod == 1 ? static_cast<int8_t>(at_[0]) : mod == 2 ? far_distance() : 0;
        out_.near = has_base && !has_index && !in_segment_ && displacement_ > -kPageBytes &&
                    displacement_ < kPageBytes;
        // Below a frame's pointer lies the frame.
        out_.on_stack = has_base && (base == kStackPointer || (base == kFramePointer && displacement_ < 0));
    }

    bool read_other() {
        if (in_memory_)
            out_.reads_memory = true;
        else
            out_.reads |= one(other_);
        return true;
    }
    bool read_register() {
        out_.reads |= one(register_);
        return true;
    }
    bool write(unsigned number) {
        out_.writes |= one(number);
        return true;
    }
    bool write_other() { return !in_memory_ && write(other_); }
    bool write_flags() { return write(kFlags); }

    // --- kinds

    bool jump_if(int32_t distance) {
        out_.jump = JumpKind::kIf;
        out_.distance = distance;
        out_.reads |= one(kFlags);
        return true;
    }
    bool jump(int32_t distance) {
        out_.jump = JumpKind::kAlways;
        out_.distance = distance;
        return true;
    }
    int32_t far_distance() const {
        int32_t distance = 0;
        memcpy(&distance, at_, sizeof(distance));
        return distance;
    }
    /// The constant that ends the instruction.
    bool is_one(bool byte) const {
        const int32_t constant = byte ? static_cast<int8_t>(*at_) : far_distance();
        return is_one(constant);
    }
    static bool is_one(int32_t constant) { return constant == 1 || constant == -1; }

    /// add, or, adc, sbb, and, sub, xor, cmp in their six forms.
    bool arithmetic(unsigned operation, unsigned form) {
        const bool compares = operation == 7;
        if (form > 5) return false;
        if (operation == 2 || operation == 3) out_.reads |= one(kFlags);
        write_flags();
        if (form >= 4) {
            out_.reads |= one(kAccumulator);
            out_.steps = (operation == 0 || operation == 5) && is_one(form == 4);
            return compares || write(kAccumulator);
        }
        operands(byte_sized());
        out_.clears = !in_memory_ && register_ == other_ && (operation == 5 || operation == 6);
        if (!out_.clears) read_other(), read_register();
        return compares || (form >= 2 ? write(register_) : write_other());
    }

    bool moves() {
        switch (opcode_) {
            case 0x63:
            case 0x8a:
            case 0x8b:
                operands(opcode_ == 0x8a);
                out_.copies = opcode_ == 0x8b && !in_memory_;
                return read_other() && write(register_);
            case 0x88:
            case 0x89:
                operands(byte_sized());
                out_.copies = opcode_ == 0x89;
                return read_register() && write_other();
            case 0x8d:
                operands(false);
                // What is reckoned is a value here.
                out_.reads = out_.addresses;
                out_.addresses = 0;
                out_.steps = out_.near && out_.reads == one(register_) && is_one(displacement_);
                return write(register_);
            case 0xc6:
            case 0xc7:
                operands(byte_sized());
                return field_ == 0 && write_other();
            default:
                return false;
        }
    }

    bool tests() {
        switch (opcode_) {
            case 0x84:
            case 0x85:
                operands(byte_sized());
                return read_other() && read_register() && write_flags();
            case 0xa8:
            case 0xa9:
                out_.reads |= one(kAccumulator);
                return write_flags();
            default:
                return false;
        }
    }

    bool groups() {
        switch (opcode_) {
            case 0x80:
            case 0x81:
            case 0x83:
                operands(byte_sized());
                read_other();
                if (field_ == 2 || field_ == 3) out_.reads |= one(kFlags);
                out_.steps = (field_ == 0 || field_ == 5) && !in_memory_ && is_one(opcode_ != 0x81);
                return write_flags() && (field_ == 7 || write_other());
            case 0xc0:
            case 0xc1:
            case 0xd0:
            case 0xd1:
            case 0xd2:
            case 0xd3:
                operands(byte_sized());
                if (opcode_ >= 0xd2) out_.reads |= one(kCount);
                if (field_ == 2 || field_ == 3) out_.reads |= one(kFlags);
                return read_other() && write_flags() && write_other();
            case 0xf6:
            case 0xf7:
                operands(byte_sized());
                read_other();
                if (field_ != 2) write_flags();
                return field_ <= 1 || (field_ <= 3 && write_other());
            case 0xfe:
            case 0xff:
                operands(byte_sized());
                out_.steps = true;
                return field_ <= 1 && read_other() && write_flags() && write_other();
            default:
                return false;
        }
    }

    bool others() {
        switch (opcode_) {
            case 0x69:
            case 0x6b:
                operands(false);
                return read_other() && write_flags() && write(register_);
            case 0x90:
                return (rex_ & kRexB) == 0;
            case 0x98:
                out_.reads |= one(kAccumulator);
                return write(kAccumulator);
            case 0x99:
                out_.reads |= one(kAccumulator);
                return write(kData);
            case 0xe9:
                return jump(far_distance());
            case 0xeb:
                return jump(static_cast<int8_t>(*at_));
            default:
                return false;
        }
    }

    /// Behind 0f.
    bool two_bytes() {
        opcode_ = *at_++;
        if (between(opcode_, 0x80, 0x8f)) return jump_if(far_distance());
        if (between(opcode_, 0x40, 0x4f)) {
            operands(false);
            out_.reads |= one(kFlags);
            return read_other() && read_register() && write(register_);
        }
        if (between(opcode_, 0x90, 0x9f)) {
            operands(true);
            out_.reads |= one(kFlags);
            return write_other();
        }
        switch (opcode_) {
            case 0x1f:  // nop, with an operand that nobody reads
                return true;
            case 0xa3:
                operands(false);
                return read_other() && read_register() && write_flags();
            case 0xae:  // lfence, mfence, sfence
                operands(false);
                return !in_memory_ && field_ >= 5;
            case 0xaf:
                operands(false);
                return read_other() && read_register() && write_flags() && write(register_);
            case 0xba:  // bt
                operands(false);
                return field_ == 4 && read_other() && write_flags();
            case 0xb6:
            case 0xbe:
                operands(false);
                if (!in_memory_ && rex_ == 0 && other_ >= 4) other_ -= 4;
                return read_other() && write(register_);
            case 0xb7:
            case 0xbf:
                operands(false);
                return read_other() && write(register_);
            default:
                return false;
        }
    }

    const uint8_t* at_;
    Effects& out_;
    uint8_t rex_ = 0, opcode_ = 0;
    unsigned field_ = 0;     ///< of ModRM, where it is part of the opcode
    unsigned register_ = 0;  ///< the same where it is a register
    unsigned other_ = 0;     ///< the other operand, unless
    int32_t displacement_ = 0;
    bool in_memory_ = false;
    bool in_segment_ = false;
};

}  // namespace

bool read_effects(const uint8_t* code, size_t bytes, Effects& out) {
    out = {};
    out.length = static_cast<uint8_t>(instruction_length(code, bytes));
    return out.length != 0 && Reader(code, out).read();
}

}  // namespace crane::interpose
