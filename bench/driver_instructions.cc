// What callgrind counts: `driver_instructions bnxt|mlx5 post|take|empty TIMES`. Only `measured` is collected.
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "driver/bnxt_rings.h"
#include "driver/mlx5_rings.h"
#include "driver/qp.h"
#include "hw/bnxt.h"
#include "plain_function.h"

using namespace userdma;
namespace bnxt = userdma::hw::bnxt;

namespace {

constexpr uint32_t kEntries = 4096;

// The rings of a pair on plain memory, and its completions of the first `n` send entries, as the NIC writes them in the
// ring's first pass.
struct Family {
  virtual ~Family() = default;
  virtual std::unique_ptr<driver::Rings> rings(std::shared_ptr<driver::Domain> domain) = 0;
  virtual void complete(uint32_t n) = 0;
};

struct Bnxt final : Family {
  std::unique_ptr<driver::Rings> rings(std::shared_ptr<driver::Domain> domain) override {
    auto& function = *domain->function();
    host::Memory memory[4] = {function.alloc_dma(kEntries * (bnxt::kStaticWqe + 8)), function.alloc_dma(kEntries * 128),
                              function.alloc_dma(kEntries * 64), function.alloc_dma(kEntries * 64)};
    auto queue = [&](int i, uint32_t entries, uint32_t id) {
      return driver::BnxtRings::Queue{memory[i].data, memory[i].size, entries, id};
    };
    completions_ = memory[2].data;
    return std::make_unique<driver::BnxtRings>(domain, 5, queue(0, kEntries, 0), queue(1, kEntries, 0),
                                               queue(2, 2 * kEntries, 1), queue(3, 2 * kEntries, 2),
                                               function.map(2).doorbell(0));
  }
  void complete(uint32_t n) override {
    for (uint32_t i = 0; i < n; ++i) {
      bnxt::CqReq cqe{};
      cqe.sq_cons_idx = static_cast<uint16_t>(i + 1);
      cqe.cqe_type_toggle = static_cast<uint8_t>(bnxt::cqe_type::kReq << bnxt::kCqeTypeShift | bnxt::kCqeToggle);
      std::memcpy(completions_ + i * sizeof(cqe), &cqe, sizeof(cqe));
    }
  }
  uint8_t* completions_ = nullptr;
};

struct Mlx5 final : Family {
  std::unique_ptr<driver::Rings> rings(std::shared_ptr<driver::Domain> domain) override {
    using driver::Mlx5Rings;
    auto& function = *domain->function();
    host::Memory memory = function.alloc_dma(kEntries * 80 + 4096);
    auto* records = reinterpret_cast<uint32_t*>(memory.data + kEntries * 80);
    Mlx5Rings::Cq queues[2];
    for (uint32_t i = 0; i < 2; ++i) {
      host::Memory ring = function.alloc_dma(2 * kEntries * 64);
      queues[i] = {{ring.data, ring.size, 2 * kEntries}, i + 1, records + 16 * (i + 1)};
    }
    completions_ = queues[0].base;
    return std::make_unique<Mlx5Rings>(domain, 5,
                                       Mlx5Rings::Queue{memory.data + kEntries * 16, kEntries * 64, kEntries},
                                       Mlx5Rings::Queue{memory.data, kEntries * 16, kEntries}, records, queues[0],
                                       queues[1], function.map(2), 0, uint64_t{1} << 30);
  }
  void complete(uint32_t n) override {
    for (uint32_t i = 0; i < n; ++i) {
      hw::mlx5::Cqe cqe{};
      cqe.wqe_counter = host::big_endian(static_cast<uint16_t>(i));
      std::memcpy(completions_ + i * sizeof(cqe), &cqe, sizeof(cqe));
    }
  }
  uint8_t* completions_ = nullptr;
};

void post(driver::Qp& qp, const driver::Region& region, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) qp.send(region, 64, 8);
}

}  // namespace

extern "C" [[gnu::noinline]] unsigned measured(const std::string& what, driver::Qp& qp, const driver::Region& region,
                                               uint32_t n) {
  if (what == "post") {
    post(qp, region, n);
    return n;
  }
  unsigned found = 0;
  driver::Completion completion;
  for (uint32_t i = 0; i < n; ++i) found += qp.poll(driver::Side::Send, completion) == driver::Polled::Ok;
  return found;
}

int main(int count, char** arguments) {
  if (count != 4) return 2;
  const std::string what = arguments[2];
  const auto n = static_cast<uint32_t>(std::stoul(arguments[3]));
  std::unique_ptr<Family> family;
  if (std::string(arguments[1]) == "mlx5")
    family = std::make_unique<Mlx5>();
  else
    family = std::make_unique<Bnxt>();

  auto function = std::make_shared<bench::PlainFunction>();
  auto domain = std::make_shared<driver::Domain>(function);
  host::Memory bytes = function->alloc_dma(4096);
  driver::Region region{.domain = domain, .data = bytes.data, .va = bytes.runs[0].address, .bytes = 4096, .lkey = 1};
  driver::Qp qp(family->rings(domain), kEntries - 1, kEntries - 1, false);
  qp.connect(0, 4096, true);
  if (what == "take") {
    post(qp, region, n);
    family->complete(n);
  } else if (what == "empty") {
    post(qp, region, 1);
  }
  unsigned found = measured(what, qp, region, n);
  unsigned expected = what == "empty" ? 0 : n;
  if (found != expected) std::fprintf(stderr, "%s: %u, not %u\n", what.c_str(), found, expected);
  return found == expected ? 0 : 1;
}
