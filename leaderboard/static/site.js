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
  const filter = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      const text = (row.textContent + " " + (row.dataset.text || "")).toLowerCase();
      const kept = words.every((word) => text.includes(word));
      row.classList.toggle("off", !kept);
      count += kept;
    }
    for (const body of bodies) {
      const any = [...body.rows].some((row) => !row.classList.contains("group") && !row.classList.contains("off"));
      body.classList.toggle("off", !any);
    }
    output.textContent = words.length ? `${count} of ${rows.length} rows` : "";
  };
  input.addEventListener("input", () => { address.set("filter." + name, input.value.trim()); filter(); });

  const choices = tools.querySelector(".choices");
  const hidden = new Set((address.get("hide." + name) || "").split(",").filter(Boolean));
  const columns = () => {
    heads.forEach((head, index) => {
      const off = hidden.has(head.dataset.key);
      head.classList.toggle("off", off);
      rows.forEach((row) => row.cells[index]?.classList.toggle("off", off));
    });
    address.set("hide." + name, [...hidden].join(","));
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

// Tooltips: the drawing itself holds the data, and data-axes says how pixels become values.
function points(group) {
  const path = group.querySelector(".line")?.getAttribute("d") || "";
  const numbers = path.match(/-?\d*\.?\d+/g) || [];
  const out = [];
  for (let i = 0; i + 1 < numbers.length; i += 2) out.push([Number(numbers[i]), Number(numbers[i + 1])]);
  return out;
}

function tooltip(svg) {
  const [x0, x1, px0, px1, y0, y1, py0, py1, scale, digits] = svg.dataset.axes.split(" ").map(Number);
  const groups = [...svg.querySelectorAll("g[data-label]")].map((g) => ({ label: g.dataset.label, points: points(g) }))
    .filter((group) => group.points.length > 1);
  if (!groups.length) return;
  const panel = svg.closest(".panel");
  const tip = make("div", { className: "tip", hidden: true });
  tip.setAttribute("aria-hidden", "true");
  panel.append(tip);
  const cursor = document.createElementNS("http://www.w3.org/2000/svg", "path");
  cursor.setAttribute("class", "cursor");
  svg.append(cursor);
  const toX = (px) => x0 + (px - px0) / (px1 - px0) * (x1 - x0);
  const toY = (py) => y0 + (py - py0) / (py1 - py0) * (y1 - y0);
  const hide = () => { tip.hidden = true; cursor.removeAttribute("d"); };
  svg.addEventListener("pointermove", (event) => {
    const frame = svg.getBoundingClientRect();
    const at = (event.clientX - frame.left) * svg.viewBox.baseVal.width / frame.width;
    if (at < px0 - 4 || at > px1 + 4) { hide(); return; }
    // A curve that ended before, or left the panel, has nothing to say here.
    const near = groups.map(({ label, points }) => ({
      label, point: points.reduce((a, b) => (Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a)),
    })).filter(({ point }) => Math.abs(point[0] - at) < (px1 - px0) / 8);
    if (!near.length) { hide(); return; }
    const x = near.reduce((a, b) => (Math.abs(b.point[0] - at) < Math.abs(a.point[0] - at) ? b : a)).point[0];
    tip.replaceChildren(make("b", {}, svg.dataset.x + " " + Number(toX(x).toPrecision(3)).toLocaleString("en")));
    for (const { label, point } of near) {
      tip.append(make("div", {}, label + " ", make("span", {}, (scale * toY(point[1])).toFixed(digits))));
    }
    cursor.setAttribute("d", `M${x} ${py1}V${py0}`);
    tip.hidden = false;
    const own = panel.getBoundingClientRect();
    const left = event.clientX - own.left + 14;
    tip.style.left = Math.max(4, left + tip.offsetWidth > own.width ? left - tip.offsetWidth - 28 : left) + "px";
    tip.style.top = frame.top - own.top + 6 + "px";
  });
  svg.addEventListener("pointerleave", hide);
}

document.addEventListener("DOMContentLoaded", () => {
  themeButton();
  switches();
  document.querySelectorAll(".tablebox.long").forEach(enhance);
  document.querySelectorAll("svg.chart[data-axes]").forEach(tooltip);
});
