#include "interpose/core/loop_move.hpp"

#include <cstring>

#include "interpose/core/jumps.hpp"
#include "interpose/core/x86_effects.hpp"
#include "interpose/core/x86_length.hpp"

namespace crane::interpose {

namespace {

constexpr uint8_t kShortAlways = 0xeb, kLongAlways = 0xe9;
constexpr size_t kShortJumpBytes = 2, kMostInstructions = 32;

/// Instructions change their length when moved: jumps among them need to know where each has gone.
class LoopMover {
  public:
    LoopMover(CodeRange loop, uint64_t to, MovedLoop& out) : loop_(loop), to_(to), out_(out) {
        out_.size = 0;
    }

    bool move(uint8_t opcode) {
        for (uint64_t at = loop_.begin; at < loop_.end;) {
            if (count_ == kMostInstructions) return false;
            places_[count_++] = {at, out_.size};
            const size_t length = move_one(at);
            if (length == 0) return false;
            at += length;
            if (at > loop_.end) return false;
        }
        places_[count_++] = {loop_.end, out_.size};
        if (opcode != kShortAlways) {
            const size_t to_trap = fixup_count_;
            if (!put_jump(opcode, 0) || !put_jump(kShortAlways, loop_.end + kShortJumpBytes)) return false;
            fixups_[to_trap].target = to_ + out_.size;
        }
        out_.trap_at = out_.size;
        return put_jump(kShortAlways, loop_.begin) && resolve();
    }

  private:
    struct Place {
        uint64_t from;
        size_t to;
    };
    struct Fixup {
        size_t at;  ///< of the distance, which is a jump's last four bytes
        uint64_t target;
    };

    /// Its length where it was; 0: it cannot be moved.
    size_t move_one(uint64_t at) {
        const auto* const code = reinterpret_cast<const uint8_t*>(at);
        Effects effects;
        if (!read_effects(code, loop_.end - at, effects)) return 0;
        if (effects.jump == JumpKind::kNone) return copy(at, code, effects.length) ? effects.length : 0;
        Jump jump{};
        if (!read_jump(code, loop_.end - at, jump) || jump.length != effects.length) return 0;
        return put_jump(jump.condition, jump.target(at)) ? effects.length : 0;
    }

    bool copy(uint64_t at, const uint8_t* code, size_t length) {
        InstructionParts parts;
        if (read_instruction(code, length, parts) != length || out_.size + length > kMostLoopBytes)
            return false;
        memcpy(out_.bytes + out_.size, code, length);
        const bool relative = parts.operand_at != 0 && (code[parts.operand_at] & 0xc7) == 0x05;
        if (relative) {
            uint8_t* const displacement = out_.bytes + out_.size + parts.operand_at + 1;
            int32_t distance = 0;
            memcpy(&distance, displacement, sizeof(distance));
            if (!put_distance(displacement, distance + static_cast<int64_t>(at - (to_ + out_.size))))
                return false;
        }
        out_.size += length;
        return true;
    }

    /// `opcode`: of its short form.
    bool put_jump(uint8_t opcode, uint64_t target) {
        if (out_.size + kLongestJumpBytes > kMostLoopBytes) return false;
        if (opcode == kShortAlways) {
            out_.bytes[out_.size++] = kLongAlways;
        } else {
            out_.bytes[out_.size++] = 0x0f;
            out_.bytes[out_.size++] = opcode + 0x10;
        }
        fixups_[fixup_count_++] = {out_.size, target};
        out_.size += sizeof(int32_t);
        return true;
    }

    /// From the head on one comes to the copy.
    uint64_t moved_target(uint64_t target) const {
        for (size_t i = 1; i < count_; ++i)
            if (places_[i].from == target) return to_ + places_[i].to;
        return target;
    }

    bool resolve() {
        for (size_t i = 0; i < fixup_count_; ++i) {
            const uint64_t behind = to_ + fixups_[i].at + sizeof(int32_t);
            if (!put_distance(out_.bytes + fixups_[i].at,
                              static_cast<int64_t>(moved_target(fixups_[i].target) - behind)))
                return false;
        }
        return true;
    }

    static bool put_distance(uint8_t* at, int64_t distance) {
        const auto fits = static_cast<int32_t>(distance);
        memcpy(at, &fits, sizeof(fits));
        return fits == distance;
    }

    const CodeRange loop_;
    const uint64_t to_;
    MovedLoop& out_;
    Place places_[kMostInstructions + 1];
    size_t count_ = 0;
    Fixup fixups_[kMostInstructions + 3];
    size_t fixup_count_ = 0;
};

}  // namespace

bool move_loop(CodeRange loop, uint8_t opcode, uint64_t to, MovedLoop& moved) {
    return LoopMover(loop, to, moved).move(opcode);
}

}  // namespace crane::interpose
