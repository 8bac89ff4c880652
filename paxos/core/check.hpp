// Assertions that stay on in production: a replica that finds its own state impossible stops at once.
#pragma once

#include <cstdio>
#include <cstdlib>

#define CRANE_CHECK(condition)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            std::fprintf(stderr, "%s:%d: broken invariant: %s\n", __FILE__, __LINE__, #condition); \
            std::abort();                                                                          \
        }                                                                                          \
    } while (0)
