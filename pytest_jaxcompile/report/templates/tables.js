const CHUNK = 50;
const tables = {
  functions: { sort: "seconds", down: true, filter: "", rows: CHUNK },
  tests: { sort: "spent", down: true, filter: "", rows: CHUNK },
  compilations: { sort: "start", down: false, filter: "", rows: CHUNK },
};
const whyText = (item) => (item.reasons.length ? item.reasons.map(reasonText).join("; ") : "first compilation");
const searchable = new Map();

const COLUMNS = {
  functions: [
    { key: "name", title: "function", of: (f) => f.qualname, cell: functionCell },
    { key: "compilations", title: "compilations", number: true, of: (f) => f.compilations },
    { key: "again", title: "again", number: true, of: (f) => f.again },
    { key: "disk", title: "disk hits", number: true, wide: true, of: (f) => f.disk },
    { key: "seconds", title: "time", number: true, of: (f) => f.seconds, cell: (f) => timeCell(f.seconds, largest.functions) },
    { key: "why", title: "first reasons", of: (f) => (f.reasons[0] ? f.reasons[0][0] : ""), cell: (f) => make("td", {}, ...f.reasons.map(([kind, n]) => kindLabel(kind, n))) },
    { key: "defined", title: "defined at", wide: true, of: (f) => f.defined ?? "", mono: true },
  ],
  tests: [
    { key: "id", title: "test", of: (o) => o.id, cell: (o) => make("td", { class: "text" }, make("button", { type: "button", class: "link name", text: o.id, onclick: () => narrow({ owner: o }) })) },
    { key: "outcome", title: "outcome", of: (o) => o.outcome ?? "", cell: outcomeCell },
    { key: "compilations", title: "compilations", number: true, of: (o) => o.items.length },
    { key: "again", title: "again", number: true, of: (o) => o.again },
    { key: "spent", title: "compile time", number: true, of: (o) => o.spent, cell: (o) => timeCell(o.spent, largest.tests) },
    { key: "seconds", title: "test time", number: true, wide: true, of: (o) => o.seconds ?? 0, cell: (o) => make("td", { class: "num wide", text: o.seconds === null ? "" : duration(o.seconds) }) },
  ],
  compilations: [
    { key: "start", title: "when", number: true, of: (i) => i.start, cell: whenCell },
    { key: "name", title: "function and signature", of: (i) => i.f.qualname, cell: signatureCell },
    { key: "why", title: "why", of: (i) => i.kind, cell: whyCell },
    { key: "seconds", title: "time", number: true, of: (i) => i.seconds, cell: (i) => timeCell(i.seconds, largest.compilations, i.disk ? "disk hit" : null) },
    { key: "line", title: "called from", wide: true, of: (i) => i.line ?? "", mono: true },
    { key: "test", title: "test", wide: true, of: (i) => i.owner.id, mono: true },
  ],
};
const WORDS = {
  functions: (f) => `${f.module}.${f.qualname} ${f.defined ?? ""} ${f.reasons.map(([kind]) => kind).join(" ")}`,
  tests: (o) => `${o.id} ${o.outcome ?? "outside tests"}`,
  compilations: (i) => `${i.f.module}.${i.f.qualname} ${text(data.signatures[i.signature][0])} ${whyText(i)} ${i.line ?? ""} ${i.owner.id} ${i.thread} ${i.worker}`,
};
const largestOf = (values) => values.reduce((a, b) => Math.max(a, b), 0) || 1;
const largest = {
  functions: largestOf(functions.map((f) => f.seconds)), tests: largestOf(owners.map((o) => o.spent)),
  compilations: largestOf(items.map((i) => i.seconds)),
};

// -- cells --------------------------------------------------------------------------

function timeCell(seconds, most, note) {
  const meter = make("span", { class: "meter" });
  meter.style.width = `${Math.max(2, (seconds / most) * 60)}px`;
  return make("td", { class: "num" }, duration(seconds), meter, note ? make("span", { class: "sub", text: note }) : null);
}

function functionCell(f) {
  return make("td", { class: "text" }, make("button", { type: "button", class: "link name", text: f.qualname, title: "Show its versions and its compilations",
    onclick: () => { chooseFunction(f, false); narrow({ f }); } }),
  make("span", { class: "beside", text: f.eager ? `${f.module}, eager op` : f.module }));
}

function outcomeCell(o) {
  const bad = o.outcome === "failed" || o.outcome === "error";
  return make("td", {}, make("span", { class: bad ? "badge bad" : "badge", text: o.outcome ?? "outside tests" }));
}

function whenCell(item) {
  const open = state.open.has(item.index);
  return make("td", { class: "num" }, make("button", { type: "button", class: "opener", "aria-expanded": String(open), "data-item": item.index,
    "aria-label": `Details of the compilation of ${item.f.qualname} at ${item.start.toFixed(2)} s` , text: open ? "▾" : "▸" }), `${item.start.toFixed(2)} s`);
}

function signatureCell(item) {
  return make("td", { class: "text" }, make("span", { class: "name" }, make("b", { text: item.f.qualname }), text(data.signatures[item.signature][0])));
}

function whyCell(item) {
  const [first, ...others] = item.reasons;
  if (!first) return make("td", {}, kindLabel("first"));
  const rest = reasonText(first).slice(first.kind.length).replace(/^:? (of )?/, "");
  return make("td", { class: "text" }, kindLabel(first.kind), rest ? make("span", { class: "sub mono", text: rest }) : null,
    others.length ? make("span", { class: "sub", text: `and ${count(others.length, "more difference")}` }) : null);
}

function plainCell(column, row) {
  const value = column.of(row);
  const names = [column.number ? "num" : "", column.wide ? "wide" : "", column.mono ? "mono" : ""].filter(Boolean).join(" ");
  return make("td", { class: names, text: typeof value === "number" ? value.toLocaleString("en") : value });
}

// -- one compilation, opened ----------------------------------------------------------

function detailRow(item) {
  const [whole, leaves, facts, more] = data.signatures[item.signature];
  const arguments_ = leaves.map((leaf) => make("li", { text: text(leaf) }));
  if (more) arguments_.push(make("li", { class: "quiet", text: `and ${count(more, "more argument")}` }));
  const left = make("div", {}, make("h4", { text: item.reasons.length ? "Difference to the nearest earlier compilation" : "Why" }),
    make("ul", {}, ...(item.reasons.length ? item.reasons.map(reasonRow) : [make("li", { class: "reason", text: `First: ${KINDS.first[3]}.` })])));
  const right = make("div", {}, make("h4", { text: "Signature" }), make("p", { class: "name", text: text(whole) }),
    make("ul", { class: "leaves", tabindex: arguments_.length > 10 ? "0" : null, "aria-label": "Arguments" }, ...arguments_, ...facts.map((fact) => make("li", { text: text(fact) }))));
  const cell = make("td", { colspan: COLUMNS.compilations.length }, make("div", { class: "detail-grid" },
    make("div", {}, left, make("h4", { text: "Where" }), whereList(item)), right));
  return make("tr", { class: "detail" }, cell);
}

function reasonRow(reason) {
  const change = reason.before === null && reason.after === null ? null
    : make("div", { class: "change" }, make("span", { class: "before", text: reason.before ?? "nothing" }), " → ", make("span", { text: reason.after ?? "nothing" }));
  return make("li", { class: "reason" }, kindLabel(reason.kind), reason.argument ? make("span", { class: "name", text: reason.argument }) : make("span", { class: "quiet", text: (KINDS[reason.kind] ?? KINDS.unknown)[3] }),
    change, reason.hint ? make("div", { class: "hint", text: reason.hint }) : null);
}

function whereList(item) {
  const list = make("dl", { class: "facts" });
  const add = (name, ...value) => list.append(make("dt", { text: name }), make("dd", {}, ...value));
  const mono = (value) => make("span", { class: "mono", text: value });
  add("called from", item.line ? mono(item.line) : "not known");
  add("defined at", item.f.defined ? mono(item.f.defined) : "not known");
  add(item.owner.outcome === null ? "outside tests" : "test",
    make("button", { type: "button", class: "link name", text: item.owner.id, onclick: () => narrow({ owner: item.owner }) }));
  add("phase", [item.phase, item.thread, item.worker].filter(Boolean).join(", "));
  add("time", `trace ${duration(item.trace)}, lower ${duration(item.lower)}, ${item.disk ? "load from disk" : "compile"} ${duration(item.compile)}`);
  return list;
}

// -- the table ------------------------------------------------------------------------

function candidates() {
  if (state.table === "functions") return functions.filter((f) => f.compilations && (state.eager || !f.eager) && (!state.kind || f.items.some((i) => i.kind === state.kind)));
  if (state.table === "tests") return owners.filter((o) => (o.outcome !== null || o.items.length) && (!state.kind || o.items.some((i) => i.kind === state.kind)));
  const pool = state.f && state.narrowed ? state.f.items : state.owner ? state.owner.items : items;
  return pool.filter((i) => (state.eager || !i.f.eager || (state.narrowed && i.f === state.f) || state.owner) && (!state.owner || i.owner === state.owner) && (!state.kind || i.kind === state.kind));
}

function words(row) {
  let found = searchable.get(row);
  if (found === undefined) searchable.set(row, (found = WORDS[state.table](row).toLowerCase()));
  return found;
}

function selection() {
  const { filter, sort, down } = tables[state.table];
  const wanted = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const column = COLUMNS[state.table].find((c) => c.key === sort);
  const compare = (a, b) => { const x = column.of(a), y = column.of(b); return x < y ? -1 : x > y ? 1 : a.index - b.index; };
  const rows = candidates().filter((row) => wanted.every((word) => words(row).includes(word)));
  return rows.sort(down ? (a, b) => compare(b, a) : compare);
}

function drawTable() {
  const settings = tables[state.table], rows = selection(), columns = COLUMNS[state.table];
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const chosen = tab.dataset.table === state.table;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
  }
  byId("panel").setAttribute("aria-labelledby", `tab-${state.table}`);
  byId("table").tHead.replaceChildren(make("tr", {}, ...columns.map((column) => heading(column, settings))));
  const body = byId("table").tBodies[0], shown = rows.slice(0, settings.rows);
  body.replaceChildren(...shown.flatMap((row) => tableRows(row, columns)));
  const seconds = rows.reduce((sum, row) => sum + (row.spent ?? row.seconds), 0);
  byId("shown").textContent = `${counted(rows)}, ${duration(seconds)} of compiling${shown.length < rows.length ? `; the first ${shown.length} are shown` : ""}`;
  const more = byId("more-rows"), left = rows.length - shown.length;
  more.hidden = left <= 0;
  more.textContent = `Show ${Math.min(left, CHUNK)} more`;
  drawChips();
}

function counted(rows) {
  if (state.table !== "tests") return count(rows.length, state.table.slice(0, -1));
  const places = rows.filter((row) => row.outcome === null).length;
  return count(rows.length - places, "test") + (places ? ` and ${count(places, "place")} outside tests` : "");
}

function heading(column, settings) {
  const sorted = settings.sort === column.key;
  const arrow = sorted ? (settings.down ? " ↓" : " ↑") : "";
  return make("th", { scope: "col", class: `${column.number ? "num" : ""} ${column.wide ? "wide" : ""}`, "aria-sort": sorted ? (settings.down ? "descending" : "ascending") : null },
    make("button", { type: "button", "data-sort": column.key, text: column.title + arrow, onclick: () => {
      settings.down = sorted ? !settings.down : Boolean(column.number) && column.key !== "start";
      settings.sort = column.key;
      drawTable();
      document.querySelector(`[data-sort="${column.key}"]`).focus();
    } }));
}

function tableRows(row, columns) {
  const opens = state.table === "compilations";
  const line = make("tr", { class: opens ? "row can-open" : "row" }, ...columns.map((column) => (column.cell ? column.cell(row) : plainCell(column, row))));
  if (opens) line.dataset.item = row.index;
  return opens && state.open.has(row.index) ? [line, detailRow(row)] : [line];
}

function drawChips() {
  const chips = [];
  const chip = (label, drop) => chips.push(make("button", { type: "button", "aria-label": `Remove the filter: ${label}`, text: `${label} ✕`, onclick: () => { drop(); drawTable(); } }));
  if (state.table === "compilations" && state.narrowed && state.f) chip(`function ${state.f.qualname}`, () => { state.narrowed = false; });
  if (state.table === "compilations" && state.owner) chip(`test ${state.owner.id}`, () => { state.owner = null; });
  if (state.kind) chip(`why: ${state.kind}`, () => { state.kind = null; drawLegend(); paint(); });
  byId("chips").replaceChildren(...chips);
}

function narrow({ f, owner }) {
  state.narrowed = f !== undefined;
  state.owner = owner ?? null;
  showTable("compilations");
}

function showTable(table) {
  state.table = table;
  byId("filter").value = tables[table].filter;
  drawTable();
}

function toggle(index) {
  if (!state.open.delete(index)) state.open.add(index);
  drawTable();
  document.querySelector(`.opener[data-item="${index}"]`)?.focus();
}

/** Show one compilation, whatever is filtered now. */
function openItem(item) {
  if (!item.f.eager) chooseFunction(item.f, false);
  else { state.f = item.f; drawVersions(); drawLanes(); }
  state.kind = null;
  drawLegend();
  paint();
  state.open.add(item.index);
  tables.compilations.filter = "";
  tables.compilations.sort = "start";
  tables.compilations.down = false;
  tables.compilations.rows = Math.max(CHUNK, item.f.items.indexOf(item) + 1);
  narrow({ f: item.f });
  const opener = document.querySelector(`.opener[data-item="${item.index}"]`);
  opener.focus({ preventScroll: true });
  opener.scrollIntoView({ block: "center" });
}

// -- start ----------------------------------------------------------------------------

function start() {
  for (const id of ["picture", "tables"]) byId(id).hidden = false;
  const advised = data.advice.length ? functions[data.advice[0][0]] : null;
  state.f = advised ?? mine[0] ?? null;
  if (!mine.length) byId("eager").checked = state.eager = true;
  drawLegend();
  buildLanes();
  drawLanes();
  drawVersions();
  drawTable();
  new ResizeObserver(paint).observe(byId("lanes"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  byId("more-lanes").addEventListener("click", () => { view.lanes += LANES; buildLanes(); drawLanes(); paint(); });
  byId("more-rows").addEventListener("click", () => { tables[state.table].rows += CHUNK; drawTable(); });
  byId("eager").addEventListener("change", (event) => { state.eager = event.target.checked; drawTable(); });
  byId("filter").addEventListener("input", (event) => { Object.assign(tables[state.table], { filter: event.target.value, rows: CHUNK }); drawTable(); });
  for (const button of document.querySelectorAll("[data-zoom]")) button.addEventListener("click", () => zoomBy(button.dataset.zoom));
  for (const button of document.querySelectorAll("[data-function]")) button.addEventListener("click", () => chooseFunction(functions[button.dataset.function], true));
  const tabs = [...document.querySelectorAll("[role=tab]")];
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => showTable(tab.dataset.table));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = tabs[(i + step + tabs.length) % tabs.length];
      showTable(next.dataset.table);
      next.focus();
    });
  });
  byId("table").addEventListener("click", (event) => {
    const row = event.target.closest("tr.can-open");
    if (!row || event.target.closest("button:not(.opener)") || String(getSelection())) return;
    toggle(Number(row.dataset.item));
  });
}

start();
