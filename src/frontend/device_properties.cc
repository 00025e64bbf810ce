#include "tilewright/device_properties.h"

#include "base/result.h"
#include "frontend/handle.h"
#include "plan/plan_file.h"
#include "plan/target.h"

namespace tilewright {

error_t DeviceProperties::build() {
  status_ = queue_of(handle_).status();
  if (status_.is_good()) target_ = Target::this_machine().text();
  return status_;
}

error_t DeviceProperties::serialize(std::vector<uint8_t>& bytes) const {
  if (target_.empty()) return invalid("device properties: nothing to serialize; call build() or deserialize() first");
  const std::string id = std::to_string(device_id_);
  Sections sections;
  sections["target"] = {target_.begin(), target_.end()};
  sections["device"] = {id.begin(), id.end()};
  bytes = write_sections(sections);
  return {};
}

error_t DeviceProperties::deserialize(const std::vector<uint8_t>& bytes) {
  auto sections = read_sections(bytes);
  if (!sections) return status_ = sections.status();
  const auto &target = (*sections)["target"], &device = (*sections)["device"];
  const std::string id(device.begin(), device.end());
  auto parsed = Target::parse(std::string(target.begin(), target.end()));
  if (!parsed) return status_ = parsed.status();
  if (id.empty() || id.size() > 9 || id.find_first_not_of("0123456789") != id.npos)
    return status_ = invalid("device properties: \"{}\" is no device id", id);
  device_id_ = std::stoi(id);
  target_ = parsed->text();
  return status_ = Status{};
}

std::string DeviceProperties::describe() const { return fmt::format("device {}: {}", device_id_, target_); }

}  // namespace tilewright
