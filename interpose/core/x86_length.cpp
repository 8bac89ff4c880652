#include "interpose/core/x86_length.hpp"

namespace crane::interpose {

namespace {

/// What follows an opcode. kSized: 4 bytes, or 2 behind an operand-size prefix.
constexpr uint8_t kBad = 0, kNone = 1, kModrm = 2, kByte = 4, kSized = 8, kFour = 16, kTwo = 32;

constexpr bool between(unsigned opcode, unsigned first, unsigned last) {
    return opcode >= first && opcode <= last;
}

uint8_t arithmetic(unsigned opcode) {
    switch (opcode & 7) {
        case 4:
            return kByte;
        case 5:
            return kSized;
        case 6:
        case 7:
            return kBad;
        default:
            return kModrm;
    }
}

/// Opcodes of one byte; prefixes, and those whose length depends on more, are not asked for here.
uint8_t after_opcode(unsigned opcode) {
    if (opcode < 0x40) return arithmetic(opcode);
    if (between(opcode, 0x50, 0x5f) || between(opcode, 0x6c, 0x6f)) return kNone;
    if (between(opcode, 0x70, 0x7f) || between(opcode, 0xb0, 0xb7) || between(opcode, 0xe0, 0xe7))
        return kByte;
    if (between(opcode, 0x84, 0x8f) || between(opcode, 0xd0, 0xd3) || between(opcode, 0xd8, 0xdf))
        return kModrm;
    switch (opcode) {
        case 0x63:
        case 0xfe:
        case 0xff:
            return kModrm;
        case 0x68:
        case 0xa9:
            return kSized;
        case 0x69:
        case 0x81:
        case 0xc7:
            return kModrm | kSized;
        case 0x6a:
        case 0xa8:
        case 0xcd:
        case 0xeb:
            return kByte;
        case 0x6b:
        case 0x80:
        case 0x83:
        case 0xc0:
        case 0xc1:
        case 0xc6:
            return kModrm | kByte;
        case 0xc2:
        case 0xca:
            return kTwo;
        case 0xc8:
            return kTwo | kByte;
        case 0xe8:
        case 0xe9:
            return kFour;
        case 0x60:
        case 0x61:
        case 0x82:
        case 0x9a:
        case 0xce:
        case 0xd4:
        case 0xd5:
        case 0xd6:
        case 0xea:
            return kBad;
        default:
            return kNone;
    }
}

/// Whether an opcode behind 0f takes a byte; the same under VEX and EVEX.
bool takes_byte(unsigned opcode) {
    return between(opcode, 0x70, 0x73) || opcode == 0xa4 || opcode == 0xac || opcode == 0xba ||
           opcode == 0xc2 || between(opcode, 0xc4, 0xc6);
}

uint8_t after_two_byte_opcode(unsigned opcode) {
    if (between(opcode, 0x05, 0x09) || opcode == 0x0b || opcode == 0x0e || opcode == 0x77) return kNone;
    if (between(opcode, 0x30, 0x35) || opcode == 0x37 || between(opcode, 0xa0, 0xa2)) return kNone;
    if (between(opcode, 0xa8, 0xaa) || between(opcode, 0xc8, 0xcf)) return kNone;
    if (between(opcode, 0x80, 0x8f)) return kFour;
    if (opcode == 0x04 || opcode == 0x0a || opcode == 0x0c || opcode == 0x0f) return kBad;
    if (between(opcode, 0x24, 0x27) || opcode == 0x36 || between(opcode, 0x38, 0x3f)) return kBad;
    if (between(opcode, 0x78, 0x7b) || opcode == 0xa6 || opcode == 0xa7) return kBad;
    return takes_byte(opcode) ? kModrm | kByte : kModrm;
}

class Walker {
  public:
    Walker(const uint8_t* code, size_t bytes, InstructionParts& parts)
        : code_(code),
          bytes_(bytes < kLongestInstructionBytes ? bytes : kLongestInstructionBytes),
          parts_(parts) {}

    size_t length() {
        while (has(1) && is_prefix(code_[at_])) ++at_;
        if (!has(1)) return 0;
        if ((code_[at_] & 0xf0) == 0x40) extensions(code_[at_++]);
        if (!has(1)) return 0;
        const unsigned opcode = take_opcode(0);
        if (opcode == 0xc4 || opcode == 0xc5) return vector(opcode == 0xc4 ? 2 : 1);
        if (opcode == 0x62) return vector(3);
        if (opcode == 0x0f) return two_bytes();
        // A place in memory, whole.
        if (between(opcode, 0xa0, 0xa3)) return skip(parts_.short_addresses ? 4 : 8);
        if (between(opcode, 0xb8, 0xbf)) return skip(parts_.wide ? 8 : sized());
        if (opcode == 0xf6 || opcode == 0xf7) {
            const bool tests = has(1) && (code_[at_] >> 3 & 7) <= 1;
            return rest(static_cast<uint8_t>(kModrm | (!tests ? 0 : opcode == 0xf6 ? kByte : kSized)));
        }
        // Behind 8f with another register number stands AMD's XOP.
        if (opcode == 0x8f && has(1) && (code_[at_] >> 3 & 7) != 0) return 0;
        return is_prefix(static_cast<uint8_t>(opcode)) || (opcode & 0xf0) == 0x40
                   ? 0
                   : rest(after_opcode(opcode));
    }

  private:
    bool has(size_t more) const { return at_ + more <= bytes_; }
    size_t sized() const { return parts_.short_operands ? 2 : 4; }
    size_t skip(size_t more) { return has(more) ? at_ + more : 0; }

    void extensions(uint8_t rex) {
        parts_.wide = rex & 8;
        parts_.high_index = rex & 2;
        parts_.high_base = rex & 1;
    }
    unsigned take_opcode(unsigned map) {
        parts_.map = static_cast<uint8_t>(map);
        parts_.opcode_at = static_cast<uint8_t>(at_);
        return parts_.opcode = code_[at_++];
    }

    bool is_prefix(uint8_t byte) {
        if (byte == 0x66) parts_.short_operands = true;
        if (byte == 0x67) parts_.short_addresses = true;
        if (byte == 0x64 || byte == 0x65) parts_.segment = byte;
        if (byte == 0xf0) parts_.locks = true;
        if (byte == 0xf2 || byte == 0xf3) parts_.repeats = true;
        return byte == 0x66 || byte == 0x67 || byte == 0xf0 || byte == 0xf2 || byte == 0xf3 || byte == 0x2e ||
               byte == 0x36 || byte == 0x3e || byte == 0x26 || byte == 0x64 || byte == 0x65;
    }

    size_t two_bytes() {
        if (!has(1)) return 0;
        const unsigned opcode = take_opcode(1);
        if (opcode != 0x38 && opcode != 0x3a) return rest(after_two_byte_opcode(opcode));
        if (!has(1)) return 0;
        take_opcode(opcode == 0x38 ? 2 : 3);
        return rest(opcode == 0x38 ? kModrm : kModrm | kByte);
    }

    /// VEX and EVEX: so many bytes between the first one and the opcode.
    size_t vector(size_t payload) {
        if (!has(payload + 1)) return 0;
        const unsigned map = payload == 1 ? 1 : code_[at_] & (payload == 2 ? 0x1f : 7);
        parts_.form = payload == 3 ? InstructionParts::Form::kEvex : InstructionParts::Form::kVex;
        if (payload > 1) {  // the extensions, turned over
            parts_.high_index = !(code_[at_] & 0x40);
            parts_.high_base = !(code_[at_] & 0x20);
        }
        at_ += payload;
        const unsigned opcode = take_opcode(map);
        if (map == 1 && opcode == 0x77 && payload < 3) return at_;  // vzeroupper
        if (map == 1) return rest(takes_byte(opcode) ? kModrm | kByte : kModrm);
        if (map == 3) return rest(kModrm | kByte);
        return map == 2 || (payload == 3 && (map == 5 || map == 6)) ? rest(kModrm) : 0;
    }

    size_t rest(uint8_t follows) {
        if (follows == kBad) return 0;
        if ((follows & kModrm) && !operand()) return 0;
        size_t more = 0;
        if (follows & kByte) more += 1;
        if (follows & kTwo) more += 2;
        if (follows & kFour) more += 4;
        if (follows & kSized) more += sized();
        return skip(more);
    }

    /// ModRM, SIB and displacement.
    bool operand() {
        if (!has(1)) return false;
        parts_.operand_at = static_cast<uint8_t>(at_);
        const unsigned modrm = code_[at_++], mod = modrm >> 6, rm = modrm & 7;
        if (mod == 3) return true;
        size_t displacement = mod == 1 ? 1 : mod == 2 ? 4 : 0;
        if (rm == 4) {
            if (!has(1)) return false;
            if ((code_[at_++] & 7) == 5 && mod == 0) displacement = 4;
        } else if (rm == 5 && mod == 0) {
            displacement = 4;
        }
        at_ += displacement;
        return has(0);
    }

    const uint8_t* code_;
    size_t bytes_;
    size_t at_ = 0;
    InstructionParts& parts_;
};

}  // namespace

size_t read_instruction(const uint8_t* code, size_t bytes, InstructionParts& out) {
    out = {};
    return Walker(code, bytes, out).length();
}

size_t instruction_length(const uint8_t* code, size_t bytes) {
    InstructionParts unused;
    return read_instruction(code, bytes, unused);
}

bool walk_reaches(const uint8_t* begin, const uint8_t* at) {
    while (begin < at) {
        // What lies behind `at` may be read as far as `at` goes: an instruction that needs more is none.
        const size_t length = instruction_length(begin, static_cast<size_t>(at - begin));
        if (length == 0) return false;
        begin += length;
    }
    return begin == at;
}

}  // namespace crane::interpose
