// Draws the charts of a page with uPlot. Values are read by hover, touch and arrow keys. A click or
// Enter opens the page of a column's period, and dragging that of several columns.
"use strict";

const DAY_S = 86400;
const TIME_STEPS_S = [60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
  ...[1, 2, 5, 10, 30, 90, 365].map((days) => days * DAY_S)];
const WHOLE_STEPS = Array.from({ length: 45 }, (_, at) => [1, 2, 5][at % 3] * 10 ** Math.floor(at / 3));
const drawn = new Map(); // plots by their elements
const digits = (value) => String(+value.toPrecision(3));

function short(value, unit) {
  if (unit === "ms") {
    if (value < 999.5) return `${digits(value)} ms`;
    return value < 120000 ? `${digits(value / 1000)} s` : `${digits(value / 60000)} min`;
  }
  for (const [least, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (value >= least * 0.9995) return `${digits(value / least)}${letter} ${unit}`.trim();
  }
  return `${digits(value)} ${unit}`.trim();
}

function exact(value, unit) {
  if (value === null || value === undefined) return "not measured";
  if (unit === "ms") return short(value, unit);
  return `${value.toLocaleString("en", { maximumFractionDigits: 2 })} ${unit}`.trim();
}

// -- Times in the zone of the page

function clock(atS, zone) {
  const at = uPlot.tzDate(new Date(atS * 1000), zone);
  const two = (number) => String(number).padStart(2, "0");
  const time = `${two(at.getHours())}:${two(at.getMinutes())}`;
  return {
    time,
    day: at.toLocaleString("en-GB", { day: "numeric", month: "short" }),
    field: `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}T${time}`,
    year: at.getFullYear(),
  };
}

function period(sinceS, untilS, zone) {
  const [first, last] = [clock(sinceS, zone), clock(untilS, zone)];
  const day = `${first.day} ${first.year}`;
  if (first.time === "00:00" && last.time === "00:00" && untilS - sinceS < 1.2 * DAY_S) return day;
  return `${day}, ${first.time} to ${first.day === last.day ? "" : `${last.day} `}${last.time}`;
}

function follow(address, sinceS, untilS, zone) {
  if (!address) return;
  const url = new URL(address, location.href);
  url.searchParams.set("since", clock(sinceS, zone).field);
  url.searchParams.set("until", clock(untilS, zone).field);
  location.assign(url);
}

// -- What uPlot draws

function middles({ borders, step }) {
  const xs = borders.slice(0, -1).map((since) => since + step / 2);
  // The first column may be the rest of an hour, and is drawn as wide as the others.
  if (xs.length > 1 && borders[1] - borders[0] < step) xs[0] = borders[1] - step / 2;
  return xs;
}

// The highest sum first: the lower ones are drawn over it.
function stacked(values) {
  const sums = [];
  for (const series of values) {
    const below = sums[0];
    sums.unshift(series.map((value, at) => (value ?? 0) + (below ? below[at] : 0)));
  }
  return sums;
}

// Which values get a dot where all dots would be too dense: those without a neighbour, of which no
// line could be seen. `null`: as uPlot has decided.
function alone(plot, at, isShown) {
  const isGap = (value) => value === null || value === undefined;
  const found = plot.data[at].map((value, x, all) => (isGap(value) || !isGap(all[x - 1]) || !isGap(all[x + 1]) ? -1 : x));
  return isShown ? null : found.filter((x) => x >= 0);
}

function seriesOf(data, colours, quiet) {
  const bars = uPlot.paths.bars({ size: [0.86, 90] });
  const found = colours.map((colour) => (data.kind === "bars"
    ? { fill: colour, paths: bars, points: { show: false } }
    : { stroke: colour, width: 1.6, points: { size: 5, fill: colour, filter: alone } }));
  if (data.kind === "bars") found.reverse();
  if (data.earlier.length) found.push({ stroke: quiet, width: 1.4, dash: [4, 3], points: { show: false, filter: alone } });
  return found;
}

function axesOf(data, quiet, line) {
  const usual = { stroke: quiet, font: "11px system-ui, sans-serif", ticks: { show: false } };
  const label = (at, isDay) => (isDay || at.time === "00:00" ? at.day : at.time);
  const days = (plot, splits, axis, space, incr) => splits.map((atS) => label(clock(atS, data.zone), incr >= DAY_S));
  return [
    { ...usual, grid: { show: false }, incrs: TIME_STEPS_S, space: 64, size: 26, values: days },
    {
      ...usual,
      grid: { stroke: line, width: 1 },
      size: 58,
      values: (plot, splits) => splits.map((value) => short(value, data.unit)),
      ...(data.unit ? {} : { incrs: WHOLE_STEPS }),
    },
  ];
}

function optionsOf(figure, data, xs) {
  const colourOf = (element, name) => () => getComputedStyle(element)[name];
  const marks = figure.querySelectorAll(".legend li:not(.earlier)");
  const quiet = colourOf(figure.querySelector(".legend"), "color");
  const ends = [xs[0] - data.step / 2, xs.at(-1) + data.step / 2];
  return {
    ...sizeOf(figure.querySelector(".plot")),
    legend: { show: false },
    padding: [10, 26, 0, 0],
    tzDate: (atS) => uPlot.tzDate(new Date(atS * 1000), data.zone),
    cursor: { y: false, drag: { x: Boolean(data.zooms), y: false, setScale: false }, points: { show: data.kind === "lines" } },
    scales: {
      x: { range: () => ends },
      y: { range: (plot, least, most) => [0, data.unit === "%" ? 100 : Math.max(most * 1.04, data.unit ? 0 : 1) || 1] },
    },
    series: [{}, ...seriesOf(data, [...marks].map((mark) => colourOf(mark, "color")), quiet)],
    axes: axesOf(data, quiet, colourOf(figure, "borderTopColor")),
  };
}

function sizeOf(element) {
  return { width: element.clientWidth, height: element.classList.contains("wide") ? 260 : 200 };
}

// -- Reading values

function readout(figure, data) {
  const box = document.createElement("div");
  const names = [...figure.querySelectorAll(".legend li")];
  box.className = "readout";
  box.hidden = true;
  const show = (at, left, width) => {
    box.hidden = at === null || at === undefined;
    if (box.hidden) return "";
    const title = period(data.borders[at], data.borders[at + 1], data.zone);
    const rows = names.map((name, number) => {
      const row = name.cloneNode(true);
      const values = data.values[number] ?? data.earlier;
      row.firstElementChild.append(`: ${exact(values[at], data.unit)}`);
      return row;
    });
    box.replaceChildren(Object.assign(document.createElement("strong"), { textContent: title }), ...rows);
    box.style.left = left < width / 2 ? `${left + 70}px` : "auto";
    box.style.right = left < width / 2 ? "auto" : `${width - left + 26}px`;
    return [title, ...rows.map((row) => row.textContent)].join(", ");
  };
  return { box, show };
}

function makeReadable(element, data, plot, xs) {
  const open = (at) => { if (at in xs) follow(data.opens, data.borders[at], data.borders[at + 1], data.zone); };
  const move = (left) => plot.setCursor({ left, top: 20 });
  let pressed = { x: 0, at: null, isTouch: false };
  plot.over.addEventListener("pointerdown", (event) => {
    pressed = { x: event.clientX, at: plot.cursor.idx, isTouch: event.pointerType === "touch" };
  });
  for (const kind of ["pointerdown", "pointermove"]) {
    plot.over.addEventListener(kind, (event) => {
      if (event.pointerType === "touch") move(event.clientX - plot.over.getBoundingClientRect().left);
    });
  }
  plot.over.addEventListener("click", (event) => {
    const at = plot.cursor.idx;
    // The end of a drag is a click, too. The first touch of a column shows its values alone.
    const isDrag = Math.abs(event.clientX - pressed.x) > 5;
    if (!isDrag && !(pressed.isTouch && pressed.at !== at)) open(at);
  });
  element.addEventListener("keydown", (event) => {
    const at = plot.cursor.idx ?? xs.length;
    const places = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: xs.length - 1 };
    if (event.key === "Enter") open(at);
    if (event.key === "Escape") move(-10);
    if (!(event.key in places)) return;
    event.preventDefault();
    move(plot.valToPos(xs[Math.min(Math.max(places[event.key], 0), xs.length - 1)], "x"));
  });
  element.addEventListener("blur", () => move(-10));
}

function draw(figure) {
  const element = figure.querySelector(".plot");
  const data = JSON.parse(figure.querySelector("script").textContent);
  if (data.borders.length < 2) return;
  const xs = middles(data);
  const { box, show } = readout(figure, data);
  const values = data.kind === "bars" ? stacked(data.values) : data.values;
  const earlier = data.earlier.length ? [xs.map((_, at) => data.earlier[at] ?? null)] : [];
  const plot = new uPlot(optionsOf(figure, data, xs), [xs, ...values, ...earlier], element);
  const last = xs.length - 1;
  Object.assign(element, { tabIndex: 0, role: "slider", ariaValueMin: 0, ariaValueMax: last, ariaValueNow: last, ariaValueText: "Arrow keys read the values." });
  element.classList.toggle("opens", Boolean(data.opens));
  element.append(box);
  (plot.hooks.setCursor ??= []).push(() => {
    const text = show(plot.cursor.idx, plot.cursor.left, plot.over.clientWidth);
    if (text) Object.assign(element, { ariaValueText: text, ariaValueNow: plot.cursor.idx });
  });
  (plot.hooks.setSelect ??= []).push(({ select }) => {
    if (select.width < 6) return;
    const [from, to] = [select.left, select.left + select.width].map((left) => plot.posToIdx(left));
    follow(data.zooms, data.borders[from], data.borders[to + 1], data.zone);
  });
  makeReadable(element, data, plot, xs);
  new ResizeObserver(() => plot.setSize(sizeOf(element))).observe(element);
  drawn.set(element, plot);
}

function drawAll() {
  for (const element of drawn.keys()) if (!element.isConnected) drawn.delete(element);
  for (const figure of document.querySelectorAll("figure.chart")) {
    if (!drawn.has(figure.querySelector(".plot"))) draw(figure);
  }
}

const redraw = () => drawn.forEach((plot) => plot.redraw());
new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
document.addEventListener("replaced", drawAll);
drawAll();
