// What a person reads of the protocol, in logs and in the tests' transcripts.
//
// "3@2.1" is the entry (or the end of a log) at index 3 that was first proposed in view 2.1.
#pragma once

#include <string>
#include <vector>

#include "paxos/core/message.hpp"
#include "paxos/core/storage.hpp"
#include "paxos/core/types.hpp"

namespace crane::paxos {

std::string describe(const LogPosition& position);
std::string describe_value(const Entry& entry);           ///< new view; members 1, 2, 3; "value"
std::string describe(const Entry& entry);                 ///< 3@2.1 "value"
std::string describe(const std::vector<Entry>& entries);  ///< [1@1.1 new view, 2@1.1 "value"]
std::string describe(const Message& message);             ///< 1->2 Prepare view 1.1, ...
std::string describe(const PersistBatch& batch);          ///< view 2.1; cut from 4; append [...]

}  // namespace crane::paxos
