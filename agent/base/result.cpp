// SPDX-License-Identifier: Apache-2.0
#include "agent/base/result.h"

#include <system_error>

namespace inferwire::base {

std::string Error::to_string() const {
  std::string text = "cannot " + what;
  if (!on.empty()) text += " " + on;
  if (!why.empty()) text += ": " + why;
  if (!fix.empty()) text += "; " + fix;
  return text;
}

tl::unexpected<Error> fail(std::string_view what, std::string_view on, std::string_view why, std::string_view fix) {
  return tl::unexpected<Error>(Error{std::string(what), std::string(on), std::string(why), std::string(fix)});
}

std::string errno_text(int error_number) { return std::generic_category().message(error_number); }

}  // namespace inferwire::base
