// The tests, started in whatever way, leave the user's file of tuned plans alone.
#include <cstdlib>

static const int g_no_tuning_db = setenv("TILEWRIGHT_TUNING_DB", "off", 0);
