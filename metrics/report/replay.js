(() => {
  const { many, element, niceStep, widthOf } = world;
  // A copy to its receiver, as in metrics/report/spread.py.
  const [FIRST, RELAYED, DUPLICATE, UNREAD] = [0, 1, 2, 3];
  const FACTORS = [1, 2, 5, 10, 20, 50, 100, 200, 500];
  const WATCHED_S = 8;
  const MOST_ROWS = 2000, MOST_LISTED = 1000;

  const find = id => document.getElementById(id);
  const data = JSON.parse(find("data").textContent);
  const nodes = data.nodes.map(([site, latitude, longitude]) => ({ site, latitude, longitude }));

  let message = null, chosen = null, now = 0, playing = false, factor = 1, frame = 0, before = 0;
  let colours = {}, map = null, grid = null;

  // ------------------------------------------------------------------------------------------------------- words

  const nameOf = node => node === null ? "an unknown node" : `node ${node} (${nodes[node].site})`;
  const ms = (time, digits = 1) =>
    time === null ? "not known" : `${time.toLocaleString("en", { maximumFractionDigits: digits })} ms`;

  // ------------------------------------------------------------------------------------------------- the message

  function prepare(given) {
    const inMs = time => time === null ? null : time / 1000;
    const copies = [];
    for (const [src, dst, sent, left, came, read, role] of given.copies) {
      const copy = { src, dst, sent: inMs(sent), left: inMs(left), came: inMs(came), read: inMs(read), role };
      copy.from = copy.sent ?? copy.left ?? copy.came ?? copy.read;
      if (copy.from === null) continue;
      copy.to = role === UNREAD ? null : Math.max(copy.read, copy.from);
      copy.timed = copy.sent !== null || copy.left !== null; // programs report copies when they read them
      copies.push(copy);
    }
    const expected = new Map(given.expected.map(([node, delivered, direct, known]) =>
      [node, { delivered: inMs(delivered), direct: inMs(direct), known: Boolean(known) }]));
    const firsts = new Map();
    for (const copy of copies) { // of several, the one that was read first, as in metrics/report/spread.py
      if (copy.role !== FIRST && copy.role !== RELAYED) continue;
      const other = firsts.get(copy.dst);
      if (!other || copy.read < other.read) firsts.set(copy.dst, copy);
    }
    const reached = new Map();
    if (given.publisher !== null) reached.set(given.publisher, 0);
    for (const [node, copy] of firsts) if (!reached.has(node)) reached.set(node, copy.to);
    for (const [node, { delivered }] of expected) {
      if (delivered !== null && !reached.has(node)) reached.set(node, delivered);
    }
    const touched = new Set([...reached.keys(), ...expected.keys()]);
    for (const copy of copies) touched.add(copy.src).add(copy.dst);
    const order = [...touched].sort((a, b) =>
      (b === given.publisher) - (a === given.publisher)
      || (reached.get(a) ?? Infinity) - (reached.get(b) ?? Infinity) || a - b);
    const rising = values => values.filter(value => value !== null).sort((a, b) => a - b);
    const delivered = rising([...expected.values()].map(each => each.delivered));
    const ends = rising(copies.map(copy => copy.to));
    const arrivals = rising([...reached.values()]);
    const last = Math.max(0.001, ...[delivered, ends, arrivals].map(each => each[each.length - 1] ?? 0),
      copies.reduce((latest, copy) => Math.max(latest, copy.from), 0));
    const sent = rising(copies.filter(copy => copy.to !== null).map(copy => copy.from));
    const unread = rising(copies.filter(copy => copy.to === null).map(copy => copy.from));
    return { ...given, touched, copies, expected, firsts, reached, order, delivered, ends, arrivals, sent, unread, last,
             end: last * 1.02, stops: [...new Set([0, ...arrivals, ...delivered, last])].sort((a, b) => a - b) };
  }

  function upTo(rising, time) {
    let [low, high] = [0, rising.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (rising[middle] <= time) low = middle + 1; else high = middle;
    }
    return low;
  }

  function pathTo(node) {
    const path = [node];
    while (path[0] !== message.publisher) {
      const copy = message.firsts.get(path[0]);
      if (!copy || path.includes(copy.src)) return null;
      path.unshift(copy.src);
    }
    return path;
  }

  function slowest() {
    let [found, latest] = [message.publisher ?? message.order[0] ?? null, -1];
    for (const [node, { delivered, known }] of message.expected) {
      const time = delivered ?? (known ? Infinity : -1);
      if (time > latest) [found, latest] = [node, time];
    }
    return found;
  }

  // ------------------------------------------------------------------------------------------------- the drawing

  function readColours() {
    const style = getComputedStyle(document.documentElement);
    colours = {};
    for (const name of ["ink", "paper", "grid", "edge", "land", "coast", "blue", "orange", "green", "red", "grey",
                        "purple", "mustard"]) colours[name] = style.getPropertyValue(`--${name}`).trim();
    colours.soft = style.getPropertyValue("--soft").trim();
  }

  function sheet(canvas, width, height) {
    const scale = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.font = world.FONT;
    pen.textBaseline = "middle";
    return pen;
  }

  function onPage(canvas, width, height) {
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    return sheet(canvas, width, height);
  }

  function layMap() {
    const canvas = find("map"), room = widthOf(canvas);
    map = data.land ? world.layMap(nodes, data.north, data.south, room) : world.layCircle(message.order, room);
    const { width, height, project, line } = map, pen = onPage(canvas, width, height);
    const base = document.createElement("canvas"), under = sheet(base, width, height);
    if (data.land) {
      under.fillStyle = colours.land;
      under.strokeStyle = colours.coast;
      for (const ring of data.land) {
        under.beginPath();
        for (const [longitude, latitude] of ring) under.lineTo(...project(longitude, latitude));
        under.closePath();
        under.fill();
        under.stroke();
      }
    }
    const lines = new Map();
    map = { ...map, pen, base, path: (a, b) => {
      const key = a * nodes.length + b;
      if (!lines.has(key)) {
        const path = new Path2D();
        for (const piece of line(a, b)) piece.forEach((spot, place) => place ? path.lineTo(...spot) : path.moveTo(...spot));
        lines.set(key, path);
      }
      return lines.get(key);
    } };
  }

  function drawMap() {
    const { pen, width, height, base, stands, along } = map;
    pen.clearRect(0, 0, width, height);
    pen.drawImage(base, 0, 0, width, height);
    const path = chosen === null ? null : pathTo(chosen);
    const onPath = new Set((path ?? []).slice(1).map(node => message.firsts.get(node)));
    const stroke = (copy, colour, wide, strength) => {
      pen.globalAlpha = strength;
      pen.strokeStyle = colour;
      pen.lineWidth = wide;
      pen.stroke(map.path(copy.src, copy.dst));
    };
    const flying = [];
    for (const copy of message.copies) {
      if (copy.from > now) continue;
      if (copy.to === null) {
        if (now - copy.from < message.end / 20) stroke(copy, colours.red, 1, 0.6);
      } else if (now < copy.to) {
        flying.push(copy);
        stroke(copy, copy.role === DUPLICATE ? colours.mustard : colours.blue, 0.8, 0.25);
      } else if (copy.role === FIRST || copy.role === RELAYED) {
        stroke(copy, copy.role === FIRST ? colours.blue : colours.grey, 1.2, onPath.has(copy) ? 0 : 0.6);
      }
    }
    for (const copy of onPath) if (copy && now >= copy.to) stroke(copy, colours.orange, 3, 1);
    pen.globalAlpha = 1;
    for (const copy of flying) {
      const [x, y] = along(copy.src, copy.dst, (now - copy.from) / Math.max(copy.to - copy.from, 1e-9));
      pen.fillStyle = copy.role === DUPLICATE ? colours.mustard : colours.blue;
      const size = copy.role === DUPLICATE ? 1.6 : 3;
      pen.beginPath();
      pen.arc(x, y, size, 0, 7);
      pen.fill();
    }
    stands.forEach((_, node) => drawNode(node));
    drawNames();
  }

  function drawNode(node) {
    const { pen, stands } = map, [x, y] = stands[node], asked = message.expected.get(node);
    const has = message.reached.has(node) && message.reached.get(node) <= now;
    const size = nodes.length > 400 ? 2.5 : 4.5;
    pen.lineWidth = 1.5;
    pen.beginPath();
    if (node === message.publisher) {
      pen.moveTo(x, y - size - 2);
      for (const [right, down] of [[size + 2, 0], [0, size + 2], [-size - 2, 0]]) pen.lineTo(x + right, y + down);
      pen.closePath();
      pen.fillStyle = colours.purple;
      pen.fill();
    } else if (asked) {
      pen.arc(x, y, size, 0, 7);
      pen.fillStyle = asked.delivered !== null && asked.delivered <= now ? colours.green : colours.paper;
      pen.strokeStyle = asked.delivered === null && now >= message.last ? colours.red : colours.green;
      pen.fill();
      pen.stroke();
    } else if (has) {
      pen.rect(x - size + 1, y - size + 1, 2 * size - 2, 2 * size - 2);
      pen.fillStyle = colours.grey;
      pen.fill();
    } else {
      pen.arc(x, y, 1.5, 0, 7);
      pen.fillStyle = colours.edge;
      pen.fill();
    }
    if (node === chosen) {
      pen.beginPath();
      pen.arc(x, y, size + 5, 0, 7);
      pen.strokeStyle = colours.orange;
      pen.lineWidth = 2;
      pen.stroke();
    }
  }

  function drawNames() {
    const { pen, stands } = map, stand = node => node !== null && node in stands;
    pen.lineWidth = 3;
    pen.strokeStyle = colours.paper;
    pen.fillStyle = colours.ink;
    const first = [chosen, message.publisher].filter(stand), order = message.order.filter(stand);
    for (const { text, left, y } of world.placeNames(pen, map, first, order, node => nodes[node].site)) {
      pen.strokeText(text, left, y);
      pen.fillText(text, left, y);
    }
  }

  function layGrid() {
    const canvas = find("grid"), width = widthOf(canvas);
    const every = Math.max(1, Math.ceil(message.order.length / MOST_ROWS));
    const rows = message.order.filter((node, place) => place % every === 0);
    const tall = rows.length <= 40 ? 18 : rows.length <= 120 ? 13 : Math.max(2, Math.min(6, 1600 / rows.length));
    const names = tall >= 11 ? Math.min(150, Math.round(width * 0.32)) : 8;
    const top = 6, bottom = 34, height = Math.ceil(top + tall * rows.length + bottom);
    const pen = onPage(canvas, width, height);
    const base = document.createElement("canvas"), under = sheet(base, width, height);
    const x = time => names + (width - names - 10) * time / message.end;
    const rowOf = new Map(rows.map((node, place) => [node, place]));
    const y = node => top + tall * (rowOf.get(node) + 0.5);
    grid = { pen, width, height, base, x, y, rows, rowOf, tall, top, names, bands: 0 };
    under.lineWidth = 1;
    const bands = message.faults.map(span => span.map(time => Math.min(message.end, Math.max(0, time / 1000))))
      .filter(([from, to]) => to > from);
    grid.bands = bands.length;
    under.globalAlpha = 0.12;
    under.fillStyle = colours.red;
    for (const [from, to] of bands) under.fillRect(x(from), top, x(to) - x(from), height - bottom - top);
    under.globalAlpha = 1;
    const step = niceStep(message.end, (width - names) / 80);
    for (let time = 0; time <= message.end; time += step) {
      under.strokeStyle = colours.grid;
      under.beginPath();
      under.moveTo(x(time), top);
      under.lineTo(x(time), height - bottom + 4);
      under.stroke();
      under.fillStyle = colours.soft;
      under.textAlign = "center";
      under.fillText(`${+time.toPrecision(6)}`, x(time), height - bottom + 13);
    }
    under.textAlign = "right";
    under.fillText(`ms after the message was ${message.origin}`, width - 4, height - 8);
    under.textAlign = "left";
    if (tall >= 11) rows.forEach(node => drawLabel(under, node, names));
    drawMarks(under);
  }

  function drawLabel(pen, node, room) {
    let text = `${node} ${nodes[node].site}`;
    while (text.length > 3 && pen.measureText(text).width > room - 8) text = `${text.slice(0, -2)}\u2026`;
    pen.fillStyle = message.expected.has(node) || node === message.publisher ? colours.ink : colours.soft;
    pen.fillText(text, 0, grid.y(node));
  }

  function drawMarks(pen) {
    const { x, y, rowOf, tall } = grid, half = Math.max(1, tall / 2 - 2), dot = Math.min(4.5, Math.max(1, tall / 3));
    const tick = (node, time, colour, low, high) => {
      if (!rowOf.has(node)) return;
      pen.strokeStyle = colour;
      pen.beginPath();
      pen.moveTo(x(time), y(node) + low);
      pen.lineTo(x(time), y(node) + high);
      pen.stroke();
    };
    for (const [node, time] of message.reached) {
      if (!rowOf.has(node)) continue;
      pen.strokeStyle = colours.grid;
      pen.beginPath();
      pen.moveTo(x(time), y(node));
      pen.lineTo(x(message.end), y(node));
      pen.stroke();
    }
    for (const copy of message.copies) {
      if (copy.timed) tick(copy.src, copy.from, copy.to === null ? colours.red : colours.grey, 0, half);
      if (copy.role === DUPLICATE) tick(copy.dst, copy.to, colours.mustard, -half, 0);
    }
    for (const [node, time] of message.reached) {
      if (!rowOf.has(node)) continue;
      pen.beginPath();
      if (node === message.publisher || message.expected.has(node)) pen.arc(x(time), y(node), dot, 0, 7);
      else pen.rect(x(time) - dot + 1, y(node) - dot + 1, 2 * dot - 1, 2 * dot - 1);
      pen.fillStyle = node === message.publisher ? colours.purple : message.expected.has(node) ? colours.blue : colours.grey;
      pen.fill();
    }
    pen.lineWidth = 1.5;
    for (const [node, { delivered }] of message.expected) {
      if (delivered !== null) tick(node, delivered, colours.green, -half, half);
    }
    pen.lineWidth = 1;
  }

  function drawGrid() {
    const { pen, width, height, base, x, y, rowOf, tall, top, rows, names } = grid;
    pen.clearRect(0, 0, width, height);
    if (rowOf.has(chosen)) {
      pen.globalAlpha = 0.18;
      pen.fillStyle = colours.orange;
      pen.fillRect(0, y(chosen) - tall / 2, width, tall);
      pen.globalAlpha = 1;
    }
    pen.drawImage(base, 0, 0, width, height);
    const bottom = top + tall * rows.length;
    pen.globalAlpha = 0.7;
    pen.fillStyle = colours.paper;
    pen.fillRect(x(now) + 1, top, Math.max(0, width - x(now)), bottom - top);
    pen.globalAlpha = 1;
    pen.strokeStyle = colours.ink;
    pen.beginPath();
    pen.moveTo(Math.max(names, x(now)), top);
    pen.lineTo(Math.max(names, x(now)), bottom);
    pen.stroke();
  }

  // ---------------------------------------------------------------------------------------------------- the race

  const ROLES = ["first copy", "first copy, relayed only", "duplicate", "never read"];

  function showRace() {
    const copies = message.copies.filter(copy => copy.dst === chosen);
    copies.sort((a, b) => (a.to ?? Infinity) - (b.to ?? Infinity) || a.from - b.from);
    find("race-title").textContent = chosen === null ? "The race of copies" : `The race of copies to ${nameOf(chosen)}`;
    find("path").replaceChildren(...describePath());
    const body = find("race").tBodies[0];
    body.replaceChildren(...copies.slice(0, MOST_LISTED).map(raceRow));
    find("race").hidden = !copies.length;
    find("no-race").hidden = Boolean(copies.length);
    find("no-race").textContent = chosen !== null && chosen === message.publisher
      ? "It published the message, and received no copy of it." : "No copy to this node is known.";
    find("bars").hidden = !copies.some(copy => copy.left !== null && copy.came !== null);
  }

  function describePath() {
    if (chosen === null) return [];
    const path = pathTo(chosen), asked = message.expected.get(chosen);
    const lines = [];
    if (path) {
      lines.push(element("li", `${nameOf(path[0])} ${message.origin === "published" ? "published it at 0 ms" : "sent it"}.`));
      for (const node of path.slice(1)) {
        const copy = message.firsts.get(node), held = copy.from - (message.reached.get(copy.src) ?? copy.from);
        const kept = copy.timed && held > 0.05 ? `, which sent it ${ms(held)} after it had it` : "";
        const taken = copy.timed ? `: ${ms(copy.to - copy.from)}` : ",";
        lines.push(element("li", `${nameOf(node)} had it at ${ms(copy.to)}${taken} from ${nameOf(copy.src)}${kept}.`));
      }
    } else if (message.reached.has(chosen)) {
      lines.push(element("li", "The path of the first copy is not known."));
    }
    if (asked) {
      const straight = asked.direct === null ? "" : ` The direct path takes ${ms(asked.direct)}.`;
      const outcome = asked.delivered !== null ? `Delivered to its application at ${ms(asked.delivered)}.`
        : asked.known ? "Not delivered." : "Not known whether it was delivered.";
      lines.push(element("li", `${outcome}${straight}`));
    } else if (chosen !== message.publisher) lines.push(element("li", "No delivery was expected of this node."));
    return lines;
  }

  function raceRow(copy) {
    const row = element("tr");
    const sender = element("button", nameOf(copy.src), { type: "button", class: "link" });
    sender.addEventListener("click", () => select(copy.src));
    const cells = [element("td"), element("td", copy.timed ? ms(copy.from) : "", { class: "number" }),
                   element("td", copy.to === null ? "" : ms(copy.to), { class: "number" }),
                   element("td", copy.timed && copy.to !== null ? ms(copy.to - copy.from) : "", { class: "number" }),
                   element("td", ROLES[copy.role])];
    cells[0].append(sender);
    const track = element("div", "", { class: "track", "aria-hidden": "true" });
    const bar = (from, to, kind) => {
      const part = element("i", "", { class: kind });
      part.style.left = `${100 * Math.max(0, from) / message.end}%`;
      part.style.width = `${100 * Math.max(0, to - Math.max(0, from)) / message.end}%`;
      track.append(part);
    };
    if (copy.to === null) bar(copy.from, message.end, "unread");
    else if (copy.left !== null && copy.came !== null && copy.sent !== null) {
      bar(copy.sent, copy.left, "waited");
      bar(copy.left, copy.came, "wire");
      bar(copy.came, copy.to, "received");
    } else bar(copy.from, copy.to, copy.role === DUPLICATE ? "later" : "wire");
    track.append(element("b"));
    const last = element("td", "", { class: "bar" });
    last.append(track);
    row.append(cells[0], last, ...cells.slice(1));
    return row;
  }

  function showList() {
    if (!find("all").open) return;
    const rows = message.order.slice(0, MOST_LISTED).map(node => {
      const asked = message.expected.get(node), row = element("tr");
      const button = element("button", nameOf(node), { type: "button", class: "link" });
      button.addEventListener("click", () => select(node));
      const kind = node === message.publisher ? "publisher" : asked ? "subscriber" : "relay";
      const delivered = !asked ? "" : asked.delivered !== null ? ms(asked.delivered)
        : asked.known ? "not delivered" : "not known";
      row.append(element("td"), element("td", kind),
        element("td", message.reached.has(node) ? ms(message.reached.get(node)) : "", { class: "number" }),
        element("td", delivered, { class: "number" }),
        element("td", asked && asked.direct !== null ? ms(asked.direct) : "", { class: "number" }));
      row.firstChild.append(button);
      return row;
    });
    find("list").tBodies[0].replaceChildren(...rows);
    const left = message.order.length - rows.length;
    find("list-left").textContent = left > 0 ? `${many(left, "more node")} not listed.` : "";
  }

  // ------------------------------------------------------------------------------------------------ the controls

  function describeNow() {
    const flying = upTo(message.sent, now) - upTo(message.ends, now);
    const lost = upTo(message.unread, now);
    return `At ${ms(now)}: ${upTo(message.delivered, now)} of ${many(message.expected.size, "expected delivery", "expected deliveries")} made, `
      + `${many(upTo(message.arrivals, now), "node has", "nodes have")} the message, `
      + `${many(flying, "copy is", "copies are")} on the way`
      + (lost ? `, ${many(lost, "copy", "copies")} sent and never read.` : ".");
  }

  function draw() {
    frame = 0;
    drawMap();
    drawGrid();
    find("time").value = String(now);
    find("time").setAttribute("aria-valuetext", ms(now));
    find("now").textContent = ms(now);
    find("seen").textContent = describeNow();
    find("race").style.setProperty("--now", `${100 * now / message.end}%`);
    if (playing) frame = requestAnimationFrame(advance);
  }

  function redraw() {
    if (!frame) frame = requestAnimationFrame(draw);
  }

  function advance(instant) {
    now += Math.max(0, instant - before) / factor;
    before = instant;
    if (now >= message.end) {
      now = message.end;
      pause();
    }
    draw();
  }

  function play() {
    if (now >= message.end) now = 0;
    playing = true;
    find("play").textContent = "Pause";
    before = performance.now();
    if (frame) cancelAnimationFrame(frame);
    frame = requestAnimationFrame(advance);
  }

  function pause() {
    playing = false;
    cancelAnimationFrame(frame);
    frame = 0;
    redraw();
    find("play").textContent = "Play";
    find("said").textContent = describeNow();
  }

  function seek(time) {
    now = Math.min(message.end, Math.max(0, time));
    if (!playing) find("said").textContent = describeNow();
    redraw();
  }

  function step(direction) {
    if (playing) pause();
    const place = upTo(message.stops, now);
    const [back, next] = [message.stops[place - 1] === now ? place - 2 : place - 1, place];
    seek(direction > 0 ? message.stops[next] ?? message.end : message.stops[Math.max(0, back)]);
  }

  function select(node) {
    chosen = node;
    find("node").value = String(node);
    showRace();
    keepAddress();
    redraw();
  }

  function keepAddress() {
    try {
      history.replaceState(null, "", `#m=${message.id}${chosen === null ? "" : `&n=${chosen}`}`);
    } catch { /* a page in a frame or a store may not change its address */ }
  }

  function open(place, node = null) {
    message = prepare(data.messages[place]);
    find("message").value = String(place);
    chosen = message.touched.has(node) ? node : slowest();
    find("about").textContent = message.about;
    find("why").replaceChildren(...message.why.map(text => element("li", text)));
    find("time").max = String(message.end);
    find("time").step = String(message.end / 500);
    factor = FACTORS.find(each => message.end * each >= 1000 * WATCHED_S) ?? FACTORS[FACTORS.length - 1];
    find("speed").value = String(factor);
    find("node").replaceChildren(...message.order.map(each => element("option", nameOf(each), { value: each })));
    if (chosen !== null) find("node").value = String(chosen);
    now = message.end;
    pause();
    lay();
    showRace();
    showList();
    keepAddress();
  }

  function lay() {
    readColours();
    layMap();
    layGrid();
    find("map").setAttribute("aria-label", `${data.land ? "Map" : "Circle of nodes"}: how the message spread. ${message.about}`);
    find("grid").setAttribute("aria-label", `Grid of ${many(grid.rows.length, "node")} and ${ms(message.end)}: `
      + "when each node received, sent and delivered copies. The same is in the table of all nodes below.");
    const shown = grid.rows.length < message.order.length
      ? ` Of ${many(message.order.length, "node")}, ${many(grid.rows.length, "node is", "nodes are")} shown.` : "";
    find("every").textContent = (grid.bands ? `Red bands mark ${many(grid.bands, "fault")}.` : "") + shown;
    redraw();
  }

  function readAddress() {
    const given = new URLSearchParams(location.hash.slice(1)), node = given.get("n");
    const place = data.messages.findIndex(each => each.id === given.get("m"));
    open(place < 0 ? 0 : place, node !== null && /^\d+$/.test(node) ? Number(node) : null);
  }

  function begin() {
    find("message").replaceChildren(...data.messages.map((each, place) => element("option", each.title, { value: place })));
    find("speed").replaceChildren(...FACTORS.map(each =>
      element("option", each === 1 ? "real time" : `${each} times slower`, { value: each })));
    find("message").addEventListener("change", event => open(Number(event.target.value)));
    find("node").addEventListener("change", event => select(Number(event.target.value)));
    find("speed").addEventListener("change", event => { factor = Number(event.target.value); });
    find("play").addEventListener("click", () => playing ? pause() : play());
    find("back").addEventListener("click", () => step(-1));
    find("next").addEventListener("click", () => step(1));
    find("time").addEventListener("input", event => seek(Number(event.target.value)));
    find("all").addEventListener("toggle", showList);
    find("map").addEventListener("click", event => {
      const found = world.nearest(map.stands, event.offsetX, event.offsetY, node => message.touched.has(node));
      if (found !== null) select(found);
    });
    find("grid").addEventListener("click", event => {
      const row = grid.rows[Math.floor((event.offsetY - grid.top) / grid.tall)];
      if (row !== undefined) select(row);
      if (event.offsetX > grid.names) seek((event.offsetX - grid.names) / (grid.width - grid.names - 10) * message.end);
    });
    document.addEventListener("keydown", event => {
      const tag = event.target.tagName;
      if (event.ctrlKey || event.metaKey || event.altKey || tag === "SELECT") return;
      if (event.key === " " && !["BUTTON", "SUMMARY", "A"].includes(tag)) playing ? pause() : play();
      else if (event.key === "ArrowRight" && tag !== "INPUT") step(1);
      else if (event.key === "ArrowLeft" && tag !== "INPUT") step(-1);
      else if (event.key === "Home" && tag !== "INPUT") seek(0);
      else if (event.key === "End" && tag !== "INPUT") seek(message.end);
      else return;
      event.preventDefault();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", lay);
    window.addEventListener("resize", lay);
    window.addEventListener("hashchange", readAddress);
    find("fallback").hidden = true;
    find("replay").hidden = false;
    readAddress();
  }

  begin();
})();
