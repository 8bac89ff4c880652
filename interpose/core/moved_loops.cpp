#include "interpose/core/moved_loops.hpp"

#include "interpose/core/code_stubs.hpp"
#include "interpose/core/loop_move.hpp"

namespace crane::interpose {

namespace {

constexpr size_t kShortJumpBytes = 2;
constexpr uint8_t kTrap[] = {0xcc};

}  // namespace

uint64_t put_elsewhere(CodeRange loop, uint8_t opcode, bool may_move) {
    static_assert(kMostLoopBytes <= kStubBytes);
    Mapping code;
    if (!find_code(loop.begin, code) || loop.end + kShortJumpBytes > code.end) return 0;
    const uint64_t stub = room_for_stub(code);
    if (stub == 0 || !may_move) return 0;
    // What stands behind the loop may be jumped to by a table, which nobody sees.
    if (loop.end + kShortJumpBytes - loop.begin < kStubJumpBytes) return 0;
    if (is_jumped_into(code, loop.begin + 1, loop.begin + kStubJumpBytes - 1)) return 0;
    MovedLoop moved;
    if (!move_loop(loop, opcode, stub, moved) || !open_code(stub, kStubBytes)) return 0;
    CodeWriter copy(stub);
    copy.put(moved.bytes, moved.trap_at);
    copy.put(kTrap);
    copy.put(moved.bytes + moved.trap_at + 1, moved.size - moved.trap_at - 1);
    close_code(stub, kStubBytes);
    if (!open_code(loop.begin, kStubJumpBytes)) return 0;
    CodeWriter(loop.begin).put_jump(stub);
    close_code(loop.begin, kStubJumpBytes);
    return stub + moved.trap_at;
}

}  // namespace crane::interpose
