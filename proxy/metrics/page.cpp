#include "proxy/metrics/page.hpp"

namespace crane::proxy {

// Whatever the status says is shown as text, never as markup.
const char kPage[] = R"page(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Crane</title>
<style>
:root { --ink: #1c2330; --soft: #5d6778; --line: #dfe3ea; --paper: #fff; --back: #f4f6f9; --good: #1a7f4b; --bad: #b3261e; --one: #2457c5; --two: #c2702a; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ef; --soft: #98a2b3; --line: #323a48; --paper: #1b212b; --back: #12161d; --good: #4cc38a; --bad: #ff7b72; --one: #7aa2f7; --two: #e0a36a; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); font: 14px/1.45 system-ui, sans-serif; }
header { display: flex; flex-wrap: wrap; gap: .4em 1.2em; align-items: baseline; padding: 1em 1.4em; background: var(--paper); border-bottom: 1px solid var(--line); }
h1 { font-size: 1.25em; margin: 0; }
h2 { font-size: .8em; margin: 0 0 .6em; color: var(--soft); text-transform: uppercase; letter-spacing: .06em; }
main { display: grid; grid-template-columns: repeat(auto-fit, minmax(26em, 1fr)); gap: 1em; padding: 1em 1.4em; max-width: 96em; }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 6px; padding: .9em 1.1em; min-width: 0; }
section.wide { grid-column: 1 / -1; }
table { width: 100%; border-collapse: collapse; }
th, td { text-align: left; padding: .2em .8em .2em 0; vertical-align: top; overflow-wrap: break-word; }
td:last-child { overflow-wrap: anywhere; min-width: 9em; }
thead th { color: var(--soft); font-weight: normal; border-bottom: 1px solid var(--line); }
tbody th { color: var(--soft); font-weight: normal; width: 42%; }
td { font-variant-numeric: tabular-nums; }
.badge { padding: .1em .6em; border-radius: 1em; border: 1px solid currentColor; font-weight: 600; }
.good { color: var(--good); } .bad { color: var(--bad); } .soft { color: var(--soft); }
#alarms li { margin: .3em 0; } #alarms ul { margin: 0; padding-left: 1.2em; } #alarms code { font-weight: 600; color: var(--bad); }
.bar { height: .5em; background: var(--line); border-radius: 3px; overflow: hidden; margin-top: .35em; }
.bar div { height: 100%; background: var(--one); }
#difference p { margin: 0 0 .6em; } #difference code { overflow-wrap: anywhere; }
svg { width: 100%; height: 7em; display: block; }
svg path { fill: none; stroke-width: 1.5; stroke-linecap: round; vector-effect: non-scaling-stroke; }
.one { stroke: var(--one); color: var(--one); } .two { stroke: var(--two); color: var(--two); }
</style>
</head>
<body>
<header>
  <h1 id="title">Crane</h1>
  <span id="role" class="badge"></span>
  <span id="health"></span>
  <span id="when" class="soft"></span>
</header>
<main>
  <section id="alarms" class="wide"><h2>Alarms</h2><div></div></section>
  <section class="wide"><h2>Replicas</h2><table id="replicas"></table></section>
  <section><h2>Log</h2><table id="log"></table></section>
  <section><h2>Consensus latency, ms <span class="one">median</span> <span class="two">99 %</span></h2><svg id="consensus" viewBox="0 0 100 100" preserveAspectRatio="none"></svg><div id="consensus-text" class="soft"></div></section>
  <section><h2>Log syncs, ms <span class="one">median</span> <span class="two">99 %</span></h2><svg id="sync" viewBox="0 0 100 100" preserveAspectRatio="none"></svg><div id="sync-text" class="soft"></div></section>
  <section><h2>Server</h2><table id="server"></table></section>
  <section><h2>Clients and memory</h2><table id="clients"></table></section>
  <section><h2>Checkpoints</h2><table id="checkpoints"></table></section>
  <section><h2>Divergence</h2><table id="divergence"></table></section>
  <section class="wide" id="difference" hidden><h2>First different output</h2><p></p><table></table></section>
  <section><h2>Clocks, disk, certificate</h2><table id="host"></table></section>
</main>
<script>
"use strict";
const PERIOD_MS = 2000, KEPT = 150;
const byId = id => document.getElementById(id);
const latencies = {consensus: [], sync: []};
let last = null;

function element(name, text, style) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = text;
  if (style) made.className = style;
  return made;
}

function number(value) { return value === undefined || value === null ? "–" : value.toLocaleString("en"); }

function bytes(value) {
  if (value === undefined || value === null) return "–";
  let unit = 0;
  while (value >= 1024 && unit < 4) { value /= 1024; ++unit; }
  return value.toFixed(unit && value < 100 ? 1 : 0) + " " + ["B", "KiB", "MiB", "GiB", "TiB"][unit];
}

function span(seconds) {
  for (const [length, name] of [[86400, "d"], [3600, "h"], [60, "min"]])
    if (seconds >= 2 * length) return Math.floor(seconds / length) + " " + name;
  return Math.max(0, Math.round(seconds)) + " s";
}

/* rows: [name, value, fullness or undefined, style or undefined] */
function facts(id, rows) {
  const body = element("tbody");
  for (const [name, value, full, style] of rows) {
    const row = element("tr"), cell = element("td", value, style);
    if (full !== undefined) {
      const bar = element("div", null, "bar"), inner = element("div");
      inner.style.width = Math.min(100, 100 * full) + "%";
      bar.append(inner);
      cell.append(bar);
    }
    row.append(element("th", name), cell);
    body.append(row);
  }
  byId(id).replaceChildren(body);
}

function rate(status, read) {
  if (!last || last.status.pid !== status.pid) return null;
  const seconds = (status.at - last.status.at) / 1000, grown = read(status) - read(last.status);
  return seconds > 0 && grown >= 0 ? grown / seconds : null;
}

function perSecond(value) { return value === null ? "–" : number(Math.round(value)) + " /s"; }

/* The bucket in which the given share of what came since the last look lies; null: nothing came. */
function quantile(now, before, share) {
  const grown = now.buckets.map((bucket, i) => bucket[1] - (before ? before.buckets[i][1] : 0));
  const all = grown.reduce((sum, one) => sum + Math.max(0, one), 0);
  if (all === 0 || grown.some(one => one < 0)) return null;
  let seen = 0;
  for (let i = 0; i < grown.length; ++i) {
    if (seen + grown[i] >= share * all) {
      const low = i ? now.buckets[i - 1][0] : 0, high = now.buckets[i][0] === null ? 2 * low : now.buckets[i][0];
      return (low + (high - low) * (share * all - seen) / grown[i]) / 1000;
    }
    seen += grown[i];
  }
  return null;
}

function line(points, top, style) {
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  let text = "", pen = false;
  points.forEach((value, i) => {
    if (value !== null) text += (pen ? "L" : "M") + (100 * (i + KEPT - points.length) / (KEPT - 1)) + " " + (98 - 94 * value / top) + "h.1";
    pen = value !== null;
  });
  path.setAttribute("d", text);
  path.setAttribute("class", style);
  return path;
}

function latency(id, now, before) {
  const kept = latencies[id];
  kept.push([quantile(now, before, .5), quantile(now, before, .99)]);
  if (kept.length > KEPT) kept.shift();
  const top = Math.max(...kept.flat().filter(value => value !== null), 1);
  byId(id).replaceChildren(line(kept.map(one => one[0]), top, "one"), line(kept.map(one => one[1]), top, "two"));
  const [median, most] = kept[kept.length - 1];
  byId(id + "-text").textContent = (median === null ? "none in the last seconds" : median.toFixed(2) + " and " + most.toFixed(2)) +
    "; top of the picture: " + top.toFixed(1) + "; " + number(now.count) + " in all";
}

/* Since when, as this replica learned it. */
function leads(status) {
  if (!status.leader_since_s) return "";
  const since = new Date(status.leader_since_s * 1000).toISOString().replace("T", " ").replace(".000Z", " UTC");
  return " since " + since + " (for " + span(Date.now() / 1000 - status.leader_since_s) + ")";
}

function showAlarms(alarms) {
  const list = element("ul");
  for (const alarm of alarms) {
    const item = element("li");
    item.append(element("code", alarm.name), document.createTextNode(" " + alarm.text));
    list.append(item);
  }
  byId("alarms").lastElementChild.replaceChildren(alarms.length ? list : element("span", "none", "good"));
}

/* Side by side, as found last: also when all is well again. */
function showDifference(status) {
  const found = status.divergence && status.divergence.first_difference, place = byId("difference");
  place.hidden = !found;
  if (!found) return;
  const known = found.record !== null;
  place.querySelector("p").textContent = "Found " + span(Date.now() / 1000 - found.found_s) + " ago at log index " + number(found.index) +
    (known ? (found.exact ? ", first at" : ", at or before") + " record " + number(found.record) + " of the output" +
      (found.byte === null ? "" : ", byte " + number(found.byte) + " of it")
    : "; what was put out there is in memory no longer: see crane diff");
  const head = element("tr"), top = element("thead"), body = element("tbody");
  for (const name of ["replica", "call", "connection", "at its byte", "bytes", "output"]) head.append(element("th", name));
  top.append(head);
  for (const side of found.sides) {
    const row = element("tr"), output = element("td");
    if (side.excerpt !== undefined) output.append(element("code", (side.excerpt_from ? "…" : "") + side.excerpt));
    row.append(element("td", side.replica + (side.replica === status.replica ? " (this)" : "")), element("td", side.call || "nothing more"),
      element("td", side.connection || "–"), element("td", number(side.offset)), element("td", number(side.bytes)), output);
    body.append(row);
  }
  place.querySelector("table").replaceChildren(top, body);
}

function showReplicas(status) {
  const head = element("tr"), body = element("tbody");
  for (const name of ["replica", "address", "role", "link", "log up to", "last heard", ""]) head.append(element("th", name));
  const top = element("thead");
  top.append(head);
  const peers = new Map(status.peers.map(peer => [peer.replica, peer]));
  const odd = new Set(status.divergence ? status.divergence.diverged.map(one => one.replica) : []);
  for (const member of status.membership.members) {
    const peer = peers.get(member.replica), own = member.replica === status.replica, leads = member.replica === status.leader;
    const notes = [];
    if (peer && peer.needs_checkpoint) notes.push("needs a checkpoint");
    if (peer && peer.rejoining) notes.push("rejoins");
    if (peer && peer.witness || own && status.witness) notes.push("witness");
    if (odd.has(member.replica)) notes.push("DIFFERS");
    const row = element("tr"), heard = status.role === "primary" && peer && peer.connected;
    row.append(element("td", member.replica + (own ? " (this)" : "")), element("td", member.address || "–"),
      element("td", leads ? "primary" : member.voter ? "backup" : "learner"),
      own ? element("td", "–") : element("td", peer && peer.connected ? "up" : "down", peer && peer.connected ? "good" : "bad"),
      element("td", own ? number(status.decided) : heard ? number(peer.matched) : "–"),
      element("td", heard ? number(peer.heard_ms_ago) + " ms ago" : "–"), element("td", notes.join(", ")));
    body.append(row);
  }
  byId("replicas").replaceChildren(top, body);
}

function show(answer) {
  const status = answer.status, counters = status.counters, memory = status.memory || {};
  status.at = Date.now();
  document.title = "Crane: replica " + status.replica + ", " + status.role;
  byId("title").textContent = "Crane " + status.version + ", cluster " + status.cluster + ", replica " + status.replica;
  byId("role").textContent = status.role;
  byId("health").textContent = answer.unhealthy ? "serves nobody: " + answer.unhealthy : "serves clients";
  byId("health").className = answer.unhealthy ? status.witness ? "soft" : "bad" : "good";
  byId("when").textContent = "up " + span(Date.now() / 1000 - status.started_s) + ", looked at " + new Date().toLocaleTimeString("en-GB");
  showAlarms(answer.alarms);
  showReplicas(status);
  facts("log", [
    ["view", number(status.view) + (status.leader ? ", replica " + status.leader + " leads" + leads(status) : ", nobody leads"), undefined, status.leader ? "" : "bad"],
    ["decided", number(status.decided) + ", " + perSecond(rate(status, one => one.decided))],
    ["given to the server", number(status.admitted) + ", lag " + number(status.lag)],
    ["oldest entry kept", number(status.first_log_index)],
    ["calls proposed here", number(counters.calls) + ", " + perSecond(rate(status, one => one.counters.calls || 0))],
    ["batches, time bubbles", number(counters.batches) + ", " + number(counters.bubbles)],
    ["elections seen", number(counters.view_changes)],
    ["durability", status.durability]]);
  if (status.latency) {
    latency("consensus", status.latency.consensus, last && last.status.latency.consensus);
    latency("sync", status.latency.sync, last && last.status.latency.sync);
  }
  facts("server", [
    ["state", status.server, undefined, status.server === "listening" || status.server === "running" || status.witness ? "" : "bad"],
    ["ports", (status.listen || []).map(port => port.port + " at " + port.client + (port.open ? "" : " (closed)")).join(", ") || "–"],
    ["number", number(status.generation) + (status.last_end ? "; the one before: " + status.last_end : "")],
    ["threads, processes", number(status.threads) + ", " + number(status.processes)],
    ["logical clock", number(status.clock) + ", " + perSecond(rate(status, one => one.clock))],
    ["hand-overs", perSecond(rate(status, one => one.counters.handovers || 0))],
    ["rests", status.quiescent === undefined ? "–" : status.quiescent ? "yes" : "no"],
    ["CPU, server and craned", status.cpu_seconds.domain.toFixed(1) + " s, " + status.cpu_seconds.craned.toFixed(1) + " s"]]);
  facts("clients", [
    ["attached here", number(status.connections) + " of " + number(status.max_clients)],
    ["of the server", number(status.open_connections)],
    ["waiting, held back", number(status.waiting_clients) + ", " + number(memory.held_back_clients)],
    ["from clients", perSecond(rate(status, one => one.counters.client_bytes_in || 0)).replace("/s", "B/s")],
    ["to clients", perSecond(rate(status, one => one.counters.client_bytes_out || 0)).replace("/s", "B/s")],
    ["unread input", bytes(memory.input_bytes) + " of " + bytes(memory.input_limit_bytes), memory.input_limit_bytes ? memory.input_bytes / memory.input_limit_bytes : undefined],
    ["untaken output", bytes(memory.output_bytes) + " of " + bytes(memory.output_limit_bytes), memory.output_limit_bytes ? memory.output_bytes / memory.output_limit_bytes : undefined]]);
  const kept = status.checkpoint, fetch = status.checkpoint_fetch;
  facts("checkpoints", [
    ["newest here", kept.index ? "entry " + number(kept.index) + ", " + bytes(kept.bytes) + ", " + span(Date.now() / 1000 - kept.since_s) + " old" : "none"],
    ["a majority holds", kept.majority_index ? "entry " + number(kept.majority_index) : "none"],
    ["decided since", bytes(kept.log_bytes_since)],
    ["being taken", kept.being_taken ? "yes" : "no"],
    ["being fetched", fetch ? bytes(fetch.bytes) + " of " + bytes(fetch.total) + " from replica " + fetch.source : "no"],
    ["images", kept.images ? "can be taken here" : "cannot be taken here"],
    ["last error", kept.error || "none", undefined, kept.error ? "bad" : ""]]);
  const divergence = status.divergence;
  facts("divergence", divergence ? [
    ["compared here", divergence.checking ? number(divergence.compared) + ", last at entry " + number(divergence.last_compared_index) : "the primary compares"],
    ["not compared", number(divergence.unchecked)],
    ["differ", divergence.diverged.map(one => (one.replica ? "replica " + one.replica : "no majority") + (one.exact ? " at" : " at or before") + " entry " + number(one.index)).join(", ") || "none", undefined, divergence.diverged.length ? "bad" : ""],
    ["other schedule, same output", divergence.schedule_differs.map(one => "replica " + one.replica + ", seen at entry " + number(one.index)).join("; ") || "none",
      undefined, divergence.schedule_differs.length ? "bad" : ""],
    ["comparisons with another schedule", number(divergence.schedule_differences)],
    ["other settings", number(divergence.settings_differ), undefined, divergence.settings_differ ? "bad" : ""],
    ["made anew for it", number(counters.repairs)],
    ["output hash", status.output_hash]] : [["", "a witness has no output"]]);
  showDifference(status);
  const clocks = status.clock_skew, disk = status.disk || {};
  const off = value => value === null || value === undefined ? "–" : value.toFixed(3) + " s";
  facts("host", [
    ["this host's clock is ahead by", clocks ? off(clocks.host_s) : "–"],
    ["the cluster's clock", clocks ? off(clocks.cluster_s) + (clocks.agreed ? "" : "; the hosts do not agree") : "–"],
    ["disk free", bytes(disk.free_bytes) + ", reserve " + bytes(disk.reserve_bytes) +
      (typeof disk.free_files === "number" ? ", " + number(disk.free_files) + " files" : "")],
    ["certificate", status.certificate_ends_s ? "ends in " + span(status.certificate_ends_s - Date.now() / 1000) : "none"],
    ["loop late at most", status.loop ? number(status.loop.longest_ms) + " ms" : "–"]]);
  last = answer;
}

async function look() {
  try {
    const reply = await fetch("status.json", {cache: "no-store"});
    if (!reply.ok) throw new Error("status " + reply.status);
    show(await reply.json());
  } catch (error) {
    byId("health").textContent = "no answer: " + error.message;
    byId("health").className = "bad";
  }
  setTimeout(look, PERIOD_MS);
}
look();
</script>
</body>
</html>
)page";

}  // namespace crane::proxy
