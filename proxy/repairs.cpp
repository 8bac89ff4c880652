#include "proxy/repairs.hpp"

#include <algorithm>

namespace crane::proxy {

Repairs::Step Repairs::differs(uint64_t index) {
    if (proven_ && index > place_) tries_ = 0;
    proven_ = false;
    place_ = std::max(place_, index);
    ++tries_;
    if (tries_ > 2) return Step::kNone;
    ++count_;
    return tries_ == 1 ? Step::kFromOwn : Step::kFromOthers;
}

void Repairs::left(uint64_t index) {
    proven_ = false;
    place_ = std::max(place_, index);
    tries_ = std::max(tries_, 1U);
}

void Repairs::agrees(uint64_t index) {
    if (tries_ != 0 && index >= place_) proven_ = true;
}

}  // namespace crane::proxy
