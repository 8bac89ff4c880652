"""What watches a cluster speaks of things that exist: alarms, metrics, runbooks."""

import json
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MONITORING = ROOT / "scripts" / "monitoring"


def read(*parts):
    return ROOT.joinpath(*parts).read_text(encoding="utf-8")


def alarms_of_the_code():
    names = re.search(r"kAlarmNames = \{(.*?)\};", read("proxy", "metrics", "alarm.hpp"), re.DOTALL)[1]
    return re.findall(r'"([^"]+)"', names)


def alerts():
    return re.findall(r"- alert: (\w+)", (MONITORING / "alerts.yml").read_text(encoding="utf-8"))


def metrics_of_the_code():
    code = read("proxy", "metrics", "families.cpp")
    histograms = re.findall(r'add_histogram\(\s*"(\w+)"', code)
    return {*re.findall(r'"((?:crane|process)_\w+)"', code),
            *(name + end for name in histograms for end in ("_bucket", "_sum", "_count"))}


def expressions():
    yield from re.findall(r"expr: (.*)", (MONITORING / "alerts.yml").read_text(encoding="utf-8"))
    for panel in json.loads((MONITORING / "grafana.json").read_text(encoding="utf-8"))["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"]


class MonitoringTest(unittest.TestCase):
    def headings(self):
        text = read("docs", "alarms.md")
        return {name: body for names, body in re.findall(r"^### (.+)\n((?:(?!##).*\n?)*)", text, re.MULTILINE)
                for name in names.split(", ")}

    def test_every_alarm_has_a_runbook_and_every_runbook_an_alarm(self):
        alarms, found = alarms_of_the_code(), self.headings()
        self.assertGreater(len(alarms), 20)
        self.assertEqual(sorted(found), sorted([*alarms, *alerts()]))
        for name in alarms:
            for word in ("Says", "Means:", "Do:"):
                self.assertIn(f"\n{word}", "\n" + found[name], name)

    def test_every_alarm_is_sent_once(self):
        matched = re.findall(r'crane_alarm\{alarm=~"([^"]+)"\}', (MONITORING / "alerts.yml").read_text(encoding="utf-8"))
        self.assertEqual(sorted(name for names in matched for name in names.split("|")), sorted(alarms_of_the_code()))

    def test_rules_and_dashboard_name_metrics_that_there_are(self):
        known = metrics_of_the_code()
        for expression in expressions():
            for name in re.findall(r"\b(?:crane|process)_\w+", expression):
                self.assertIn(name, known, expression)

    def test_every_alert_is_tried_by_the_rules_tests(self):
        tests = (MONITORING / "alerts_test.yml").read_text(encoding="utf-8")
        for name in alerts():
            self.assertRegex(tests, rf"alertname: {name}\b")
            self.assertIn(f"docs/alarms.md#{name.lower()}" if "Alarm" not in name else name,
                          (MONITORING / "alerts.yml").read_text(encoding="utf-8"))

    def test_the_dashboard_panels_do_not_overlap(self):
        board = json.loads((MONITORING / "grafana.json").read_text(encoding="utf-8"))
        taken = set()
        for panel in board["panels"]:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            self.assertFalse(cells & taken, panel["title"])
            self.assertLessEqual(at["x"] + at["w"], 24, panel["title"])
            taken |= cells


if __name__ == "__main__":
    unittest.main()
