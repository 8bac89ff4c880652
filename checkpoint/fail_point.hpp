// Places at which tests have a craned killed (make kills): the steps of what is done rarely, and must leave
// nothing half done that anybody believes. A craned that is started with CRANE_FAIL_POINTS=1 looks, at each,
// into the file fail-at of its state directory: when the place's name is there, it removes the file and kills
// itself. Otherwise nothing is looked at.
#pragma once

#include <string>

namespace crane::checkpoint {

/// Before there are threads. "": never.
void arm_fail_points(const std::string& file);
void fail_point(const char* name);

}  // namespace crane::checkpoint
