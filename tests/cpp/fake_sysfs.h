// A folder that looks like sysfs with one PCI function in it, gone at the end.
#pragma once

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "host/function.h"

namespace userdma::test {

namespace fs = std::filesystem;

struct FakeSysfs {
  static constexpr const char* kBus = "0000:17:00.0";

  FakeSysfs() {
    std::string pattern = (fs::temp_directory_path() / "userdma-XXXXXX").string();
    root = mkdtemp(pattern.data());
    fs::create_directories(root / "dev/vfio");
    add(kBus);
    // 0: 64 KiB of memory, 2: 1 MiB, 4: I/O ports; include/linux/ioport.h's flags.
    write(file("resource"),
          "0x00000000e0000000 0x00000000e000ffff 0x0000000000140204\n"
          "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
          "0x00000000e0100000 0x00000000e01fffff 0x0000000000140204\n"
          "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
          "0x000000000000c000 0x000000000000c0ff 0x0000000000040101\n"
          "0x0000000000000000 0x0000000000000000 0x0000000000000000\n");
    std::string config(256, '\0');
    config[0] = '\xe4', config[1] = '\x14', config[2] = '\x60', config[3] = '\x17';
    config[4] = '\x04';  // bus mastering, as an owner that died left it
    write(file("config"), config);
    write(file("enable"), "0\n");
    write(file("reset"), "");
    fs::resize_file(make(file("resource0")), 0x10000);
    fs::resize_file(make(file("resource2")), 0x100000);
  }
  ~FakeSysfs() { fs::remove_all(root); }

  fs::path device(const std::string& bus = kBus) const { return root / "bus/pci/devices" / bus; }
  fs::path file(const std::string& name, const std::string& bus = kBus) const { return device(bus) / name; }
  void add(const std::string& bus) const { fs::create_directories(device(bus)); }

  void bind(const std::string& driver, const std::string& bus = kBus) const {
    fs::remove(file("driver", bus));
    if (driver.empty()) return;
    fs::create_directories(root / "bus/pci/drivers" / driver);
    fs::create_directory_symlink(root / "bus/pci/drivers" / driver, file("driver", bus));
  }
  void group(int number, const std::string& type = "DMA", const std::string& bus = kBus) const {
    fs::path folder = root / "kernel/iommu_groups" / std::to_string(number);
    fs::create_directories(folder / "devices");
    write(folder / "type", type + "\n");
    fs::create_directory_symlink(device(bus), folder / "devices" / bus);
    fs::remove(file("iommu_group", bus));
    fs::create_directory_symlink(folder, file("iommu_group", bus));
  }

  static void write(const fs::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  }
  static std::string read(const fs::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  static fs::path make(const fs::path& path) {
    write(path, "");
    return path;
  }

  fs::path root;
};

// What a call throws, or "".
template <class Call>
std::string thrown(Call&& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// Releases a function while two threads use it, with `bytes` of memory at a time, and calls `released` before it waits
// for them; what each of them was told in the end.
template <class Released>
std::vector<std::string> released_in_use(host::Function& function, size_t bytes, Released&& released) {
  std::vector<std::string> told(2);
  std::atomic<bool> begun{false};
  std::vector<std::thread> users;
  for (std::string& why : told)
    users.emplace_back([&] {
      why = thrown([&] {
        for (;;) {
          function.set_config(4, 2, function.config(4, 2));
          function.free_dma(function.alloc_dma(bytes));
          begun = true;
        }
      });
    });
  while (!begun) std::this_thread::yield();
  function.release();
  released();
  for (std::thread& user : users) user.join();
  return told;
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace userdma::test
