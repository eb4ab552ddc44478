"use strict";
// Draws the charts of a report from the data that stands in the page. No library, no network.
(() => {
  const NS = "http://www.w3.org/2000/svg";
  const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#999999"];
  const WIDTH = 1060, HEIGHT = 300, LEFT = 58, RIGHT = 14, TOP = 12, BOTTOM = 30;
  const DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.append(tip);

  const shape = (name, attributes, parent) => {
    const made = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (parent) parent.append(made);
    return made;
  };
  const number = (value) => {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    return value.toLocaleString("en", { maximumFractionDigits: size >= 100 ? 0 : size >= 1 ? 1 : 3 });
  };
  const ticks = (low, high, count) => {
    const raw = (high - low || 1) / count, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw) || raw;
    const found = [];
    for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(at);
    return found;
  };
  const LABELS = {
    time: (x) => new Date(x).toISOString().slice(0, 16).replace("T", " "),
    elapsed: (x) => `day ${Math.floor(x / 864e5)} ${String(Math.floor(x / 36e5) % 24).padStart(2, "0")}h`,
    week: (x) => `${DAYS[Math.floor(x / 24) % 7]} ${String(Math.floor(x) % 24).padStart(2, "0")}h`,
    weekless: (x) => `day ${Math.floor(x / 24) + 1} ${String(Math.floor(x) % 24).padStart(2, "0")}h`,
    plain: number,
  };
  const axisTicks = (kind, low, high) => {
    if (kind === "week" || kind === "weekless") {
      return [0, 24, 48, 72, 96, 120, 144].map((x) => [x, kind === "week" ? DAYS[x / 24] : `day ${x / 24 + 1}`]);
    }
    if (kind === "time" || kind === "elapsed") {
      const days = Math.max(1, Math.ceil((high - low) / 864e5 / 9)), step = high - low > 2 * 864e5 ? days * 864e5 : 6 * 36e5;
      const found = [];
      for (let at = Math.ceil(low / step) * step; at <= high; at += step) {
        const label = LABELS[kind](at);
        found.push([at, step >= 864e5 ? (kind === "time" ? label.slice(5, 10) : label.split(" ").slice(0, 2).join(" ")) : label]);
      }
      return found;
    }
    return ticks(low, high, 8).map((at) => [at, number(at)]);
  };

  function draw(card, chart) {
    const state = { from: chart.x[0], to: chart.x[chart.x.length - 1], hidden: new Set(), drag: null };
    const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": chart.title });
    card.append(svg);
    const legend = document.createElement("div");
    legend.className = "legend";
    card.append(legend);
    const colour = (series, at) => series.colour || PALETTE[at % PALETTE.length];
    chart.series.forEach((series, at) => {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", "true");
      const swatch = document.createElement("i");
      swatch.style.background = colour(series, at);
      button.append(swatch, series.name);
      button.onclick = () => {
        state.hidden.has(at) ? state.hidden.delete(at) : state.hidden.add(at);
        button.setAttribute("aria-pressed", String(!state.hidden.has(at)));
        paint();
      };
      legend.append(button);
    });
    const toX = (x) => LEFT + ((x - state.from) / (state.to - state.from || 1)) * (WIDTH - LEFT - RIGHT);
    const visible = () => chart.series.map((series, at) => [series, at]).filter(([, at]) => !state.hidden.has(at));
    const inside = (at) => chart.x[at] >= state.from && chart.x[at] <= state.to;
    const rowOf = (x) => {
      let low = 0, high = chart.x.length - 1;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        chart.x[middle] <= x ? (low = middle) : (high = middle - 1);
      }
      return low;
    };

    function paint() {
      svg.replaceChildren();
      let top = 0;
      for (const [series] of visible()) {
        for (let at = 0; at < chart.x.length; at++) {
          if (inside(at)) top = Math.max(top, series.values[at] ?? 0, (series.high || [])[at] ?? 0);
        }
      }
      top = (top || 1) * 1.05;
      const toY = (y) => HEIGHT - BOTTOM - (y / top) * (HEIGHT - TOP - BOTTOM);
      for (const y of ticks(0, top, 5)) {
        shape("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: toY(y), y2: toY(y), stroke: "var(--line)" }, svg);
        shape("text", { x: LEFT - 8, y: toY(y) + 4, "text-anchor": "end" }, svg).textContent = number(y);
      }
      for (const [x, label] of axisTicks(chart.axis, state.from, state.to)) {
        if (x < state.from || x > state.to) continue;
        shape("line", { x1: toX(x), x2: toX(x), y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 4, stroke: "var(--faint)" }, svg);
        shape("text", { x: toX(x), y: HEIGHT - BOTTOM + 18, "text-anchor": "middle" }, svg).textContent = label;
      }
      shape("text", { x: LEFT, y: TOP - 1 }, svg).textContent = chart.unit;
      for (const [series, at] of visible()) stroke(series, colour(series, at), toY);
      state.toY = toY;
    }

    function stroke(series, tint, toY) {
      const first = Math.max(rowOf(state.from) - 1, 0), last = Math.min(rowOf(state.to) + 1, chart.x.length - 1);
      const path = (values) => {
        let text = "", pen = "M", before = null;
        for (let at = first; at <= last; at++) {
          const value = values[at];
          if (value === null || value === undefined) { pen = "M"; before = null; continue; }
          const x = Math.min(Math.max(toX(chart.x[at]), LEFT), WIDTH - RIGHT).toFixed(1);
          if (series.step && before !== null) text += `L${x} ${before}`;
          before = toY(value).toFixed(1);
          text += `${pen}${x} ${before}`;
          pen = "L";
        }
        return text;
      };
      if (series.high) {
        const up = path(series.high), down = path(series.values).replace(/[ML]/g, "|").split("|").slice(1).reverse();
        shape("path", { d: `${up}L${down.join("L")}Z`, fill: tint, "fill-opacity": 0.22 }, svg);
        return;
      }
      const line = path(series.values);
      if (series.fill && line) {
        const x0 = toX(Math.max(chart.x[first], state.from)), x1 = toX(Math.min(chart.x[last], state.to));
        shape("path", { d: `${line}L${x1} ${toY(0)}L${x0} ${toY(0)}Z`, fill: tint, "fill-opacity": 0.18 }, svg);
      }
      const dash = series.dash ? { "stroke-dasharray": "6 4" } : {};
      shape("path", { d: line, fill: "none", stroke: tint, "stroke-width": series.step ? 2 : 1.4, ...dash }, svg);
    }

    const xAt = (event) => {
      const box = svg.getBoundingClientRect();
      const at = ((event.clientX - box.left) / box.width) * WIDTH;
      return state.from + ((at - LEFT) / (WIDTH - LEFT - RIGHT)) * (state.to - state.from);
    };
    svg.addEventListener("pointermove", (event) => {
      const row = rowOf(Math.min(Math.max(xAt(event), state.from), state.to));
      svg.querySelectorAll(".cursor").forEach((old) => old.remove());
      const x = toX(chart.x[row]);
      shape("line", { class: "cursor", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM, stroke: "var(--faint)" }, svg);
      if (state.drag !== null) {
        const other = toX(state.drag);
        shape("rect", { class: "cursor", x: Math.min(x, other), y: TOP, width: Math.abs(x - other),
          height: HEIGHT - TOP - BOTTOM, fill: "var(--accent)", "fill-opacity": 0.12 }, svg);
      }
      tip.replaceChildren();
      const line = (text) => { const row = document.createElement("div"); row.textContent = text; tip.append(row); };
      line(LABELS[chart.axis](chart.x[row]));
      for (const [series] of visible()) {
        const high = series.high ? ` – ${number(series.high[row])}` : "";
        line(`${series.name}: ${number(series.values[row])}${high}`);
      }
      tip.hidden = false;
      tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
      tip.style.top = `${event.clientY + 14}px`;
    });
    svg.addEventListener("pointerleave", () => { tip.hidden = true; svg.querySelectorAll(".cursor").forEach((old) => old.remove()); });
    svg.addEventListener("pointerdown", (event) => { state.drag = xAt(event); });
    svg.addEventListener("pointerup", (event) => {
      const [one, two] = [state.drag, xAt(event)].sort((a, b) => a - b);
      const whole = chart.x[chart.x.length - 1] - chart.x[0];
      if (state.drag !== null && two - one > whole * 0.005) { state.from = Math.max(one, chart.x[0]); state.to = Math.min(two, chart.x[chart.x.length - 1]); }
      state.drag = null;
      paint();
    });
    svg.addEventListener("dblclick", () => { state.from = chart.x[0]; state.to = chart.x[chart.x.length - 1]; paint(); });
    paint();
  }

  const data = JSON.parse(document.getElementById("data").textContent);
  document.querySelectorAll("[data-chart]").forEach((card) => draw(card, data.charts[Number(card.dataset.chart)]));
})();
