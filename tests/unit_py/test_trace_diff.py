"""trace_diff.py on traces made up here: what it says of records that differ, with names from the shim's own header."""

import contextlib
import importlib.util
import io
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "trace_diff.py"
spec = importlib.util.spec_from_file_location("trace_diff", SCRIPT)
trace_diff = importlib.util.module_from_spec(spec)
spec.loader.exec_module(trace_diff)

SOCKET_7, DESCRIPTOR_5 = 3 << 60 | 7, 9 << 60 | 5


class TraceDiffTest(unittest.TestCase):
    def run_on(self, *traces):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for place, records in enumerate(traces):
                paths.append(pathlib.Path(folder, f"trace{place}"))
                paths[-1].write_bytes(b"".join(trace_diff.RECORD.pack(*record) for record in records))
            out = io.StringIO()
            with mock.patch.object(sys, "argv", ["trace_diff.py", *map(str, paths)]), contextlib.redirect_stdout(out):
                return trace_diff.main(), out.getvalue()

    same = [(1, 0, 2, 0xABC, 40, 1 << 60 | 0x1000, 0)]

    def test_equal_traces_are_counted(self):
        self.assertEqual(self.run_on(self.same, self.same), (0, "equal: 1 records\n"))

    def test_what_differs_is_shown_with_the_operation_and_its_objects(self):
        status, said = self.run_on(self.same + [(2, 1, 25, 0xABC, 60, SOCKET_7, 0)],
                                   self.same + [(2, 1, 28, 0xABC, 60, DESCRIPTOR_5, SOCKET_7)])
        self.assertEqual(status, 1)
        self.assertIn("slot 0 MutexLock (Address 0x1000)", said)
        self.assertIn("1: clock 2 slot 1 Receive (Socket 0x7)", said)
        self.assertIn("2: clock 2 slot 1 Close (Descriptor 0x5, Socket 0x7)", said)

    def test_a_restored_servers_trace_is_compared_from_where_it_begins(self):
        later, hole = (2, 1, 25, 0xABC, 60, SOCKET_7, 0), (0,) * 7
        self.assertEqual(self.run_on(self.same + [later], [hole, hole, later]), (0, "equal: 1 records\n"))
        status, said = self.run_on([hole, later], self.same + [(2, 1, 28, 0xABC, 60, DESCRIPTOR_5, SOCKET_7)])
        self.assertEqual((status, "record 0 differs" in said), (1, True))

    def test_pids_of_the_host_count_for_nothing_where_that_is_wanted(self):
        kinds = trace_diff.read_names()[1]
        process = next(kind for kind, name in kinds.items() if name == "Process") << 60
        seen = trace_diff.without_pids(kinds)
        for key, other, equal in ((process | 7, process | 8, True), (SOCKET_7, SOCKET_7 + 1, False)):
            one, two = ((1, 0, 2, 0xABC, 40, key, 0), (1, 0, 2, 0xABC, 40, other, 0))
            self.assertEqual(seen(one) == seen(two), equal)

    def test_a_trace_alone_is_printed(self):
        self.assertEqual(self.run_on(self.same)[1],
                         "clock 1 slot 0 MutexLock (Address 0x1000) caller 0xabc time 40\n")

    def test_numbers_stay_where_the_sources_are_not_at_hand(self):
        self.assertEqual(trace_diff.read_names("/nonexistent"), ({}, {}))
        self.assertEqual(trace_diff.show(self.same[0], {}, {}),
                         "clock 1 slot 0 operation 2 (kind 1 0x1000) caller 0xabc time 40")

    def test_every_operation_and_kind_has_a_name(self):
        operations, kinds = trace_diff.read_names()
        self.assertEqual(sorted(operations), list(range(1, len(operations) + 1)))
        self.assertEqual(sorted(kinds), list(range(16)))


if __name__ == "__main__":
    unittest.main()
