// The configuration space of a soft PCI function: what is fixed, what can be written, what a write starts.
//
// What a device is (its ids, BARs, interrupts, link) is data, so that every NIC family has the same true space. The
// registers behave as the PCIe base specification says (chapter 7): reserved and read-only bits keep their value,
// status bits are cleared by writing ones, a BAR answers all ones with its size.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace userdma::soft {

// What a device shows of itself.
struct Identity {
  uint16_t vendor = 0;
  uint16_t device = 0;
  uint16_t subsystem_vendor = 0;
  uint16_t subsystem = 0;
  uint8_t revision = 0;
  uint32_t class_code = 0;                 // 24 bits: base class, subclass, programming interface
  std::array<uint64_t, 6> bar_bytes = {};  // powers of two; 64-bit memory BARs, so only 0, 2 and 4
  unsigned vectors = 1;                    // MSI-X
  int vector_bar = 4;                      // where the MSI-X table and pending bits are
  uint32_t vector_table = 0;
  uint32_t vector_pending = 0;
  std::vector<uint8_t> vital_data;  // what `vital_product_data` makes; empty: no such capability
  bool gateway = false;             // a vendor-specific capability by which drivers take semaphores, as ConnectX has it
  uint64_t serial = 0;              // device serial number (EUI-64)
  unsigned link_speed = 5;          // 1: 2.5 GT/s ... 5: 32 GT/s
  unsigned link_width = 16;
};

// Vital product data (PCI base specification 3.0, appendix I): the name, the part number and the serial number, each of
// at most 255 characters.
std::vector<uint8_t> vital_product_data(const std::string& name, const std::string& part, const std::string& serial);

class ConfigSpace {
 public:
  explicit ConfigSpace(const Identity& identity);

  // Width is 1, 2 or 4. All ones past what is there.
  uint32_t read(unsigned offset, unsigned width) const;

  // True if the write started a function-level reset. Nothing happens past what is there.
  bool write(unsigned offset, unsigned width, uint32_t value);

  // What a function-level reset does to the space: every register at its power-on value, but the BARs and the
  // command register where `keep` says so (what an operating system saves before a reset and restores after it).
  void reset(bool keep);

  bool memory_enabled() const;
  bool bus_master() const;
  bool powered() const;  // in D0
  bool relaxed_ordering() const;
  bool vectors_enabled() const;
  bool vectors_masked() const;  // all of them, by the function mask

  uint64_t bar(int index) const;  // the address in the BAR, 0 where there is none
  void set_bar(int index, uint64_t address);
  void enable_vectors(bool on);
  // Whether the function may request AtomicOps (PCIe base specification 6.15), now and from each reset on.
  void enable_atomics(bool on);

 private:
  uint32_t get(unsigned offset, unsigned width) const;
  void put(unsigned offset, unsigned width, uint32_t value);              // its power-on value
  void writable(unsigned offset, unsigned width, uint32_t mask);          // bits a write changes
  void write_one_clears(unsigned offset, unsigned width, uint32_t mask);  // bits a written one clears

  std::vector<uint8_t> value_;
  std::vector<uint8_t> initial_;
  std::vector<uint8_t> writable_;
  std::vector<uint8_t> clears_;
  std::array<uint64_t, 6> bar_bytes_;
  void gateway_written(unsigned offset, unsigned width, uint32_t held);

  std::vector<uint8_t> vital_data_;
  bool gateway_;
  std::map<uint32_t, uint32_t> semaphores_;  // by address: who holds it
};

}  // namespace userdma::soft
