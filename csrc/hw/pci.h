// PCI configuration space: what a function's driver reads and sets, and a soft function has.
//
// Constants name their macro in Linux's include/uapi/linux/pci_regs.h or include/linux/pci_ids.h; the layout test
// compares. One marked "derived" has no macro.
#pragma once

#include <cstddef>
#include <cstdint>

namespace userdma::hw::pci {

inline constexpr unsigned kConfigSize = 256;           // PCI_CFG_SPACE_SIZE
inline constexpr unsigned kExtendedConfigSize = 4096;  // PCI_CFG_SPACE_EXP_SIZE

// ---- Type 0 header ---------------------------------------------------------------------------------------------

inline constexpr unsigned kVendorId = 0x00;                   // PCI_VENDOR_ID
inline constexpr unsigned kDeviceId = 0x02;                   // PCI_DEVICE_ID
inline constexpr unsigned kCommand = 0x04;                    // PCI_COMMAND
inline constexpr unsigned kStatus = 0x06;                     // PCI_STATUS
inline constexpr unsigned kRevision = 0x08;                   // PCI_REVISION_ID
inline constexpr unsigned kClassProgrammingInterface = 0x09;  // PCI_CLASS_PROG
inline constexpr unsigned kClassDevice = 0x0a;                // PCI_CLASS_DEVICE
inline constexpr unsigned kCacheLineSize = 0x0c;              // PCI_CACHE_LINE_SIZE
inline constexpr unsigned kHeaderType = 0x0e;                 // PCI_HEADER_TYPE
inline constexpr unsigned kBar0 = 0x10;                       // PCI_BASE_ADDRESS_0
inline constexpr unsigned kBar2 = 0x18;                       // PCI_BASE_ADDRESS_2
inline constexpr unsigned kBar4 = 0x20;                       // PCI_BASE_ADDRESS_4
inline constexpr unsigned kBars = 6;                          // derived: PCI_BASE_ADDRESS_0 to _5
inline constexpr unsigned kSubsystemVendorId = 0x2c;          // PCI_SUBSYSTEM_VENDOR_ID
inline constexpr unsigned kSubsystemId = 0x2e;                // PCI_SUBSYSTEM_ID
inline constexpr unsigned kRomAddress = 0x30;                 // PCI_ROM_ADDRESS
inline constexpr unsigned kCapabilityPointer = 0x34;          // PCI_CAPABILITY_LIST
inline constexpr unsigned kInterruptLine = 0x3c;              // PCI_INTERRUPT_LINE
inline constexpr unsigned kInterruptPin = 0x3d;               // PCI_INTERRUPT_PIN

namespace command {
inline constexpr uint16_t kIo = 0x1;                  // PCI_COMMAND_IO
inline constexpr uint16_t kMemory = 0x2;              // PCI_COMMAND_MEMORY
inline constexpr uint16_t kMaster = 0x4;              // PCI_COMMAND_MASTER
inline constexpr uint16_t kInterruptDisable = 0x400;  // PCI_COMMAND_INTX_DISABLE
}  // namespace command

namespace status {
inline constexpr uint16_t kCapabilityList = 0x10;  // PCI_STATUS_CAP_LIST
}  // namespace status

namespace bar {
inline constexpr uint32_t kIo = 0x1;              // PCI_BASE_ADDRESS_SPACE_IO
inline constexpr uint32_t kMemory64 = 0x4;        // PCI_BASE_ADDRESS_MEM_TYPE_64
inline constexpr uint32_t kMemoryTypeMask = 0x6;  // PCI_BASE_ADDRESS_MEM_TYPE_MASK
inline constexpr uint32_t kPrefetchable = 0x8;    // PCI_BASE_ADDRESS_MEM_PREFETCH
inline constexpr uint32_t kFlagsMask = 0xf;       // (uint32_t)~PCI_BASE_ADDRESS_MEM_MASK
}  // namespace bar

inline constexpr uint16_t kHeaderTypeMask = 0x7f;      // PCI_HEADER_TYPE_MASK
inline constexpr uint8_t kHeaderMultiFunction = 0x80;  // PCI_HEADER_TYPE_MFD
inline constexpr uint32_t kNothing = 0xffff'ffff;      // derived: what is read where nothing answers

// ---- Capabilities ----------------------------------------------------------------------------------------------

inline constexpr unsigned kCapabilityId = 0;    // PCI_CAP_LIST_ID
inline constexpr unsigned kCapabilityNext = 1;  // PCI_CAP_LIST_NEXT

namespace capability {
inline constexpr uint8_t kPowerManagement = 0x01;   // PCI_CAP_ID_PM
inline constexpr uint8_t kVitalProductData = 0x03;  // PCI_CAP_ID_VPD
inline constexpr uint8_t kMsi = 0x05;               // PCI_CAP_ID_MSI
inline constexpr uint8_t kVendorSpecific = 0x09;    // PCI_CAP_ID_VNDR
inline constexpr uint8_t kExpress = 0x10;           // PCI_CAP_ID_EXP
inline constexpr uint8_t kMsix = 0x11;              // PCI_CAP_ID_MSIX
}  // namespace capability

// Vital product data: resources by their tags (PCI base specification 3.0, appendix I).
namespace vpd {
inline constexpr unsigned kAddress = 2;             // PCI_VPD_ADDR
inline constexpr uint16_t kAddressMask = 0x7fff;    // PCI_VPD_ADDR_MASK
inline constexpr uint16_t kFlag = 0x8000;           // PCI_VPD_ADDR_F
inline constexpr unsigned kData = 4;                // PCI_VPD_DATA
inline constexpr uint8_t kIdentifierString = 0x82;  // derived
inline constexpr uint8_t kReadOnlyData = 0x90;      // derived
inline constexpr uint8_t kEnd = 0x78;               // derived
}  // namespace vpd

// Power management; offsets are from the capability's start.
namespace pm {
inline constexpr unsigned kCapabilities = 2;      // PCI_PM_PMC
inline constexpr unsigned kControl = 4;           // PCI_PM_CTRL
inline constexpr unsigned kSize = 8;              // PCI_PM_SIZEOF
inline constexpr uint16_t kVersionMask = 0x0007;  // PCI_PM_CAP_VER_MASK
inline constexpr uint16_t kStateMask = 0x0003;    // PCI_PM_CTRL_STATE_MASK
inline constexpr uint16_t kNoSoftReset = 0x0008;  // PCI_PM_CTRL_NO_SOFT_RESET
}  // namespace pm

namespace msix {
inline constexpr unsigned kControl = 2;               // PCI_MSIX_FLAGS
inline constexpr unsigned kTable = 4;                 // PCI_MSIX_TABLE
inline constexpr unsigned kPending = 8;               // PCI_MSIX_PBA
inline constexpr unsigned kSize = 12;                 // PCI_CAP_MSIX_SIZEOF
inline constexpr uint16_t kTableSizeMask = 0x07ff;    // PCI_MSIX_FLAGS_QSIZE
inline constexpr uint16_t kFunctionMask = 0x4000;     // PCI_MSIX_FLAGS_MASKALL
inline constexpr uint16_t kEnable = 0x8000;           // PCI_MSIX_FLAGS_ENABLE
inline constexpr uint32_t kBarMask = 0x7;             // PCI_MSIX_TABLE_BIR
inline constexpr uint32_t kOffsetMask = 0xffff'fff8;  // PCI_MSIX_TABLE_OFFSET
inline constexpr unsigned kEntrySize = 16;            // PCI_MSIX_ENTRY_SIZE
inline constexpr unsigned kEntryAddressLow = 0;       // PCI_MSIX_ENTRY_LOWER_ADDR
inline constexpr unsigned kEntryAddressHigh = 4;      // PCI_MSIX_ENTRY_UPPER_ADDR
inline constexpr unsigned kEntryData = 8;             // PCI_MSIX_ENTRY_DATA
inline constexpr unsigned kEntryControl = 12;         // PCI_MSIX_ENTRY_VECTOR_CTRL
inline constexpr uint32_t kEntryMasked = 0x1;         // PCI_MSIX_ENTRY_CTRL_MASKBIT
}  // namespace msix

namespace express {
inline constexpr unsigned kFlags = 0x02;                     // PCI_EXP_FLAGS
inline constexpr unsigned kDeviceCapabilities = 0x04;        // PCI_EXP_DEVCAP
inline constexpr unsigned kDeviceControl = 0x08;             // PCI_EXP_DEVCTL
inline constexpr unsigned kDeviceStatus = 0x0a;              // PCI_EXP_DEVSTA
inline constexpr unsigned kLinkCapabilities = 0x0c;          // PCI_EXP_LNKCAP
inline constexpr unsigned kLinkControl = 0x10;               // PCI_EXP_LNKCTL
inline constexpr unsigned kLinkStatus = 0x12;                // PCI_EXP_LNKSTA
inline constexpr unsigned kDeviceCapabilities2 = 0x24;       // PCI_EXP_DEVCAP2
inline constexpr unsigned kDeviceControl2 = 0x28;            // PCI_EXP_DEVCTL2
inline constexpr unsigned kLinkCapabilities2 = 0x2c;         // PCI_EXP_LNKCAP2
inline constexpr unsigned kLinkControl2 = 0x30;              // PCI_EXP_LNKCTL2
inline constexpr unsigned kSize = 0x3c;                      // PCI_EXP_SLTSTA2 + 2
inline constexpr uint16_t kControl2Atomics = 0x0040;         // PCI_EXP_DEVCTL2_ATOMIC_REQ
inline constexpr uint16_t kVersionMask = 0x000f;             // PCI_EXP_FLAGS_VERS
inline constexpr uint16_t kTypeMask = 0x00f0;                // PCI_EXP_FLAGS_TYPE
inline constexpr uint16_t kTypeEndpoint = 0x0;               // PCI_EXP_TYPE_ENDPOINT
inline constexpr uint32_t kCapabilityReset = 0x1000'0000;    // PCI_EXP_DEVCAP_FLR
inline constexpr uint32_t kCapabilityRoleErrors = 0x8000;    // PCI_EXP_DEVCAP_RBER
inline constexpr uint32_t kCapabilityExtendedTag = 0x20;     // PCI_EXP_DEVCAP_EXT_TAG
inline constexpr uint16_t kControlRelaxedOrdering = 0x0010;  // PCI_EXP_DEVCTL_RELAX_EN
inline constexpr uint16_t kControlPayloadMask = 0x00e0;      // PCI_EXP_DEVCTL_PAYLOAD
inline constexpr uint16_t kControlExtendedTag = 0x0100;      // PCI_EXP_DEVCTL_EXT_TAG
inline constexpr uint16_t kControlNoSnoop = 0x0800;          // PCI_EXP_DEVCTL_NOSNOOP_EN
inline constexpr uint16_t kControlReadRequestMask = 0x7000;  // PCI_EXP_DEVCTL_READRQ
inline constexpr uint16_t kControlReset = 0x8000;            // PCI_EXP_DEVCTL_BCR_FLR
inline constexpr uint16_t kStatusErrors =
    0x000f;  // PCI_EXP_DEVSTA_CED | PCI_EXP_DEVSTA_NFED | PCI_EXP_DEVSTA_FED | PCI_EXP_DEVSTA_URD
inline constexpr uint16_t kStatusPending = 0x0020;   // PCI_EXP_DEVSTA_TRPND
inline constexpr unsigned kResetMilliseconds = 100;  // derived: PCIe base specification 6.6.2, after an FLR
}  // namespace express

// ---- Functions -------------------------------------------------------------------------------------------------

inline constexpr uint32_t kClassEthernet = 0x020000;  // PCI_CLASS_NETWORK_ETHERNET << 8

// Broadcom Thor2 (BCM57608): the device id is the chip's number in bnxt_re's qplib_res.h.
inline constexpr uint16_t kVendorBroadcom = 0x14e4;  // PCI_VENDOR_ID_BROADCOM
inline constexpr uint16_t kDeviceThor2 = 0x1760;     // CHIP_NUM_57608

// NVIDIA ConnectX-6 Dx.
inline constexpr uint16_t kVendorMellanox = 0x15b3;     // PCI_VENDOR_ID_MELLANOX
inline constexpr uint16_t kDeviceConnectX6Dx = 0x101d;  // derived: mlx5_core's table of devices (core/main.c)

}  // namespace userdma::hw::pci
