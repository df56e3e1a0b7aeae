#include "soft/vfio_user/json.h"

#include <charconv>
#include <cstdint>

namespace userdma::soft::vfio_user {

class Json::Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  bool whole(Json& out) {
    space();
    if (!value(out, 0)) return false;
    space();
    return text_.empty();
  }

 private:
  static constexpr unsigned deepest = 16;

  void space() {
    while (!text_.empty() && (text_[0] == ' ' || text_[0] == '\t' || text_[0] == '\n' || text_[0] == '\r'))
      text_.remove_prefix(1);
  }
  bool literal(std::string_view word) {
    if (!text_.starts_with(word)) return false;
    text_.remove_prefix(word.size());
    return true;
  }
  // A separator, and the space around it.
  bool sign(char c) {
    space();
    if (text_.empty() || text_[0] != c) return false;
    text_.remove_prefix(1);
    space();
    return true;
  }

  bool value(Json& out, unsigned depth) {
    if (text_.empty() || depth > deepest) return false;
    switch (text_[0]) {
      case '{':
        return object(out, depth);
      case '[':
        return array(out, depth);
      case '"': {
        std::string text;
        if (!string(text)) return false;
        out.value_ = std::move(text);
        return true;
      }
      case 't':
        out.value_ = true;
        return literal("true");
      case 'f':
        out.value_ = false;
        return literal("false");
      case 'n':
        out.value_ = nullptr;
        return literal("null");
      default:
        return number(out);
    }
  }

  bool object(Json& out, unsigned depth) {
    Object members;
    sign('{');
    if (!sign('}')) {
      do {
        std::string name;
        if (!string(name) || !sign(':') || !value(members[name], depth + 1)) return false;
      } while (sign(','));
      if (!sign('}')) return false;
    }
    out.value_ = std::move(members);
    return true;
  }

  bool array(Json& out, unsigned depth) {
    Array items;
    sign('[');
    if (!sign(']')) {
      do {
        items.emplace_back();
        if (!value(items.back(), depth + 1)) return false;
      } while (sign(','));
      if (!sign(']')) return false;
    }
    out.value_ = std::move(items);
    return true;
  }

  // Escaped characters outside of ASCII become '?': no name that matters has one.
  bool string(std::string& out) {
    if (!literal("\"")) return false;
    while (!text_.empty()) {
      const char c = text_[0];
      text_.remove_prefix(1);
      if (c == '"') return true;
      if (static_cast<unsigned char>(c) < 0x20) return false;
      if (c != '\\') {
        out += c;
        continue;
      }
      if (text_.empty()) return false;
      const char escaped = text_[0];
      text_.remove_prefix(1);
      static constexpr std::string_view from = "\"\\/bfnrt", to = "\"\\/\b\f\n\r\t";
      if (const size_t at = from.find(escaped); at != from.npos) {
        out += to[at];
      } else if (escaped == 'u') {
        uint32_t code = 0;
        if (text_.size() < 4) return false;
        const char* end = text_.data() + 4;
        if (std::from_chars(text_.data(), end, code, 16).ptr != end) return false;
        text_.remove_prefix(4);
        out += code < 0x80 ? static_cast<char>(code) : '?';
      } else {
        return false;
      }
    }
    return false;
  }

  // JSON's numbers are fewer than from_chars takes: no "inf", no ".5", no "01".
  bool number(Json& out) {
    std::string_view digits = text_;
    if (digits.starts_with('-')) digits.remove_prefix(1);
    if (digits.empty() || digits[0] < '0' || digits[0] > '9') return false;
    if (digits[0] == '0' && digits.size() > 1 && digits[1] >= '0' && digits[1] <= '9') return false;
    double value = 0;
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (error != std::errc() || end[-1] == '.') return false;
    text_.remove_prefix(static_cast<size_t>(end - text_.data()));
    out.value_ = value;
    return true;
  }

  std::string_view text_;
};

bool Json::parse(std::string_view text, Json& out) { return Parser(text).whole(out); }

const Json* Json::member(const std::string& name) const {
  const auto* object = std::get_if<Object>(&value_);
  if (!object) return nullptr;
  const auto found = object->find(name);
  return found == object->end() ? nullptr : &found->second;
}

}  // namespace userdma::soft::vfio_user
