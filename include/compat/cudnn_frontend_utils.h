// Some programs include this part of the field's header by its own name.
#pragma once

#include "cudnn_frontend.h"
