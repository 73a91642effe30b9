"use strict";
// Names come from the code under test and may hold markup: they reach the page through textContent alone.

const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);
const text = (index) => (index === null ? null : data.texts[index]);

const functions = data.functions.map(
  ([name, module, qualname, defined, eager, compilations, again, disk, seconds, reasons], index) => ({
    index, name, module, qualname, defined, eager, compilations, again, disk, seconds,
    reasons: Object.entries(reasons).sort((a, b) => b[1] - a[1]), items: [],
  }));
const owners = data.owners.map(([id, outcome, seconds], index) => ({
  index, id, outcome, seconds, items: [], again: 0, spent: 0,
}));
const items = data.items.map(
  ([f, signature, o, start, trace, lower, compile, disk, line, phase, thread, worker, reasons], index) => ({
    index, f: functions[f], signature, owner: owners[o], start, trace, lower, compile, disk: disk === 1,
    seconds: trace + lower + compile, line: text(line), phase: text(phase), thread: text(thread), worker: text(worker),
    kind: reasons.length ? text(reasons[0][0]) : "first",
    reasons: reasons.map(([kind, argument, before, after, hint]) => ({
      kind: text(kind), argument: text(argument), before: text(before), after: text(after), hint: text(hint),
    })),
  }));
for (const item of items) {
  item.f.items.push(item);
  item.owner.items.push(item);
  item.owner.again += item.reasons.length ? 1 : 0;
  item.owner.spent += item.seconds;
}

const KINDS = { first: ["1", "grey", "solid", "nothing of the function was compiled before: its first, a cold start, or another process"] };
Object.assign(KINDS, data.kinds);
const usedKinds = Object.keys(KINDS).filter((kind) => items.some((item) => item.kind === kind));

const state = { f: null, owner: null, kind: null, eager: false, table: "functions", open: new Set() };

/** An element with attributes and children; texts become text nodes, never markup. */
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name === "class") element.className = value;
    else if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

function duration(seconds) {
  if (seconds < 0.9995) return `${(seconds * 1000).toFixed(0)} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
}

const count = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;

function swatch(kind) {
  const [glyph, colour, texture] = KINDS[kind] ?? KINDS.unknown;
  return make("span", { class: `swatch ${colour} ${texture}`, "aria-hidden": "true", text: glyph });
}

function kindLabel(kind, times) {
  return make("span", { class: "kind", title: (KINDS[kind] ?? KINDS.unknown)[3] }, swatch(kind),
    kind === "first" ? "first" : kind, times === undefined ? null : make("span", { class: "quiet", text: String(times) }));
}

function reasonText(reason) {
  const where = reason.argument ? ` of ${reason.argument}` : "";
  const change = reason.before !== null || reason.after !== null ? `: ${reason.before} → ${reason.after}` : "";
  return `${reason.kind}${where}${change}`;
}

/** What tells the signatures of one function apart; the whole text where nothing does. */
function distinctions(signatures) {
  const parts = signatures.map((s) => [...data.signatures[s][1], ...data.signatures[s][2]]);
  const seen = new Map();
  for (const part of parts) for (const p of new Set(part)) seen.set(p, (seen.get(p) ?? 0) + 1);
  return signatures.map((s, i) => {
    const own = parts[i].filter((p) => seen.get(p) < signatures.length).map(text);
    return own.length && own.length <= 8 ? own.join(", ") : text(data.signatures[s][0]);
  });
}

function chooseFunction(f, from) {
  state.f = f;
  drawVersions();
  drawLanes();
  if (from) byId("versions").scrollIntoView({ block: "nearest" });
}
