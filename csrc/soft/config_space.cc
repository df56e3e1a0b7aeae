#include "soft/config_space.h"

#include <cstring>

#include "hw/pci.h"

namespace userdma::soft {

namespace pci = hw::pci;

namespace {

// Where the capabilities are: within the 256 bytes at any dword-aligned offset past the header, then the extended
// ones from 0x100 (pci_regs.h PCI_CFG_SPACE_SIZE).
constexpr unsigned power_at = 0x48;
constexpr unsigned gateway_at = 0x58;
constexpr unsigned vectors_at = 0xa0;
constexpr unsigned express_at = 0xac;
constexpr unsigned vital_data_at = 0xe8;
constexpr unsigned error_reporting_at = 0x100;
constexpr unsigned serial_at = 0x13c;

constexpr uint16_t error_reporting_id = 0x0001;  // PCI_EXT_CAP_ID_ERR
constexpr uint16_t serial_id = 0x0003;           // PCI_EXT_CAP_ID_DSN

constexpr uint32_t extended(uint16_t id, unsigned version, unsigned next) { return id | version << 16 | next << 20; }

// The gateway (mlx5_core's lib/pci_vsc.c): offsets from the capability's start, and the one space of addresses that
// there is, of semaphores.
namespace gateway {
constexpr unsigned size = 0x18;
constexpr unsigned control = 0x4;    // VSC_CTRL_OFFSET: a space, and in the top three bits whether it is there
constexpr unsigned counter = 0x8;    // VSC_COUNTER_OFFSET: a number that nobody has yet
constexpr unsigned semaphore = 0xc;  // VSC_SEMAPHORE_OFFSET: who has the gateway
constexpr unsigned address = 0x10;   // VSC_ADDR_OFFSET: in the top bit, that `data` is stored, or that it was loaded
constexpr unsigned data = 0x14;      // VSC_DATA_OFFSET
constexpr uint32_t space = 0xa;      // MLX5_SEMAPHORE_SPACE_DOMAIN
constexpr uint32_t there = 1u << 29;
constexpr uint32_t flag = 1u << 31;
constexpr uint32_t address_mask = (1u << 30) - 1;
}  // namespace gateway

constexpr uint16_t power_version = 3;                 // PCI_PM_CAP_VER_MASK
constexpr uint32_t payload_512 = 2;                   // PCI_EXP_DEVCAP_PAYLOAD: 128 << 2
constexpr uint16_t default_read_request = 0x2000;     // 512 bytes, PCI_EXP_DEVCTL_READRQ_512B
constexpr uint16_t slot_clock = 0x1000;               // PCI_EXP_LNKSTA_SLC
constexpr uint32_t completion_timeout_ranges = 0x1f;  // PCI_EXP_DEVCAP2_COMP_TMOUT_DIS and its ranges
constexpr uint16_t completion_timeouts = 0x001f;      // PCI_EXP_DEVCTL2_COMP_TIMEOUT, PCI_EXP_DEVCTL2_COMP_TMOUT_DIS

}  // namespace

ConfigSpace::ConfigSpace(const Identity& id)
    : value_(pci::kExtendedConfigSize),
      initial_(pci::kExtendedConfigSize),
      writable_(pci::kExtendedConfigSize),
      clears_(pci::kExtendedConfigSize),
      bar_bytes_(id.bar_bytes),
      vital_data_(id.vital_data),
      gateway_(id.gateway) {
  put(pci::kVendorId, 2, id.vendor);
  put(pci::kDeviceId, 2, id.device);
  // Memory space, bus master, parity and system error reporting, interrupt disable: the bits a PCIe endpoint with no
  // I/O space implements (PCIe base specification 7.5.1.1.3).
  writable(pci::kCommand, 2, pci::command::kMemory | pci::command::kMaster | 0x0140 | pci::command::kInterruptDisable);
  put(pci::kStatus, 2, pci::status::kCapabilityList);
  write_one_clears(pci::kStatus, 2, 0xf900);
  put(pci::kRevision, 1, id.revision);
  put(pci::kClassProgrammingInterface, 1, id.class_code & 0xff);
  put(pci::kClassDevice, 2, id.class_code >> 8);
  writable(pci::kCacheLineSize, 1, 0xff);
  for (unsigned i = 0; i < pci::kBars; i += 2) {
    if (!bar_bytes_[i]) continue;
    const uint64_t mask = ~(bar_bytes_[i] - 1);
    put(pci::kBar0 + 4 * i, 4, pci::bar::kMemory64 | pci::bar::kPrefetchable);
    writable(pci::kBar0 + 4 * i, 4, static_cast<uint32_t>(mask) & ~pci::bar::kFlagsMask);
    writable(pci::kBar0 + 4 * i + 4, 4, static_cast<uint32_t>(mask >> 32));
  }
  put(pci::kSubsystemVendorId, 2, id.subsystem_vendor);
  put(pci::kSubsystemId, 2, id.subsystem);
  put(pci::kCapabilityPointer, 1, power_at);
  writable(pci::kInterruptLine, 1, 0xff);
  put(pci::kInterruptPin, 1, 0);  // no INTx: its interrupts are MSI-X alone

  put(power_at + pci::kCapabilityId, 1, pci::capability::kPowerManagement);
  put(power_at + pci::kCapabilityNext, 1, vectors_at);
  put(power_at + pci::pm::kCapabilities, 2, power_version);
  put(power_at + pci::pm::kControl, 2, pci::pm::kNoSoftReset);
  writable(power_at + pci::pm::kControl, 2, pci::pm::kStateMask);

  put(vectors_at + pci::kCapabilityId, 1, pci::capability::kMsix);
  put(vectors_at + pci::kCapabilityNext, 1, express_at);
  put(vectors_at + pci::msix::kControl, 2, (id.vectors - 1) & pci::msix::kTableSizeMask);
  writable(vectors_at + pci::msix::kControl, 2, pci::msix::kFunctionMask | pci::msix::kEnable);
  put(vectors_at + pci::msix::kTable, 4, id.vector_table | static_cast<uint32_t>(id.vector_bar));
  put(vectors_at + pci::msix::kPending, 4, id.vector_pending | static_cast<uint32_t>(id.vector_bar));

  put(express_at + pci::kCapabilityId, 1, pci::capability::kExpress);
  put(express_at + pci::kCapabilityNext, 1, !vital_data_.empty() ? vital_data_at : gateway_ ? gateway_at : 0);
  put(express_at + pci::express::kFlags, 2, 2 | pci::express::kTypeEndpoint << 4);
  put(express_at + pci::express::kDeviceCapabilities, 4,
      pci::express::kCapabilityReset | pci::express::kCapabilityRoleErrors | pci::express::kCapabilityExtendedTag |
          payload_512);
  // Relaxed ordering is on at power-on (PCIe base specification 7.5.3.4): a driver that must not have it turns it off.
  put(express_at + pci::express::kDeviceControl, 2,
      default_read_request | pci::express::kControlNoSnoop | pci::express::kControlRelaxedOrdering);
  writable(express_at + pci::express::kDeviceControl, 2, 0x7fff);
  write_one_clears(express_at + pci::express::kDeviceStatus, 2, pci::express::kStatusErrors);
  put(express_at + pci::express::kLinkCapabilities, 4, id.link_speed | id.link_width << 4);
  writable(express_at + pci::express::kLinkControl, 2, 0x01c3);
  put(express_at + pci::express::kLinkStatus, 2, id.link_speed | id.link_width << 4 | slot_clock);
  put(express_at + pci::express::kDeviceCapabilities2, 4, completion_timeout_ranges);
  writable(express_at + pci::express::kDeviceControl2, 2, completion_timeouts | pci::express::kControl2Atomics);
  put(express_at + pci::express::kLinkCapabilities2, 4, ((1u << id.link_speed) - 1) << 1);
  put(express_at + pci::express::kLinkControl2, 2, id.link_speed);
  writable(express_at + pci::express::kLinkControl2, 2, 0x000f);

  if (!vital_data_.empty()) {
    vital_data_.resize((vital_data_.size() + 3) / 4 * 4);
    put(vital_data_at + pci::kCapabilityId, 1, pci::capability::kVitalProductData);
    put(vital_data_at + pci::kCapabilityNext, 1, gateway_ ? gateway_at : 0);
    writable(vital_data_at + pci::vpd::kAddress, 2, pci::vpd::kAddressMask | pci::vpd::kFlag);
  }

  if (gateway_) {
    put(gateway_at + pci::kCapabilityId, 1, pci::capability::kVendorSpecific);
    put(gateway_at + pci::kCapabilityNext, 1, 0);
    put(gateway_at + 2, 1, gateway::size);
    put(gateway_at + gateway::counter, 4, 1);
    writable(gateway_at + gateway::control, 2, 0xffff);
    for (const unsigned at : {gateway::semaphore, gateway::address, gateway::data}) writable(gateway_at + at, 4, ~0u);
  }

  // Advanced error reporting: status registers that stay clear, masks and severities at their power-on values.
  put(error_reporting_at, 4, extended(error_reporting_id, 2, serial_at));
  writable(error_reporting_at + 0x08, 4, 0x0c7f'f030);
  put(error_reporting_at + 0x0c, 4, 0x0046'2030);
  writable(error_reporting_at + 0x0c, 4, 0x0c7f'f030);
  put(error_reporting_at + 0x14, 4, 0x0000'2000);
  writable(error_reporting_at + 0x14, 4, 0x0000'f1c1);
  put(error_reporting_at + 0x18, 4, 0x0000'00a0);

  put(serial_at, 4, extended(serial_id, 1, 0));
  put(serial_at + 4, 4, static_cast<uint32_t>(id.serial));
  put(serial_at + 8, 4, static_cast<uint32_t>(id.serial >> 32));

  initial_ = value_;
}

uint32_t ConfigSpace::read(unsigned offset, unsigned width) const {
  if (offset >= value_.size() || width > value_.size() - offset) return ~0u >> (32 - 8 * width);
  return get(offset, width);
}

bool ConfigSpace::write(unsigned offset, unsigned width, uint32_t value) {
  if (offset >= value_.size() || width > value_.size() - offset) return false;
  const uint32_t held = get(gateway_at + gateway::semaphore, 4);
  for (unsigned i = 0; i < width; i++) {
    const uint8_t byte = static_cast<uint8_t>(value >> (8 * i));
    uint8_t& at = value_[offset + i];
    at = static_cast<uint8_t>((at & ~writable_[offset + i]) | (byte & writable_[offset + i]));
    at = static_cast<uint8_t>(at & ~(byte & clears_[offset + i]));
  }
  // A word of vital product data was asked for: it is there at once. Storing one does nothing: it is read only.
  const unsigned vital = vital_data_at + pci::vpd::kAddress;
  if (!vital_data_.empty() && offset <= vital + 1 && vital + 1 < offset + width) {
    const uint32_t address = get(vital, 2);
    put(vital, 2, address ^ pci::vpd::kFlag);
    if (!(address & pci::vpd::kFlag)) {
      uint32_t word = 0;
      if (address % 4 == 0 && address < vital_data_.size()) std::memcpy(&word, &vital_data_[address], 4);
      put(vital_data_at + pci::vpd::kData, 4, word);
    }
  }
  if (gateway_) gateway_written(offset, width, held);
  // The bit that starts a reset reads zero always; it is the high byte's top bit.
  const unsigned at = express_at + pci::express::kDeviceControl + 1;
  return offset <= at && at < offset + width && (value >> (8 * (at - offset)) & 0x80);
}

void ConfigSpace::gateway_written(unsigned offset, unsigned width, uint32_t held) {
  const auto written = [&](unsigned at) { return offset == gateway_at + at && width == 4; };
  const auto reg = [&](unsigned at) { return get(gateway_at + at, 4); };
  if (written(gateway::control)) {
    const uint32_t space = reg(gateway::control) & 0xffff;
    put(gateway_at + gateway::control, 4, space | (space == gateway::space ? gateway::there : 0));
  } else if (written(gateway::semaphore)) {
    if (held && reg(gateway::semaphore)) put(gateway_at + gateway::semaphore, 4, held);
    const uint32_t next = reg(gateway::counter) + 1;
    put(gateway_at + gateway::counter, 4, next ? next : 1);
  } else if (written(gateway::address)) {
    const uint32_t word = reg(gateway::address), data = reg(gateway::data);
    uint32_t& holder = semaphores_[word & gateway::address_mask];
    if (!(word & gateway::flag)) {
      put(gateway_at + gateway::data, 4, holder);
    } else if (!holder || !data) {
      holder = data;
    }
    if (semaphores_.size() > 64) semaphores_.clear();  // no driver has so many
    put(gateway_at + gateway::address, 4, word ^ gateway::flag);
  }
}

std::vector<uint8_t> vital_product_data(const std::string& name, const std::string& part, const std::string& serial) {
  std::vector<uint8_t> data;
  const auto resource = [&](uint8_t tag, size_t bytes) {
    data.insert(data.end(), {tag, static_cast<uint8_t>(bytes), static_cast<uint8_t>(bytes >> 8)});
  };
  const auto keyword = [&](const char* key, const std::string& value) {
    data.insert(data.end(), key, key + 2);
    data.push_back(static_cast<uint8_t>(value.size()));
    data.insert(data.end(), value.begin(), value.end());
  };
  resource(pci::vpd::kIdentifierString, name.size());
  data.insert(data.end(), name.begin(), name.end());
  resource(pci::vpd::kReadOnlyData, 3 + part.size() + 3 + serial.size() + 3 + 1);
  keyword("PN", part);
  keyword("SN", serial);
  keyword("RV", "?");  // what makes the sum of all bytes up to it zero
  data.back() = 0;
  uint8_t sum = 0;
  for (const uint8_t byte : data) sum = static_cast<uint8_t>(sum + byte);
  data.back() = static_cast<uint8_t>(-sum);
  data.push_back(pci::vpd::kEnd);
  return data;
}

void ConfigSpace::reset(bool keep) {
  const auto before = value_;
  value_ = initial_;
  semaphores_.clear();
  if (!keep) return;
  const auto restore = [&](unsigned offset, unsigned bytes) { std::memcpy(&value_[offset], &before[offset], bytes); };
  restore(pci::kCommand, 2);
  restore(pci::kCacheLineSize, 1);
  restore(pci::kBar0, 4 * pci::kBars);
  restore(pci::kInterruptLine, 1);
  restore(express_at + pci::express::kDeviceControl, 2);
}

void ConfigSpace::enable_atomics(bool on) {
  const unsigned at = express_at + pci::express::kDeviceControl2;
  for (auto* space : {&value_, &initial_}) {
    uint8_t& byte = (*space)[at];
    byte = static_cast<uint8_t>(on ? byte | pci::express::kControl2Atomics : byte & ~pci::express::kControl2Atomics);
  }
}

bool ConfigSpace::memory_enabled() const { return get(pci::kCommand, 2) & pci::command::kMemory; }
bool ConfigSpace::bus_master() const { return get(pci::kCommand, 2) & pci::command::kMaster; }
bool ConfigSpace::powered() const { return !(get(power_at + pci::pm::kControl, 2) & pci::pm::kStateMask); }
bool ConfigSpace::relaxed_ordering() const {
  return get(express_at + pci::express::kDeviceControl, 2) & pci::express::kControlRelaxedOrdering;
}
bool ConfigSpace::vectors_enabled() const { return get(vectors_at + pci::msix::kControl, 2) & pci::msix::kEnable; }
bool ConfigSpace::vectors_masked() const { return get(vectors_at + pci::msix::kControl, 2) & pci::msix::kFunctionMask; }

uint64_t ConfigSpace::bar(int index) const {
  if (index < 0 || index >= static_cast<int>(pci::kBars) || !bar_bytes_[static_cast<unsigned>(index)]) return 0;
  const unsigned at = pci::kBar0 + 4 * static_cast<unsigned>(index);
  return (get(at, 4) & ~pci::bar::kFlagsMask) | static_cast<uint64_t>(get(at + 4, 4)) << 32;
}

void ConfigSpace::set_bar(int index, uint64_t address) {
  const unsigned at = pci::kBar0 + 4 * static_cast<unsigned>(index);
  write(at, 4, static_cast<uint32_t>(address));
  write(at + 4, 4, static_cast<uint32_t>(address >> 32));
}

void ConfigSpace::enable_vectors(bool on) {
  const uint32_t control = get(vectors_at + pci::msix::kControl, 2);
  write(vectors_at + pci::msix::kControl, 2, on ? control | pci::msix::kEnable : control & ~pci::msix::kEnable);
}

uint32_t ConfigSpace::get(unsigned offset, unsigned width) const {
  uint32_t value = 0;
  for (unsigned i = 0; i < width; i++) value |= static_cast<uint32_t>(value_[offset + i]) << (8 * i);
  return value;
}

void ConfigSpace::put(unsigned offset, unsigned width, uint32_t value) {
  for (unsigned i = 0; i < width; i++) value_[offset + i] = static_cast<uint8_t>(value >> (8 * i));
}

void ConfigSpace::writable(unsigned offset, unsigned width, uint32_t mask) {
  for (unsigned i = 0; i < width; i++) writable_[offset + i] = static_cast<uint8_t>(mask >> (8 * i));
}

void ConfigSpace::write_one_clears(unsigned offset, unsigned width, uint32_t mask) {
  for (unsigned i = 0; i < width; i++) clears_[offset + i] = static_cast<uint8_t>(mask >> (8 * i));
}

}  // namespace userdma::soft
