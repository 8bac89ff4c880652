// Ignores SIGABRT, and says so.
#include "serve.h"

static void scenario(void) {
    say("served");
}

int main(int argc, char** argv) {
    signal(SIGABRT, SIG_IGN);
    return serve(argc, argv, scenario);
}
