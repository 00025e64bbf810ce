// Everything a program needs. Declarations only; C++17 and later.
#pragma once

#include "tilewright/device_memory.h"
#include "tilewright/graph.h"
#include "tilewright/score_modifiers.h"
