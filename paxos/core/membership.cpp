#include "paxos/core/membership.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "paxos/core/incarnation.hpp"
#include "paxos/core/quorum.hpp"
#include "paxos/core/wire.hpp"

namespace crane::paxos {
namespace {

std::string name(ReplicaId id) {
    return "replica " + std::to_string(id);
}

constexpr ReplicaId kMaxIdStep = 16;  // ids are never used again, and there are few

std::string add_learner(const MembershipChange& change, Membership& membership) {
    if (change.id == kNoReplica || change.id > kMaxReplicaId)
        return "replica id " + std::to_string(change.id) + " is out of range";
    if (membership.find(change.id) != nullptr) return name(change.id) + " is a member already";
    if (change.id <= membership.highest_id)
        return "replica id " + std::to_string(change.id) +
               " is past: ids are given once, in ascending order, and the next is " +
               std::to_string(membership.highest_id + 1);
    if (change.id > membership.highest_id + kMaxIdStep)
        return "replica id " + std::to_string(change.id) + " would use up all ids from " +
               std::to_string(membership.highest_id + 1) + " on for ever: take that, or one soon after";
    for (const Member& member : membership.members)
        if (!member.address.empty() && member.address == change.address)
            return change.address + " is the address of " + name(member.id);
    if (membership.members.size() >= kMaxMembers)
        return "there are " + std::to_string(kMaxMembers) + " members, and no more may be";
    membership.add({change.id, false, change.address});
    return "";
}

std::string promote(Member& member, const Membership& membership) {
    if (member.voter) return name(member.id) + " votes already";
    if (membership.voters() >= kMaxVoters)
        return "there are " + std::to_string(kMaxVoters) + " voting members, and no more may be";
    member.voter = true;
    return "";
}

std::string remove(const Member& member, Membership& membership) {
    if (member.voter && membership.voters() == 1)
        return name(member.id) + " is the last voting member, and cannot be removed";
    auto& members = membership.members;
    members.erase(members.begin() + (&member - members.data()));
    return "";
}

}  // namespace

const Member* Membership::find(ReplicaId id) const {
    for (const Member& member : members)
        if (member.id == id) return &member;
    return nullptr;
}

bool Membership::voter(ReplicaId id) const {
    const Member* member = find(id);
    return member != nullptr && member->voter;
}

size_t Membership::voters() const {
    return static_cast<size_t>(
        std::count_if(members.begin(), members.end(), [](const Member& member) { return member.voter; }));
}

size_t Membership::quorum() const {
    return majority(voters());
}

void Membership::add(Member member) {
    CRANE_CHECK(member.id != kNoReplica && find(member.id) == nullptr);
    highest_id = std::max(highest_id, member.id);
    const auto place = std::find_if(members.begin(), members.end(),
                                    [&](const Member& other) { return other.id > member.id; });
    members.insert(place, std::move(member));
}

std::string apply(const MembershipChange& change, Membership& membership) {
    if (change.address.size() > kMaxAddressBytes) return "the address is too long";
    if (change.kind == ChangeKind::kAdd) return add_learner(change, membership);
    auto* member = const_cast<Member*>(membership.find(change.id));
    if (member == nullptr) return name(change.id) + " is not a member";
    if (change.kind == ChangeKind::kPromote) return promote(*member, membership);
    CRANE_CHECK(change.kind == ChangeKind::kRemove);
    return remove(*member, membership);
}

void encode(const Membership& membership, std::string& out) {
    CRANE_CHECK(!membership.members.empty() && membership.members.size() <= kMaxMembers);
    put_int(out, static_cast<uint8_t>(membership.members.size()));
    put_int(out, membership.highest_id);
    for (const Member& member : membership.members) {
        put_int(out, member.id);
        put_int(out, static_cast<uint8_t>(member.voter ? 1 : 0));
        put_bytes(out, member.address);
    }
}

bool decode(std::string_view bytes, Membership& membership) {
    WireReader in(bytes);
    membership = Membership{};
    const uint8_t count = in.get_int<uint8_t>();
    membership.highest_id = in.get_int<uint32_t>();
    if (in.bad() || count == 0 || count > kMaxMembers) return false;
    ReplicaId previous = kNoReplica;
    for (uint8_t i = 0; i < count; ++i) {
        Member member;
        member.id = in.get_int<uint32_t>();
        const uint8_t voter = in.get_int<uint8_t>();
        member.address = in.get_bytes(kMaxAddressBytes);
        if (in.bad() || member.id <= previous || member.id > membership.highest_id || voter > 1) return false;
        previous = member.id;
        member.voter = voter == 1;
        membership.members.push_back(std::move(member));
    }
    const size_t voters = membership.voters();
    return in.finished() && voters >= 1 && voters <= kMaxVoters && membership.highest_id <= kMaxReplicaId;
}

std::string describe(const Membership& membership) {
    std::string text;
    for (const Member& member : membership.members) {
        if (!text.empty()) text += ", ";
        text += (member.voter ? "" : "learner ") + std::to_string(member.id);
        if (!member.address.empty()) text += " at " + member.address;
    }
    return text;
}

std::string encode_comeback(const Comeback& comeback) {
    std::string bytes;
    put_int(bytes, comeback.replica);
    put_int(bytes, comeback.run);
    return bytes;
}

bool decode_comeback(std::string_view bytes, Comeback& comeback) {
    WireReader in(bytes);
    comeback.replica = in.get_int<uint32_t>();
    comeback.run = in.get_int<uint64_t>();
    return in.finished() && comeback.replica != kNoReplica && comeback.run != 0;
}

bool well_formed(EntryKind kind, std::string_view value) {
    Comeback comeback;
    Membership membership;
    Incarnations starts;
    switch (kind) {
        case EntryKind::kValue:
            return true;
        case EntryKind::kNewView:
            return value.empty();
        case EntryKind::kReturn:
            return decode_comeback(value, comeback);
        case EntryKind::kMembership:
            return decode(value, membership);
        case EntryKind::kStart:
            return decode(value, starts);
    }
    return false;
}

}  // namespace crane::paxos
