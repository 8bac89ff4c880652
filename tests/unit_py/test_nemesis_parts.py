"""What the nemesis stands on, without a cluster: the schedule, the forgeries, the sums."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "nemesis"))

import clients  # noqa: E402  pylint: disable=wrong-import-position
import faults  # noqa: E402  pylint: disable=wrong-import-position
import verdict  # noqa: E402  pylint: disable=wrong-import-position


def operation(kind, key, call, end, value="", result="ok", client=1):
    return {"client": client, "op": kind, "key": key, "value": value, "old": "", "call": call, "return": end,
            "result": result}


class ScheduleTest(unittest.TestCase):
    def test_a_seed_gives_the_same_schedule_again_and_another_seed_another(self):
        self.assertEqual(faults.schedule(7, 120), faults.schedule(7, 120))
        self.assertNotEqual(faults.schedule(7, 120), faults.schedule(8, 120))

    def test_every_kind_of_fault_is_in_two_minutes_of_any_seed(self):
        for seed in range(300):
            planned = faults.schedule(seed, 120)
            self.assertEqual({kind for _, _, kind, _, _ in planned}, {kind[0] for kind in faults.KINDS}, seed)
            self.assertTrue(all(0 < begin < end <= 120 for begin, end, *_ in planned), seed)

    def test_each_fault_can_be_carried_out(self):
        for kind, *_ in faults.KINDS:
            self.assertTrue(callable(getattr(faults.Nemesis, "_" + kind.replace(" ", "_"))), kind)

    def test_what_is_undone_is_undone_in_order_and_not_before_its_time(self):
        done = []
        undo = [(2.0, lambda: done.append("late")), (1.0, lambda: done.append("early"))]
        faults.Nemesis._wait(1.5, undo)
        self.assertEqual(done, ["early", "late"][: len(done)])  # both are long past on a machine that is up
        faults.Nemesis._wait(float("inf"), undo)
        self.assertEqual((done, undo), (["early", "late"], []))


class VerdictTest(unittest.TestCase):
    history = [operation("set", "k1", 1, 2, "a"), operation("set", "k1", 3, 4, "b"),
               operation("get", "k1", 5, 6, result="b")]

    def test_a_forgery_is_an_answer_that_had_been_replaced_before_the_read_began(self):
        forged = verdict.forge(self.history)
        self.assertEqual([one["result"] for one in forged], ["ok", "ok", "a"])
        self.assertEqual(self.history[2]["result"], "b")

    def test_what_may_be_concurrent_is_not_forged(self):
        self.assertIsNone(verdict.forge([self.history[0], operation("set", "k1", 1, 4, "b"), self.history[2]]))

    def test_a_write_that_is_not_there_is_lost(self):
        writer = clients.Client(1, [], 1, None, 0)
        writer.unique = {"u1": "1", "u2": "2", "u3": "3"}
        self.assertEqual(verdict.lost_writes([writer], {"u1": "1", "u2": "x"}), ["u2", "u3"])

    def test_the_longest_gap_is_between_answers_of_any_client(self):
        operations = [operation("get", "k", 0, second * 10**9) for second in (1, 2, 5)] + [{"call": 3 * 10**9}]
        self.assertEqual(clients.longest_gap(operations), (3.0, 2 * 10**9))


if __name__ == "__main__":
    unittest.main()
