// EXPECT_SAYS(text, part): `part` stands somewhere in `text`, which is shown where it does not.
#pragma once

#include <gtest/gtest.h>

#include <string>

#define EXPECT_SAYS(text, part)                                     \
  do {                                                              \
    const std::string text_ = (text);                               \
    EXPECT_NE(text_.find(part), text_.npos) << '"' << text_ << '"'; \
  } while (false)
