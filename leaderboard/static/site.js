// Adds sorting, filtering, column choice, chart tooltips and a theme switch. Everything is on the page without it.
// The state of a view is in the address, so that it can be sent: ?grader=audited&sort.heldout-x=macro:desc&...
"use strict";

document.documentElement.classList.add("js");

const store = {
  get(key) { try { return localStorage.getItem(key); } catch { return null; } },
  set(key, value) { try { localStorage.setItem(key, value); } catch { /* private mode, or file:// without storage */ } },
};

const address = {
  values: new URLSearchParams(location.search),
  get(key) { return this.values.get(key); },
  set(key, value) {
    if (value) this.values.set(key, value); else this.values.delete(key);
    const query = this.values.toString().replaceAll("%3A", ":").replaceAll("%2C", ",");
    try { history.replaceState(null, "", location.pathname + (query ? "?" + query : "") + location.hash); } catch { /* no history here */ }
  },
};

const theme = store.get("theme");
if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function themeButton() {
  const button = document.querySelector("button.theme");
  const names = ["auto", "light", "dark"];
  const show = () => { button.textContent = "Theme: " + (document.documentElement.dataset.theme || "auto"); };
  button.addEventListener("click", () => {
    const next = names[(names.indexOf(document.documentElement.dataset.theme || "auto") + 1) % names.length];
    if (next === "auto") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = next;
    store.set("theme", next);
    show();
  });
  show();
}

// Grader and measure: radio buttons that style sheets act on. Here they only get their place in the address.
function switches() {
  for (const name of ["grader", "measure"]) {
    const radios = [...document.querySelectorAll(`input[name="${name}"]`)];
    const wanted = radios.find((radio) => radio.value === address.get(name));
    if (wanted) wanted.checked = true;
    for (const radio of radios) {
      radio.addEventListener("change", () => {
        address.set(name, radio.defaultChecked ? "" : radio.value);
        document.dispatchEvent(new Event("viewchange"));
      });
    }
  }
}

function shownPart(cell) {
  const parts = [...cell.querySelectorAll(".v")];
  return parts.find((part) => getComputedStyle(part).display !== "none") || cell;
}

function sortValue(cell) {
  if (!cell) return null;
  const part = shownPart(cell);
  const given = part.dataset.v ?? cell.dataset.v;
  let text = given;
  if (text === undefined) {
    const copy = part.cloneNode(true);
    copy.querySelectorAll("small, b").forEach((extra) => extra.remove());
    text = copy.textContent.trim();
  }
  if (text === "" || text === "–") return null;
  const plain = text.replaceAll(",", "").replace("−", "-").replace(/^[<≥+]\s*/, "");
  return /^-?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(plain) ? Number(plain) : text;
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

function enhance(box) {
  const name = box.dataset.table;
  const table = box.querySelector("table");
  const heads = [...table.querySelectorAll("thead th")];
  const bodies = [...table.tBodies];
  const rows = bodies.flatMap((body) => [...body.rows].filter((row) => !row.classList.contains("group")));
  const original = new Map(bodies.map((body) => [body, [...body.rows]]));
  let sorted = null;

  const sort = () => {
    heads.forEach((head) => head.removeAttribute("aria-sort"));
    for (const body of bodies) {
      const own = original.get(body);
      if (!sorted) { body.append(...own); continue; }
      const index = heads.findIndex((head) => head.dataset.key === sorted.key);
      const sign = sorted.down ? -1 : 1;
      const group = own.filter((row) => row.classList.contains("group"));
      const ranked = own.filter((row) => !row.classList.contains("group"))
        .map((row, place) => ({ row, place, value: sortValue(row.cells[index]) }))
        .sort((a, b) => (a.value === null) - (b.value === null)
          || (a.value === null ? 0 : sign * compare(a.value, b.value)) || a.place - b.place);
      body.append(...group, ...ranked.map((item) => item.row));
    }
    if (sorted) {
      const head = heads.find((one) => one.dataset.key === sorted.key);
      head.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
    }
  };
  const setSort = (key, down) => {
    sorted = key ? { key, down } : null;
    address.set("sort." + name, key ? `${key}:${down ? "desc" : "asc"}` : "");
    sort();
  };
  for (const head of heads) {
    const label = head.textContent.trim();
    const button = make("button", { type: "button", className: "sort" });
    button.setAttribute("aria-label", `Sort by ${label}`);
    button.addEventListener("click", () => {
      const first = head.classList.contains("num");
      if (!sorted || sorted.key !== head.dataset.key) setSort(head.dataset.key, first);
      else if (sorted.down === first) setSort(head.dataset.key, !first);
      else setSort("", false);
    });
    head.append(button);
  }

  const tools = box.querySelector(".tools");
  const output = tools.querySelector("output");
  const input = tools.querySelector("input");
  const say = () => {
    const kept = rows.filter((row) => !row.classList.contains("off")).length;
    output.textContent = [kept < rows.length || input.value.trim() ? `${kept} of ${rows.length} rows` : "",
      hidden.size ? `${hidden.size} ${hidden.size === 1 ? "column" : "columns"} hidden` : ""].filter(Boolean).join(", ");
  };
  const filter = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const text = (row.textContent + " " + (row.dataset.text || "")).toLowerCase();
      const kept = words.every((word) => text.includes(word));
      row.classList.toggle("off", !kept);
    }
    for (const body of bodies) {
      const any = [...body.rows].some((row) => !row.classList.contains("group") && !row.classList.contains("off"));
      body.classList.toggle("off", !any);
    }
    say();
  };
  input.addEventListener("input", () => { address.set("filter." + name, input.value.trim()); filter(); });

  const choices = tools.querySelector(".choices");
  const keys = new Set(heads.slice(1).map((head) => head.dataset.key));
  const hidden = new Set((address.get("hide." + name) || "").split(",").filter((key) => keys.has(key)));
  const columns = () => {
    heads.forEach((head, index) => {
      const off = hidden.has(head.dataset.key);
      head.classList.toggle("off", off);
      rows.forEach((row) => row.cells[index]?.classList.toggle("off", off));
    });
    address.set("hide." + name, [...hidden].join(","));
    say();
  };
  for (const head of heads.slice(1)) {
    const box = make("input", { type: "checkbox", checked: !hidden.has(head.dataset.key) });
    box.addEventListener("change", () => {
      if (box.checked) hidden.delete(head.dataset.key); else hidden.add(head.dataset.key);
      columns();
    });
    choices.append(make("label", {}, box, " " + head.firstChild.textContent.trim()));
  }
  const details = choices.closest("details");
  details.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { details.open = false; details.querySelector("summary").focus(); }
  });
  // A click on a label moves the focus to nowhere for a moment: close only when it has gone somewhere else.
  details.addEventListener("focusout", (event) => {
    if (event.relatedTarget && !details.contains(event.relatedTarget)) details.open = false;
  });
  document.addEventListener("pointerdown", (event) => {
    if (!details.contains(event.target)) details.open = false;
  });

  const wanted = /^(.+):(asc|desc)$/.exec(address.get("sort." + name) || "");
  if (wanted && heads.some((head) => head.dataset.key === wanted[1])) {
    sorted = { key: wanted[1], down: wanted[2] === "desc" };
    sort();
  }
  if (address.get("filter." + name)) { input.value = address.get("filter." + name); filter(); }
  if (hidden.size) columns();
  document.addEventListener("viewchange", () => { if (sorted) sort(); });
}

// Tooltips. The drawing of curves holds the data, and data-axes says how pixels become values. Where x is a place (N, a
// bin) or points have names, the tooltip reads a row of the table behind the figure.
function points(group) {
  const path = group.querySelector(".line")?.getAttribute("d") || "";
  const numbers = path.match(/-?\d*\.?\d+/g) || [];
  const out = [];
  for (let i = 0; i + 1 < numbers.length; i += 2) out.push([Number(numbers[i]), Number(numbers[i + 1])]);
  return out;
}

// Where a tooltip can stand, from left to right: { x, y, say() -> [heading, [label, value], ...] }, pixels of the drawing.
function stopsOfCurves(svg) {
  const [x0, x1, px0, px1, y0, y1, py0, py1, scale, digits] = svg.dataset.axes.split(" ").map(Number);
  const toX = (px) => x0 + (px - px0) / (px1 - px0) * (x1 - x0);
  const toY = (py) => y0 + (py - py0) / (py1 - py0) * (y1 - y0);
  const curves = [...svg.querySelectorAll("g[data-label]")].map((g) => ({ label: g.dataset.label, points: points(g) }))
    .filter((curve) => curve.points.length > 1);
  const say = (x) => {
    // A curve that ended before, or left the panel, has nothing to say here.
    const near = curves.map(({ label, points }) => ({
      label, point: points.reduce((a, b) => (Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a)),
    })).filter(({ point }) => Math.abs(point[0] - x) < (px1 - px0) / 8);
    return [svg.dataset.x + " " + Number(toX(x).toPrecision(3)).toLocaleString("en"),
      ...near.map(({ label, point }) => [label, (scale * toY(point[1])).toFixed(digits)])];
  };
  const xs = new Set(curves.flatMap((curve) => curve.points.map(([x]) => x)));
  return [...xs].sort((a, b) => a - b).map((x) => ({ x, say: () => say(x) }));
}

function stopsOfRows(svg, table) {
  const heads = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
  const places = (svg.dataset.points ?? svg.dataset.rows).split(" ").filter(Boolean).map((place) => place.split(",").map(Number));
  return places.map(([x, y], index) => ({ x, y, say: () => {
    const texts = [...table.tBodies[0].rows[index].cells].map((cell) => cell.textContent);
    const lines = texts.map((text, column) => [heads[column], text]).slice(1).filter(([, text]) => text !== "–");
    return [(svg.dataset.points === undefined ? heads[0] + " " : "") + texts[0], ...lines];
  } }));
}

function tooltip(svg) {
  const panel = svg.closest(".panel");
  const stops = svg.dataset.axes ? stopsOfCurves(svg) : stopsOfRows(svg, panel.querySelector("table"));
  if (!stops.length) return;
  const tip = make("div", { className: "tip", hidden: true });
  tip.setAttribute("aria-live", "polite");
  panel.append(tip);
  const cursor = document.createElementNS("http://www.w3.org/2000/svg", "path");
  cursor.setAttribute("class", "cursor");
  svg.append(cursor);
  const { width, height } = svg.viewBox.baseVal;
  let shown = -1;
  const hide = () => { shown = -1; tip.hidden = true; cursor.removeAttribute("d"); };
  const show = (index) => {
    if (index === shown) return;
    shown = index;
    const stop = stops[index];
    const [heading, ...lines] = stop.say();
    tip.replaceChildren(make("b", {}, heading), ...lines.map(([label, value]) => make("div", {}, label + " ", make("span", {}, value))));
    cursor.setAttribute("d", `M${stop.x} 10V${height - 40}`);
    tip.hidden = false;
    const frame = svg.getBoundingClientRect();
    const own = panel.getBoundingClientRect();
    const at = frame.left - own.left + stop.x * frame.width / width;
    tip.style.left = Math.max(4, at + 14 + tip.offsetWidth > own.width ? at - tip.offsetWidth - 14 : at + 14) + "px";
    tip.style.top = frame.top - own.top + 6 + "px";
  };
  svg.addEventListener("pointermove", (event) => {
    const frame = svg.getBoundingClientRect();
    const x = (event.clientX - frame.left) * width / frame.width;
    const y = (event.clientY - frame.top) * height / frame.height;
    const away = stops.map((stop) => Math.hypot(stop.x - x, stop.y === undefined ? 0 : stop.y - y));
    const index = away.indexOf(Math.min(...away));
    if (away[index] < width / 8) show(index); else hide();
  });
  svg.addEventListener("pointerleave", hide);
  svg.tabIndex = 0;
  svg.addEventListener("focus", () => { if (svg.matches(":focus-visible")) show(stops.length - 1); });
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const last = stops.length - 1;
    const next = { ArrowLeft: Math.max(0, shown - 1), ArrowRight: Math.min(last, shown + 1), Home: 0, End: last }[event.key];
    if (event.key === "Escape") hide();
    if (next === undefined) return;
    event.preventDefault();
    show(next);
  });
}

document.addEventListener("DOMContentLoaded", () => {
  themeButton();
  switches();
  document.querySelectorAll(".tablebox.long").forEach(enhance);
  document.querySelectorAll("svg:is([data-axes], [data-rows], [data-points])").forEach(tooltip);
});
