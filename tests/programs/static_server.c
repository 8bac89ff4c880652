// Linked statically: no shim can be loaded into it, so Crane must refuse it.
#include "serve.h"

static void scenario(void) { say("static"); }

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
