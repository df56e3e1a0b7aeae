// JSON (RFC 8259), as much as reading the capabilities of a version message needs.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace userdma::soft::vfio_user {

class Json {
 public:
  // False: it is no JSON text, or one that is nested deeper than any capability.
  static bool parse(std::string_view text, Json& out);

  bool is_number() const { return std::holds_alternative<double>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  double number() const { return std::get<double>(value_); }
  bool boolean() const { return std::get<bool>(value_); }

  // Null: it is no object, or has no such member.
  const Json* member(const std::string& name) const;

 private:
  class Parser;
  using Object = std::map<std::string, Json>;
  using Array = std::vector<Json>;

  std::variant<std::nullptr_t, bool, double, std::string, Array, Object> value_ = nullptr;
};

}  // namespace userdma::soft::vfio_user
