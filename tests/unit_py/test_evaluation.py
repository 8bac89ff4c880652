"""What the evaluation makes of its measurements."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "eval"))

import against  # noqa: E402
from report import medians, table  # noqa: E402


def run(native, crane, spread=0.0):
    rows = {"native": native, "crane": crane}
    return {"medians": {"redis-50": {name: {"per_second": rate, "spread": spread} for name, rate in rows.items() if rate}}}


class Evaluation(unittest.TestCase):
    def test_spread_is_told_of_the_rounds(self):
        row = medians([{"per_second": 90.0, "identical": "same"}, {"per_second": 110.0, "identical": "DIFFER"},
                       {"per_second": 100.0, "identical": "same"}])
        self.assertEqual(row, {"per_second": 100.0, "spread": 0.1, "identical": "DIFFER"})
        self.assertIn("10%", table({"crane": row}))

    def test_slower_machine_is_no_loss_and_a_smaller_share_of_native_is(self):
        lines, losses = against.compare(run(1000, 500), run(500, 250))
        self.assertEqual((losses, len(lines)), ([], 1))
        self.assertTrue(lines[0].startswith("same"), lines)
        lines, losses = against.compare(run(1000, 500), run(1000, 400))
        self.assertEqual(losses, ["redis-50, crane"])
        lines, losses = against.compare(run(1000, 500), run(1000, 600))
        self.assertTrue(lines[0].startswith("gain") and not losses, lines)

    def test_what_is_within_the_spread_is_no_loss(self):
        self.assertEqual(against.compare(run(1000, 500, 0.15), run(1000, 400))[1], [])

    def test_rates_are_compared_where_the_bare_server_was_not_measured(self):
        self.assertEqual(against.compare(run(None, 500), run(None, 400))[1], ["redis-50, crane"])
        self.assertEqual(against.compare(run(1000, 500), run(None, 400))[1], [])

    def test_what_is_no_earlier_run_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "run.json"
            for text in ("", "[]", '{"medians": 3}'):
                path.write_text(text)
                with self.assertRaises(ValueError):
                    against.read(path)
            with self.assertRaises(ValueError):
                against.read(pathlib.Path(folder) / "none.json")


if __name__ == "__main__":
    unittest.main()
