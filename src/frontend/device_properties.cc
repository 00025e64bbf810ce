#include "tilewright/device_properties.h"

#include "base/result.h"
#include "frontend/handle.h"
#include "plan/plan_file.h"
#include "plan/target.h"

namespace tilewright {

error_t DeviceProperties::build() {
  const auto target = [&]() -> Result<Target> {
    TW_ASSIGN_OR_RETURN(const Queue queue, queue_of(handle_));
    if (queue.ordinal >= 0) return Target::of_gpu(queue.ordinal, queue.ptx);
    return !handle_ && cuda::device_count() > 0 ? Target::of_gpu(device_id_) : Target::this_machine();
  }();
  status_ = target.status();
  if (target) target_ = target->text(), gpu_ = target->is_gpu() ? target->gpu->json : "";
  return status_;
}

error_t DeviceProperties::serialize(std::vector<uint8_t>& bytes) const {
  if (target_.empty()) return invalid("device properties: nothing to serialize; call build() or deserialize() first");
  if (!gpu_.empty()) return bytes.assign(gpu_.begin(), gpu_.end()), error_t{};
  const std::string id = std::to_string(device_id_);
  Sections sections;
  sections["target"] = {target_.begin(), target_.end()};
  sections["device"] = {id.begin(), id.end()};
  bytes = write_sections(sections);
  return {};
}

error_t DeviceProperties::deserialize(const std::vector<uint8_t>& bytes) {
  if (!bytes.empty() && bytes[0] == '{') {
    const std::string text(bytes.begin(), bytes.end());
    auto properties = cuda::GpuProperties::from_json(text);
    if (!properties) return status_ = properties.status();
    target_ = Target::of_gpu(std::move(*properties)).text(), gpu_ = text;
    return status_ = Status{};
  }
  auto sections = read_sections(bytes);
  if (!sections) return status_ = sections.status();
  const auto &target = (*sections)["target"], &device = (*sections)["device"];
  const std::string id(device.begin(), device.end());
  auto parsed = Target::parse(std::string(target.begin(), target.end()));
  if (!parsed) return status_ = parsed.status();
  if (id.empty() || id.size() > 9 || id.find_first_not_of("0123456789") != id.npos)
    return status_ = invalid("device properties: \"{}\" is no device id", id);
  device_id_ = std::stoi(id);
  target_ = parsed->text(), gpu_.clear();
  return status_ = Status{};
}

std::string DeviceProperties::describe() const { return fmt::format("device {}: {}", device_id_, target_); }

}  // namespace tilewright
