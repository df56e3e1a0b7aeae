// RoCEv2 frames against scapy: the hexadecimal frames were built by scapy 2.8 (scapy.contrib.roce), its ICRC included.
#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "hw/roce.h"
#include "soft/wire/codec.h"

using namespace userdma::soft::wire;
namespace roce = userdma::hw::roce;

namespace {

constexpr char send_only[] =
    "0200000000020200000000010800450000380000400040111fa80a0102030a040506c12312b7002400000490ffff00123456"
    "80fffffe68656c6c6f2c20526f434500193d406a";
constexpr char send_middle_256[] =
    "02000000000202000000000108004500012c0000400040111eb40a0102030a040506c12312b7011800000100ffff00000007"
    "00000001f8936f9f56de8dea25d97d797f0ef12b8bf358e58908c40a9ab39db955db08ca0a461586d4b3ab2861b733178058"
    "07e16f6b99f7e2ad632bd3a492ea0d347239760098711f86d1b90df9cd48c5dd8b58996584e9b58c973be8f5b70834835685"
    "14b890178fcf18d60197e3c2a41696c7e1d9b072591c7771b29fa4cd2243cee6bc6797327d0498b5158a0d3f777940681fc0"
    "b64c26d61c070799f0ef2fe9f0944604437840a0688f22cae2759581a0712c112e2e75319e33c1dc3427b3efd4c78b872ca3"
    "3018a19bff4efb1d56a4cf1cdfc5b0cf9ca5152eb75f082d07cd94b762e9ec69a5e65b13840eefef125ae59f0fd3d3e8f5ab"
    "9831c11a04b982fa469b0cebe3f1";
constexpr char send_last_imm[] =
    "0200000000020200000000010800450000380000400040111fa80a0102030a040506c12312b7002400000330ffff00000007"
    "80000002cafef00d6162636465000000620cd4eb";
constexpr char send_only_inv[] =
    "0200000000020200000000010800450000340000400040111fac0a0102030a040506c12312b7002000001700ffff00000007"
    "00000003001122336162636436f1093e";
constexpr char write_only[] =
    "0200000000020200000000010800450000400000400040111fa00a0102030a040506c12312b7002c00000a50ffff00000007"
    "80000004112233445566778899aabbcc0000000378797a0005734af8";
constexpr char write_only_imm[] =
    "0200000000020200000000010800450000400000400040111fa00a0102030a040506c12312b7002c00000b00800100000007"
    "00000005112233445566778899aabbcc00000000010203042263d13a";
constexpr char read_request_v6[] =
    "02000000000202000000000186dd6b80000000281103fe80000000000000000000000000000120010db80000000000000000"
    "00000002c12312b7002800000c00ffff00abcdef0000000600007f000000100000c0ffee80000000e9d5c973";
constexpr char read_first[] =
    "0200000000020200000000010800450001300000400040111eb00a0102030a040506c12312b7011c00000d00ffff00000007"
    "000000061f00000585d86bac9896f7a619122ddf400bf515ae80e1a715eeb13ba746a21240b07b265202550994ff2d7c6a50"
    "2bd21342af039445218f68207518e4f581be6cf9fe3a58ef60b9a469567e59be1f36bfca931a4068ecc71ab059ddccf14159"
    "3e6d57b3aed762b75f8dca240096e106dd5af7d3c7231c48c457b3017772bbdb4ec6dd0a6df235f95e24e1e4750e4a3704a9"
    "35a644ac8809fecbddfdfcb0c83b33bae8b6ad78b07738e4f339d15f31c3ce70a309cd3c08025fc52e4875e33f718602d12f"
    "86a1ab2a878658982bc16ea2d1689b777b0c742c81fdfe5af742f876df57eeee0fa4ff09e1c2697b9c6dd9cba54775656552"
    "a57ef92ba5ac9d07cc41d66f996bad9b6f85";
constexpr char ack[] =
    "0200000000020200000000010800450000300000400040111fb00a0102030a040506ffff12b7001c00001100ffff00000009"
    "0000004d1fabcdef07d9d395";
constexpr char atomic_ack[] =
    "0200000000020200000000010800450000380000400040111fa80a0102030a040506c12312b7002400001200ffff00000007"
    "000000081f0000060123456789abcdefca53bb5e";
constexpr char compare_swap[] =
    "0200000000020200000000010800450000480000400040111f980a0102030a040506c12312b7003400001300ffff00000007"
    "80000009000000000000100000000055111111111111111122222222222222228456a39c";
constexpr char ud_send[] =
    "02000000000202000000000186dd6000000000281140fe80000000000000000000000000000120010db80000000000000000"
    "00000002c12312b7002800006400ffff000000010000000a8001000000000033646174616772616d8ec4c4f2";
constexpr char cnp[] =
    "02000000000202000000000108004502003c0000400040111fa20a0102030a040506c12312b7002800008100ffff40000077"
    "0000000000000000000000000000000000000000fa42f5be";

std::vector<uint8_t> bytes_of(const char* hex) {
  std::vector<uint8_t> v;
  for (; *hex; hex += 2) v.push_back(static_cast<uint8_t>(std::stoi(std::string(hex, 2), nullptr, 16)));
  return v;
}

std::vector<uint8_t> generated(size_t n, uint32_t state) {
  std::vector<uint8_t> v(n);
  for (auto& b : v) {
    state = (state * 1103515245u + 12345u) & 0x7fffffffu;
    b = static_cast<uint8_t>(state >> 16);
  }
  return v;
}

std::string text(const Span& s) { return {reinterpret_cast<const char*>(s.at), static_cast<size_t>(s.bytes)}; }

// What scapy built, read; and encoded again, the same bytes.
Header read(const char* hex, std::string& payload) {
  const auto frame = bytes_of(hex);
  Header h;
  Span data{};
  REQUIRE(decode(frame.data(), frame.size(), h, data) == Malformed::No);
  payload = text(data);
  std::vector<uint8_t> again(frame.size());
  CHECK(encoded_bytes(h) == frame.size());
  // In parts: no frame depends on how its payload lies.
  const size_t cut = data.bytes / 2;
  const Span parts[2] = {{data.at, cut}, {data.at + cut, data.bytes - cut}};
  REQUIRE(encode(h, parts, 2, again.data(), again.size()) == frame.size());
  CHECK(again == frame);
  CHECK(encode(h, parts, 2, again.data(), again.size() - 1) == 0);
  CHECK(h.psns == 1);
  return h;
}

Malformed verdict(const std::vector<uint8_t>& frame) {
  // In a block of its own size, for the sanitizer to see a read past it.
  std::vector<uint8_t> exact(frame);
  exact.shrink_to_fit();
  Header h;
  Span data{};
  return decode(exact.data(), exact.size(), h, data);
}

void fix_ipv4(std::vector<uint8_t>& f) {
  f[24] = f[25] = 0;
  uint32_t sum = 0;
  for (int i = 14; i < 34; i += 2) sum += static_cast<uint32_t>(f[i] << 8 | f[i + 1]);
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  f[24] = static_cast<uint8_t>(~sum >> 8);
  f[25] = static_cast<uint8_t>(~sum);
}

}  // namespace

TEST_CASE("frames of scapy are read field by field and written byte by byte") {
  std::string data;
  Header h = read(send_only, data);
  CHECK(data == "hello, RoCE");
  CHECK(h.opcode == roce::SendOnly);
  CHECK(h.dest_qp == 0x123456);
  CHECK(h.psn == 0xfffffe);
  CHECK(h.flags == (Header::Solicited | Header::AckRequest));
  CHECK(h.pkey == 0xffff);
  CHECK(h.payload == 11);
  CHECK(h.udp_source == 0xc123);
  CHECK(h.hop_limit == 64);
  const uint8_t source[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3};
  const uint8_t destination[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 4, 5, 6};
  CHECK(std::memcmp(h.sgid, source, 16) == 0);
  CHECK(std::memcmp(h.dgid, destination, 16) == 0);
  CHECK(h.smac[5] == 1);
  CHECK(h.dmac[5] == 2);

  h = read(send_middle_256, data);
  const auto middle = generated(256, 9);
  CHECK(data == std::string(middle.begin(), middle.end()));
  CHECK(h.flags == 0);

  h = read(send_last_imm, data);
  CHECK(data == "abcde");
  CHECK(h.immediate == 0xcafef00d);

  h = read(send_only_inv, data);
  CHECK(h.immediate == 0x00112233);

  h = read(write_only, data);
  CHECK(data == "xyz");
  CHECK(h.va == 0x1122334455667788);
  CHECK(h.rkey == 0x99aabbcc);
  CHECK(h.dma_length == 3);
  CHECK(h.flags == (Header::Migrated | Header::AckRequest));

  h = read(write_only_imm, data);
  CHECK(data.empty());
  CHECK(h.immediate == 0x01020304);
  CHECK(h.pkey == 0x8001);

  h = read(read_request_v6, data);
  CHECK(h.dma_length == 0x80000000);
  CHECK(h.traffic_class == 0xb8);
  CHECK(h.hop_limit == 3);
  CHECK(h.sgid[0] == 0xfe);
  CHECK(h.sgid[15] == 1);
  CHECK(h.dgid[0] == 0x20);

  h = read(read_first, data);
  CHECK(h.syndrome == 0x1f);
  CHECK(h.msn == 5);
  CHECK(h.payload == 256);

  h = read(ack, data);
  CHECK(h.opcode == roce::Acknowledge);
  CHECK(h.syndrome == 0x1f);
  CHECK(h.msn == 0xabcdef);
  CHECK(h.udp_source == 0xffff);

  h = read(atomic_ack, data);
  CHECK(h.swap_or_add == 0x0123456789abcdef);

  h = read(compare_swap, data);
  CHECK(h.va == 0x1000);
  CHECK(h.rkey == 0x55);
  CHECK(h.swap_or_add == 0x1111111111111111);
  CHECK(h.compare == 0x2222222222222222);

  h = read(ud_send, data);
  CHECK(data == "datagram");
  CHECK(h.qkey == 0x80010000);
  CHECK(h.src_qp == 0x33);

  h = read(cnp, data);
  CHECK(h.flags == Header::Becn);
  CHECK(h.dest_qp == 0x77);
}

TEST_CASE("every malformed frame is told apart") {
  const auto good = bytes_of(send_only);
  const auto with = [&good](size_t at, uint8_t value, bool checksum = true) {
    auto f = good;
    f[at] = value;
    if (checksum) fix_ipv4(f);
    return verdict(f);
  };
  CHECK(with(12, 0x86) == Malformed::NotIp);
  CHECK(with(14, 0x65) == Malformed::IpVersion);
  CHECK(with(14, 0x46) == Malformed::IpHeader);
  CHECK(with(22, 63, false) == Malformed::IpChecksum);
  CHECK(with(23, 6) == Malformed::NotUdp);
  CHECK(with(20, 0x60) == Malformed::IpFragment);
  CHECK(with(21, 0x01) == Malformed::IpFragment);
  CHECK(with(17, 27) == Malformed::IpLength);
  CHECK(with(17, 57) == Malformed::Truncated);
  CHECK(with(37, 0xb8) == Malformed::NotRoce);
  CHECK(with(39, 0x23) == Malformed::IpLength);
  CHECK(with(43, 0x91) == Malformed::TransportVersion);
  CHECK(with(42, 0x44) == Malformed::Opcode);                  // reliable datagram
  CHECK(with(42, 0xa4) == Malformed::Opcode);                  // XRC
  CHECK(with(42, roce::Acknowledge) == Malformed::Padding);    // has no payload
  CHECK(with(42, roce::CompareSwap) == Malformed::UdpLength);  // its headers are longer than the packet
  CHECK(with(60, 0) == Malformed::Icrc);
  CHECK(with(47, 0x13) == Malformed::Icrc);
  CHECK(with(22, 63) == Malformed::No);    // routers change it
  CHECK(with(15, 0x03) == Malformed::No);  // so do they the ECN bits
  CHECK(with(46, 0xc0) == Malformed::No);  // and FECN and BECN

  // More pad bytes than payload: a send of nothing with a pad count.
  Header h;
  h.opcode = roce::SendOnly;
  h.sgid[10] = h.sgid[11] = h.dgid[10] = h.dgid[11] = 0xff;
  std::vector<uint8_t> empty(encoded_bytes(h));
  REQUIRE(encode(h, nullptr, 0, empty.data(), empty.size()) == empty.size());
  CHECK(verdict(empty) == Malformed::No);
  empty[43] |= 0x10;
  CHECK(verdict(empty) == Malformed::Padding);

  for (size_t n = 0; n < good.size(); n++)
    CHECK(verdict({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n)}) == Malformed::Truncated);

  // Ethernet pads short frames: that is no part of the packet.
  auto padded = good;
  padded.resize(good.size() + 20);
  CHECK(verdict(padded) == Malformed::No);
}

TEST_CASE("a changed bit is noticed unless routers may change it") {
  for (const char* hex : {send_last_imm, read_request_v6, atomic_ack}) {
    const auto good = bytes_of(hex);
    for (size_t bit = 14 * 8; bit < good.size() * 8; bit++) {
      auto f = good;
      f[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      const Malformed m = verdict(f);
      const size_t at = bit / 8 - 14;
      const bool ipv4 = good[12] == 0x08;
      const size_t ip = ipv4 ? 20 : 40;
      const bool mutable_field =
          (!ipv4 && (at == 7 || (at >= 1 && at <= 3) || (at == 0 && bit % 8 < 4))) ||  // hop limit, class, flow label
          at == ip + 6 || at == ip + 7 ||                                              // UDP checksum
          at == ip + 8 + 4;                                                            // FECN, BECN, reserved
      CHECK_MESSAGE((m == Malformed::No) == mutable_field, "byte ", at, " bit ", bit % 8, ": ", name(m));
    }
  }
}

TEST_CASE("what is too large for IP is refused") {
  Header h;
  h.opcode = roce::SendOnly;
  h.payload = 70000;
  std::vector<uint8_t> data(70000), out(80000);
  const Span s{data.data(), data.size()};
  CHECK(encode(h, &s, 1, out.data(), out.size()) == 0);
}

TEST_CASE("no bytes are read past a frame, whatever it says") {
  std::minstd_rand random(7);
  const char* const seeds[] = {send_only, write_only_imm, read_request_v6, compare_swap, ud_send, cnp, read_first};
  for (int i = 0; i < 200000; i++) {
    auto f = bytes_of(seeds[random() % 7]);
    if (random() % 4 == 0) f.resize(random() % (f.size() + 1));
    for (unsigned n = random() % 4; n > 0 && !f.empty(); n--) f[random() % f.size()] = static_cast<uint8_t>(random());
    if (f.size() >= 34 && f[12] == 8 && random() % 2) fix_ipv4(f);
    verdict(f);
  }
}
