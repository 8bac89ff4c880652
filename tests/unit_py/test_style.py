"""The style test finds what it is there for, and lets pass what is right."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import style  # noqa: E402


def found(check, text, name="proxy/example.cpp"):
    return [line.split(": ", 1)[1] for line in check(pathlib.Path(name), text.splitlines())]


class Constants(unittest.TestCase):
    def test_are_named_like_kthis(self):
        for line in ("constexpr int most = 3;", "    static constexpr uint64_t limit_ms = 5;",
                     "constexpr std::string_view scheme{\"crane\"};", "inline constexpr size_t sizes[] = {1};"):
            self.assertEqual(len(found(style.constant_problems, line)), 1, line)
        for line in ("constexpr int kMost = 3;", "constexpr uint64_t padded(uint64_t bytes) {",
                     "    if constexpr (sizeof(long) == 8) {", "static constexpr uint8_t kPrefix[12] = {0};"):
            self.assertEqual(found(style.constant_problems, line), [], line)

    def test_end_in_their_unit_without_an_underscore(self):
        self.assertEqual(len(found(style.constant_problems, "    return kPatience_ms;")), 1)
        self.assertEqual(found(style.constant_problems, "    return kPatienceMs + pause_ms;"), [])

    def test_are_seen_before_a_comment(self):
        self.assertEqual(len(found(style.constant_problems, "constexpr ReplicaId nobody = 0;  // ids start at 1")), 1)

    def test_enumerators_are_constants_too(self):
        for text in ("enum class Role : uint8_t { kBackup, Primary };", "enum class Role {\n    kBackup,\n    primary = 2,\n};"):
            self.assertEqual(len(found(style.constant_problems, text)), 1, text)
        text = "enum class Role { kBackup, kPrimary = 1 + 1 };\nint backup, primary;\nenum class Op : uint32_t;\nRole a = odd, b;"
        self.assertEqual(found(style.constant_problems, text), [])


class Comments(unittest.TestCase):
    LONG = "// " + "word " * 19 + "end"

    def test_a_point_that_the_formatter_broke(self):
        text = "//  - a rule that goes on\n//  and on,\n//    to its end."
        self.assertTrue(any("point" in one for one in found(style.comment_problems, text)))
        self.assertEqual(found(style.comment_problems, "//  - a rule\n//    that goes on."), [])

    def test_a_line_broken_in_the_midst_of_a_paragraph(self):
        self.assertEqual(len(found(style.comment_problems, f"{self.LONG}\n// short,\n// and the rest of it")), 1)
        for text in (f"{self.LONG}\n// short.", f"{self.LONG}\n// short.\n// A new sentence may begin a line.",
                     f"{self.LONG}\n//\n// Another paragraph.", f"{self.LONG}\n//     a = picture\n//     b"):
            self.assertEqual(found(style.comment_problems, text), [], text)

    def test_rules_without_words_and_comments_behind_declarations(self):
        self.assertEqual(len(found(style.comment_problems, "// " + "-" * 40)), 1)
        self.assertEqual(len(found(style.comment_problems, "    int size = 0;  // in bytes", "proxy/example.hpp")), 1)
        self.assertEqual(found(style.comment_problems, "    int size = 0;  ///< in bytes", "proxy/example.hpp"), [])
        self.assertEqual(found(style.comment_problems, "    int size = 0;  // in bytes"), [])


if __name__ == "__main__":
    unittest.main()
