#include "paxos/link/address_book.hpp"

#include <algorithm>
#include <utility>

#include "paxos/core/wire.hpp"

namespace crane::paxos {
namespace {

const PeerAddress* find_in(const std::vector<PeerAddress>& addresses, ReplicaId id) {
    for (const PeerAddress& address : addresses)
        if (address.id == id) return &address;
    return nullptr;
}

}  // namespace

std::string AddressBook::introduction(const MembershipAt& membership) {
    std::string bytes;
    put_int(bytes, membership.index);
    encode(membership.membership, bytes);
    return bytes;
}

bool AddressBook::hear(std::string_view introduction, uint64_t own_index) {
    WireReader in(introduction);
    MembershipAt told;
    told.index = in.get_int<uint64_t>();
    if (in.bad() || told.index <= std::max(own_index, told_.index)) return false;
    if (!decode(introduction.substr(sizeof told.index), told.membership)) return false;
    told_ = std::move(told);
    return true;
}

bool AddressBook::find(ReplicaId id, const Member* member, PeerAddress& address) {
    if (const PeerAddress* given = find_in(configured_, id)) {
        address = *given;
        return true;
    }
    address.id = id;
    if (member != nullptr && parse_address(member->address, address)) {
        std::erase_if(learned_, [id](const PeerAddress& old) { return old.id == id; });
        learned_.push_back(address);
        return true;
    }
    const PeerAddress* before = find_in(learned_, id);  // it is on its way out
    if (before != nullptr) address = *before;
    return before != nullptr;
}

std::vector<PeerAddress> AddressBook::resolve(const std::vector<ReplicaId>& peers, const MembershipAt& own,
                                              std::vector<ReplicaId>& unknown) {
    if (told_.index <= own.index) told_ = {};
    std::vector<std::pair<ReplicaId, const Member*>> wanted;
    wanted.reserve(peers.size() + told_.membership.members.size());
    for (const ReplicaId id : peers) wanted.emplace_back(id, own.membership.find(id));
    for (const Member& member : told_.membership.members) wanted.emplace_back(member.id, &member);
    std::vector<PeerAddress> addresses;
    for (const auto& [id, member] : wanted) {
        if (id == self_ || find_in(addresses, id) != nullptr) continue;
        PeerAddress address;
        if (find(id, member, address))
            addresses.push_back(std::move(address));
        else
            unknown.push_back(id);
    }
    return addresses;
}

}  // namespace crane::paxos
