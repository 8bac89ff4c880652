// CRANE_CHECK, by its former place.
#pragma once

#include "base/check.hpp"
