// The inside of the public Json value.
#pragma once

#include <nlohmann/json.hpp>

#include "tilewright/json.h"

namespace tilewright {
struct Json::Rep {
  nlohmann::json value;
};
}  // namespace tilewright
