"use strict";
(() => {
  // The fields of `stage` and of each snapshot are those of harness/live/snapshot.py.
  const { many, element, niceStep, widthOf } = world;
  const UNKNOWN = "not known";
  const AGAIN_MS = 3000, OLD_S = 5, TABLE_S = 60;

  const find = id => document.getElementById(id);
  let stage = null, land = null, snapshot = null, chosen = null, map = null, at = null, cameMs = null, isOver = false;

  // ------------------------------------------------------------------------------------------------------- words

  const isKnown = value => value !== null && value !== undefined;
  const written = (value, options) => value.toLocaleString("en", options);
  const number = (value, unit = "") => !isKnown(value) ? UNKNOWN
    : written(value, value === 0 || Math.abs(value) >= 100 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 3 }) + unit;
  const seconds = value => !isKnown(value) ? UNKNOWN : `${written(Math.max(0, Math.ceil(value)))} s`;
  const named = name => name.replaceAll("_", " ");

  function percent(share) { // as in the report: never rounded to all or nothing
    if (!isKnown(share)) return UNKNOWN;
    if (share >= 0.9995 && share < 1) return "more than 99.9 %";
    if (share > 0 && share < 0.0005) return "less than 0.1 %";
    return `${written(100 * share, { maximumFractionDigits: 1 })} %`;
  }

  function exact(value) {
    if (!isKnown(value)) return UNKNOWN;
    if (typeof value !== "number") return String(value);
    return Number.isInteger(value) ? written(value) : written(value, { maximumSignificantDigits: 6 });
  }

  function say(place, text) { // what stays the same is not read to anybody again
    if (place.textContent !== text) place.textContent = text;
    if (place.tagName === "DD") place.classList.toggle("unknown", text === UNKNOWN);
  }

  const tell = (id, text) => say(find(id), text);

  function list(id, tag, items) { // items: texts, or arrays of nodes and texts
    const place = find(id), key = JSON.stringify(items.map(each => each.key ?? each));
    if (place.dataset.key === key) return;
    place.dataset.key = key;
    place.replaceChildren(...items.map(each => {
      const made = element(tag, typeof each === "string" ? each : "");
      if (typeof each !== "string") made.append(...each.parts);
      if (each.kind) made.className = each.kind;
      if (each.isNow) made.setAttribute("aria-current", "step");
      return made;
    }));
  }

  function pairs(id, entries) {
    const place = find(id), key = JSON.stringify(entries);
    if (place.dataset.key === key) return;
    place.dataset.key = key;
    place.replaceChildren(...entries.flatMap(([name, value]) =>
      [element("dt", name), element("dd", value, { class: value === UNKNOWN ? "unknown" : "" })]));
  }

  // -------------------------------------------------------------------------------------------------- the numbers

  function showVerdict() {
    const { ended, reasons, run } = snapshot, isJudged = Boolean(ended) && ended.verdict !== null;
    const word = !ended ? snapshot.verdict : isJudged ? ended.verdict : ended.state;
    const kind = isJudged ? ended.verdict : ended?.state === "failed" ? "invalid"
      : ended && !reasons.length ? "" : snapshot.verdict.split(" ")[0];
    find("verdict").className = `verdict ${kind}`;
    tell("name", run.experiment);
    tell("so-far", word);
    document.title = `${word}: ${run.experiment}`;
    list("reasons", "li", reasons.map(({ severity, text }) =>
      ({ key: [severity, text], parts: [element("strong", severity), `: ${text}`] })));
    tell("why", reasons.length ? `${isJudged ? "The run is" : ended ? "Before its analysis the run is" : "If the run ended now, it would be"} `
      + `${kind}. ${reasons.length === 1 ? "The reason:" : "The reasons:"}`
      : isJudged ? "No check of the run failed." : ended?.state === "failed" ? "The run ended before it was complete."
      : "No check that can be made so far has failed.");
    const slow = run.time_dilation === 1 ? "" : `, a virtual second takes ${number(run.time_dilation)} real ones`;
    tell("facts", `Run ${run.id}, protocol ${run.protocol}, testbed ${run.testbed}, seed ${run.seed}${slow}`);
    list("remarks", "li", snapshot.remarks ?? []);
  }

  function showClock() {
    const { phase, ended } = snapshot;
    tell("phase", ended ? "ended" : phase === null ? "between two phases" : named(phase));
    tell("left", ended || phase === null ? "" : isKnown(snapshot.phase_left_s) ? `${seconds(snapshot.phase_left_s)} left`
      : "time left: not known");
    tell("now", !isKnown(snapshot.now_s) ? "The start of the workload is not known yet."
      : snapshot.now_s < 0 ? `The workload starts in ${seconds(-snapshot.now_s)}.`
      : `${written(Math.floor(snapshot.now_s))} s since the start of the workload.`);
    tell("run-left", ended ? "" : isKnown(snapshot.run_left_s) ? `${seconds(snapshot.run_left_s)} left until the last planned phase ends.`
      : "When the run will end is not known.");
    list("phases", "li", snapshot.phases.map(each =>
      ({ key: [each.name, each.state], parts: [named(each.name), element("span", `: ${each.state}`, { class: "spoken" })],
         kind: each.state, isNow: each.state === "running" })));
  }

  const JUDGED = { // the numbers beside which the limit of a check is written
    delivery_ratio: ["ratio-label", "delivered / expected"],
    plane_lateness: ["lateness-label", "lateness p99 over the workload"],
    plane_busy: ["plane-busy-label", "the data plane's share of its core"],
    cpu_busy: ["busy-label", "busy"],
    steal: ["steal-label", "taken by the hypervisor (steal)"],
  };

  function showNumbers() {
    const { peers, messages, delay_ms: delay, plane, pressure, ended } = snapshot;
    for (const name of ["up", "ready", "ended", "expected"]) tell(`peers-${name}`, number(peers[name]));
    for (const name of ["published", "delivered", "expected"]) tell(name, number(messages[name]));
    tell("ratio", percent(messages.ratio));
    find("on-way").hidden = Boolean(ended);
    tell("delay-p50", number(delay?.p50, " ms"));
    tell("delay-p99", number(delay?.p99, " ms"));
    tell("delay-of", delay ? `deliveries in the 10 s until ${number(delay.until_s)} s` : "deliveries in the last 10 s");
    tell("delay-count", number(delay?.deliveries));
    tell("lateness", number(plane?.lateness_p99_ms, " ms"));
    tell("lateness-run", number(plane?.lateness_run_p99_ms, " ms"));
    for (const [check, [id, label]] of Object.entries(JUDGED)) tell(id, `${label}${describeLimit(check)}`);
    tell("frames", number(plane?.frames_per_s));
    tell("unasked", number(plane?.unasked_drops));
    const drops = plane ? Object.entries(plane.drops) : [];
    pairs("drops", drops.length ? drops.map(([cause, count]) => [named(cause), number(count)])
      : [["drops", isKnown(plane?.unasked_drops) ? "none" : UNKNOWN]]);
    tell("pressure", percent(pressure?.cpu_some_ratio));
    tell("busy", percent(pressure?.cpu_busy_ratio));
    tell("steal", percent(pressure?.steal_ratio));
    tell("plane-busy", percent(plane?.busy_ratio));
  }

  const limitOf = check => stage?.limits.find(each => each.check === check) ?? null;

  function describeLimit(check) {
    const limit = limitOf(check);
    if (limit === null) return "";
    const bound = limit.unit === "ratio" ? percent(limit.value) : `${number(limit.value)} ${limit.unit}`;
    return ` (${limit.at_least ? "at least" : "limit"} ${bound})`;
  }

  function showEnd() {
    const { ended } = snapshot;
    find("ended").hidden = !ended;
    if (!ended) return;
    tell("outcome", { analysed: "Its analysis is complete. These numbers are final.",
                      "not analysed": "The measured part is complete. The summary and the report are not there yet.",
                      failed: "It failed before it was complete. The terminal and the logs say why." }[ended.state]);
    const lines = names => names.map(name => [name, exact(ended.headline[name])]);
    find("report").hidden = !ended.report;
    tell("report-path", ended.report ?? "");
    pairs("first-numbers", lines(ended.first));
    pairs("all-numbers", lines(Object.keys(ended.headline)));
    find("more-numbers").hidden = !Object.keys(ended.headline).length;
  }

  // --------------------------------------------------------------------------------------------------- the charts

  const CHARTS = [
    { title: "Messages", unit: " per second", series: [
      { name: "published", colour: "purple", of: each => each.published },
      { name: "delivered", colour: "blue", of: each => each.delivered }] },
    { title: "Delay of deliveries", unit: " ms", series: [
      { name: "p50", colour: "blue", of: each => each.delay_p50_ms },
      { name: "p99", colour: "orange", of: each => each.delay_p99_ms }] },
    { title: "Lateness of the data plane", unit: " ms", check: "plane_lateness", series: [
      { name: "p99", colour: "purple", of: each => each.lateness_p99_ms }] },
    { title: "Processors", unit: " %", top: 100, series: [
      { name: "CPU pressure, or the busy share", colour: "green", of: each => isKnown(each.cpu_ratio) ? 100 * each.cpu_ratio : null }] },
  ];
  const HEIGHT = 170, LEFT = 46, RIGHT = 8, TOP = 8, BOTTOM = 24, GAP_S = 1.5, TICK = { maximumSignificantDigits: 6 };

  function svg(tag, attributes = {}) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  }

  function write(text, attributes) {
    const made = svg("text", attributes);
    made.textContent = text;
    return made;
  }

  function beginCharts() {
    for (const chart of CHARTS) {
      const figure = element("figure"), box = element("div"), key = element("ul", "", { class: "key" });
      chart.svg = svg("svg", { role: "img" });
      for (const each of chart.series) {
        const item = element("li", "", { class: each.colour });
        each.now = element("b");
        item.append(element("i"), `${each.name} `, each.now);
        key.append(item);
      }
      box.append(chart.svg);
      const caption = element("figcaption");
      caption.append(key);
      figure.append(element("h3", chart.title), box, caption);
      find("charts").append(figure);
      chart.svg.addEventListener("pointermove", event => point(chart, event));
      chart.svg.addEventListener("pointerdown", event => point(chart, event));
      chart.svg.addEventListener("pointerleave", () => { at = null; showCharts(); });
    }
    const head = find("seconds").querySelector("thead tr");
    head.append(...CHARTS.flatMap(chart => chart.series.map(each =>
      element("th", `${chart.title}: ${each.name}, ${chart.unit.trim()}`, { class: "number" }))));
  }

  function point(chart, event) {
    if (!chart.time) return;
    const time = chart.time(event.clientX - chart.svg.getBoundingClientRect().left);
    at = snapshot.history.reduce((best, each) =>
      best === null || Math.abs(each.at_s - time) < Math.abs(best - time) ? each.at_s : best, null);
    showCharts();
  }

  function span() { // of the time axes, in seconds: the history, and what is planned if it fits beside it
    const history = snapshot.history, first = history[0].at_s, last = history[history.length - 1].at_s;
    const planned = snapshot.phases.map(each => each.end_s).filter(isKnown).reduce((a, b) => Math.max(a, b), last);
    return [first, Math.max(last, first + 1, Math.min(planned, first + 600))];
  }

  function showCharts() {
    if (snapshot.history.length) CHARTS.forEach(drawChart);
    for (const chart of CHARTS) {
      if (!snapshot.history.length) chart.svg.replaceChildren(write("Nothing is known yet.", { x: LEFT, y: HEIGHT / 2 }));
      const shown = at === null ? snapshot.history.findLast(each => chart.series.some(line => isKnown(line.of(each))))
        : snapshot.history.find(each => each.at_s === at);
      for (const each of chart.series) {
        say(each.now, shown ? number(each.of(shown), isKnown(each.of(shown)) ? chart.unit : "") : UNKNOWN);
      }
      const when = shown ? `${at === null ? "The last of" : "Of"} second ${shown.at_s}: ` : "";
      chart.svg.setAttribute("aria-label", `${chart.title} over time. ${when}`
        + chart.series.map(each => `${each.name} ${each.now.textContent}`).join(", "));
    }
    const faults = snapshot.faults.map(({ kind, begin_s: begin, end_s: end }) =>
      `${named(kind)} from ${number(begin)} s ${isKnown(end) ? `to ${number(end)} s` : "to the end"}`);
    tell("marks", (stage && snapshot.history.length ? "Dashed lines mark the start and the end of the workload. " : "")
      + (faults.length ? `Red bands mark ${many(faults.length, "fault")}: ${faults.join(", ")}.` : ""));
    showTable();
  }

  function drawChart(chart) {
    const width = widthOf(chart.svg), [from, to] = span(), history = snapshot.history;
    const x = time => LEFT + (width - LEFT - RIGHT) * (time - from) / (to - from);
    chart.time = pixel => from + (pixel - LEFT) * (to - from) / (width - LEFT - RIGHT);
    const known = history.flatMap(each => chart.series.map(line => line.of(each))).filter(isKnown);
    const most = known.reduce((a, b) => Math.max(a, b), 0), limit = chart.check ? limitOf(chart.check) : null;
    const isNear = limit !== null && most > limit.value / 4; // otherwise it would flatten the line
    const top = chart.top ?? (Math.max(most, isNear ? limit.value : 0) * 1.08 || 1);
    const y = value => HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top;
    const drawn = [];
    for (const { begin_s: begin, end_s: end } of snapshot.faults) {
      const [low, high] = [Math.max(from, begin), Math.min(to, end ?? to)];
      if (high > low) drawn.push(svg("rect", { class: "fault", x: x(low), y: TOP, width: x(high) - x(low), height: HEIGHT - TOP - BOTTOM }));
    }
    const step = niceStep(top, 4);
    for (let value = 0; value <= top; value += step) {
      drawn.push(svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
                 write(written(value, TICK), { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }));
    }
    const wide = niceStep(to - from, (width - LEFT) / 70);
    for (let time = Math.ceil(from / wide) * wide; time <= to; time += wide) {
      drawn.push(svg("line", { class: "grid", x1: x(time), x2: x(time), y1: TOP, y2: HEIGHT - BOTTOM + 4 }),
                 write(written(time + 0, TICK), { x: x(time), y: HEIGHT - BOTTOM + 17, "text-anchor": "middle" }));
    }
    for (const time of stage ? [0, stage.duration_s] : []) {
      if (time > from && time < to) drawn.push(svg("line", { class: "mark", x1: x(time), x2: x(time), y1: TOP, y2: HEIGHT - BOTTOM }));
    }
    if (isNear) drawn.push(svg("line", { class: "limit", x1: LEFT, x2: width - RIGHT, y1: y(limit.value), y2: y(limit.value) }));
    for (const line of chart.series) drawn.push(...drawLine(history, line, x, y));
    if (at !== null) drawn.push(svg("line", { class: "cursor", x1: x(at), x2: x(at), y1: TOP, y2: HEIGHT - BOTTOM }));
    chart.svg.replaceChildren(...drawn);
  }

  function drawLine(history, line, x, y) { // seconds that follow each other are joined, one alone is a dot
    const pieces = [];
    let last = null;
    for (const each of history) {
      const value = line.of(each);
      if (!isKnown(value)) continue;
      if (last === null || each.at_s - last > GAP_S) pieces.push([]);
      pieces[pieces.length - 1].push([x(each.at_s), y(value)]);
      last = each.at_s;
    }
    return pieces.map(piece => piece.length > 1 ? svg("polyline", { class: `line ${line.colour}`, points: piece.join(" ") })
      : svg("circle", { class: `dot ${line.colour}`, cx: piece[0][0], cy: piece[0][1], r: 2.2 }));
  }

  function showTable() {
    if (!snapshot || !find("seconds").open) return;
    find("seconds").querySelector("tbody").replaceChildren(...snapshot.history.slice(-TABLE_S).reverse().map(each => {
      const row = element("tr"), values = CHARTS.flatMap(chart => chart.series.map(line => number(line.of(each))));
      row.append(...[written(each.at_s), ...values].map(value => element("td", value, { class: "number" })));
      return row;
    }));
  }

  // ------------------------------------------------------------------------------------------------ nodes and links

  const nameOf = node => `${node.name}${node.city === null ? "" : ` (${node.city})`}`;

  const draw = spots => `M${spots.map(spot => spot.map(each => each.toFixed(1)).join(" ")).join("L")}`;

  function layMap() {
    if (!stage) return;
    const drawing = find("map"), width = widthOf(drawing), nodes = stage.nodes;
    const hasPlaces = land !== null && nodes.every(each => isKnown(each.longitude) && isKnown(each.latitude));
    const laid = hasPlaces ? world.layMap(nodes, land.north, land.south, width) : world.layCircle(nodes.map((_, place) => place), width);
    drawing.setAttribute("viewBox", `0 0 ${laid.width} ${laid.height}`);
    map = { ...laid, under: svg("g"), links: svg("g"), over: svg("g"), paths: new Map() };
    drawing.replaceChildren(map.under, map.links, map.over);
    if (hasPlaces) {
      const outline = land.rings.map(ring => `${draw(ring.map(place => map.project(...place)))}Z`).join("");
      map.under.append(svg("path", { class: "land", d: outline }));
    }
    showNodes();
  }

  function showNodes() {
    const nodes = stage.nodes, size = nodes.length > 400 ? 2 : 4, marks = map.stands.map(([cx, cy]) => svg("circle", { class: "node", cx, cy, r: size }));
    if (chosen !== null) marks.push(svg("circle", { class: "ring", cx: map.stands[chosen][0], cy: map.stands[chosen][1], r: size + 5 }));
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = world.FONT;
    const names = world.placeNames(pen, map, chosen === null ? [] : [chosen], nodes.map((_, place) => place), place => nodes[place].city ?? nodes[place].name);
    map.over.replaceChildren(...marks, ...names.map(({ text, left, y }) => write(text, { x: left, y })));
    showLinks();
  }

  function showLinks() {
    if (!map || !snapshot) return;
    const links = snapshot.links ?? [], most = links.reduce((sum, each) => Math.max(sum, each.bytes), 1);
    const isChosen = each => each.a === chosen || each.b === chosen;
    map.links.replaceChildren(...[...links].sort((one, other) => isChosen(one) - isChosen(other)).map(each => {
      const share = Math.sqrt(each.bytes / most);
      return svg("path", { class: isChosen(each) ? "link chosen" : "link", d: pathOf(each),
                           "stroke-width": (0.5 + 3 * share).toFixed(2), "stroke-opacity": (0.15 + 0.6 * share).toFixed(2) });
    }));
    const bytes = links.reduce((sum, each) => sum + each.bytes, 0);
    const text = snapshot.links === null ? "Which links are in use is not known." : !links.length ? "No link carried a byte in the last seconds."
      : `${many(links.length, "link")} carried ${written(bytes)} bytes in the last seconds; the wider a line, the more. The busiest one, `
        + `${busiest(links)}, carried ${written(most)} bytes.`;
    tell("links", text);
    find("map").setAttribute("aria-label", `Map of ${many(stage.nodes.length, "node")}. ${text}`);
  }

  function pathOf({ a, b }) {
    const key = `${a} ${b}`;
    if (!map.paths.has(key)) map.paths.set(key, map.line(a, b).map(draw).join(""));
    return map.paths.get(key);
  }

  function busiest(links) {
    const { a, b } = links.reduce((one, other) => other.bytes > one.bytes ? other : one);
    return `between ${nameOf(stage.nodes[a])} and ${nameOf(stage.nodes[b])}`;
  }

  function showPlace() {
    if (chosen === null || !snapshot) return;
    const node = stage.nodes[chosen], links = snapshot.links?.filter(each => each.a === chosen || each.b === chosen);
    const use = !links ? "Its links in use are not known." : links.length ? `Links in use: ${links.length}.` : "None of its links is in use.";
    tell("place", `${nameOf(node)} runs at host ${node.host} of machine ${node.machine}. ${use}`);
  }

  function choose(node) {
    chosen = node;
    find("node").value = node === null ? "" : String(node);
    find("again").disabled = node === null;
    if (map) showNodes();
    showPlace();
    readLogs();
  }

  async function readLogs() {
    const node = chosen, place = find("logs");
    if (node === null) {
      place.hidden = true;
      for (const id of ["place", "logs-state"]) tell(id, "");
      return;
    }
    tell("logs-state", "Reading its logs.");
    let text = null;
    try {
      const answer = await fetch(`logs/${node}`);
      if (answer.ok) text = await answer.text();
    } catch { /* the server cannot be reached */ }
    if (node !== chosen) return;
    place.hidden = !text;
    place.textContent = text ?? "";
    place.scrollTop = place.scrollHeight;
    tell("logs-state", text === null ? "Its logs could not be read." : text === "" ? "Its logs are empty so far." : "The last lines of its logs:");
  }

  // --------------------------------------------------------------------------------------------------- the stream

  function take(next) {
    snapshot = next;
    cameMs = performance.now();
    isOver = Boolean(next.ended) && next.ended.state !== "not analysed";
    showVerdict();
    if (!document.hidden) show(); // a page that nobody sees takes no time from the run
  }

  function show() {
    if (snapshot) for (const part of [showClock, showNumbers, showEnd, showCharts, showLinks, showPlace]) part();
  }

  function tellConnection(text, isBroken) {
    tell("connection", text);
    find("connection").classList.toggle("broken", isBroken);
  }

  function listen() {
    const source = new EventSource("events");
    source.addEventListener("message", event => {
      take(JSON.parse(event.data));
      tellConnection(isOver ? "The run has ended: nothing changes any more." : "Live: a snapshot each second.", false);
      if (isOver) source.close();
    });
    source.addEventListener("error", () => {
      tellConnection("The connection to the run is interrupted. The page connects again by itself.", true);
      if (source.readyState === EventSource.CLOSED) setTimeout(listen, AGAIN_MS); // refused, so the browser gives up
    });
  }

  function tellAge() {
    const age_s = cameMs === null ? 0 : (performance.now() - cameMs) / 1000;
    find("age").hidden = isOver || age_s < OLD_S;
    tell("age", `These numbers are ${written(Math.floor(age_s))} s old.`);
  }

  async function read(name) {
    for (;;) {
      try {
        const answer = await fetch(name);
        if (answer.ok) return await answer.json();
      } catch { /* the server cannot be reached */ }
      await new Promise(resolve => setTimeout(resolve, AGAIN_MS));
    }
  }

  async function begin() {
    beginCharts();
    listen();
    setInterval(tellAge, 1000);
    find("node").addEventListener("change", event => choose(event.target.value === "" ? null : Number(event.target.value)));
    find("again").addEventListener("click", readLogs);
    find("seconds").addEventListener("toggle", showTable);
    find("map").addEventListener("click", event => {
      if (!map) return;
      const box = find("map").getBoundingClientRect();
      const found = world.nearest(map.stands, event.clientX - box.left, event.clientY - box.top, () => true);
      if (found !== null) choose(found);
    });
    document.addEventListener("visibilitychange", show);
    window.addEventListener("resize", () => {
      layMap();
      if (snapshot) showCharts();
    });
    [stage, land] = await Promise.all([read("stage"), read("land.json")]);
    find("node").append(...stage.nodes.map((node, place) => element("option", nameOf(node), { value: place })));
    layMap();
    show();
  }

  begin();
})();
