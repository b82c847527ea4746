"use strict";
// What pages with a map share: the replay's script begins with it, and the live page loads it.
const world = (() => {
  const STRETCH = 1.25; // of a degree of latitude to one of longitude, as in the report
  const RADIANS = Math.PI / 180;
  const FONT = "12px system-ui, 'Segoe UI', Roboto, sans-serif";
  const MOST_NAMED = 60, NAMED_FROM = 600;

  const many = (count, one, several = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : several}`;

  function element(tag, text = "", attributes = {}) {
    const made = document.createElement(tag);
    made.textContent = text;
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  }

  function niceStep(length, most) { // 1, 2 or 5 times a power of ten: at most so many steps of it
    const rough = length / Math.max(2, most), power = 10 ** Math.floor(Math.log10(rough));
    return power * ([1, 2, 5, 10].find(factor => factor * power >= rough) ?? 10);
  }

  const widthOf = drawing => Math.max(200, Math.floor(drawing.parentElement.clientWidth));

  function unit({ latitude, longitude }) { // a place as a unit vector
    const [up, round] = [latitude * RADIANS, longitude * RADIANS];
    return [Math.cos(up) * Math.cos(round), Math.cos(up) * Math.sin(round), Math.sin(up)];
  }

  const angle = (one, other) => Math.acos(Math.max(-1, Math.min(1,
    one.reduce((sum, part, axis) => sum + part * other[axis], 0))));

  function chooseView(places, north, south) { // the part of the planet with the places, in degrees
    const [east, west] = [Math.max, Math.min].map(pick => places.map(each => each.longitude).reduce((a, b) => pick(a, b)));
    const [high, low] = [Math.max, Math.min].map(pick => places.map(each => each.latitude).reduce((a, b) => pick(a, b)));
    let [wide, tall] = [Math.max(50, east - west + 16), Math.max(25, high - low + 14)];
    if (tall * STRETCH < 0.42 * wide) tall = 0.42 * wide / STRETCH;
    if (tall * STRETCH > 0.7 * wide) wide = tall * STRETCH / 0.7;
    [wide, tall] = [Math.min(360, wide), Math.min(north - south, tall)];
    if (wide > 180) [wide, tall] = [360, north - south]; // lines across oceans go far to the north
    const place = (middle, span, least, most) => Math.min(most - span, Math.max(least, middle - span / 2));
    return { wide, tall, west: place((east + west) / 2, wide, -180, 180),
             south: place((high + low) / 2, tall, south, north) };
  }

  // A map of places, {latitude, longitude}, that is so many pixels wide: where places and great circles are on it.
  function layMap(places, north, south, width) {
    const view = chooseView(places, north, south);
    const height = Math.round(width * view.tall * STRETCH / view.wide);
    const jump = width * 180 / view.wide; // a line that crosses the map's edge
    const project = (longitude, latitude) => [(longitude - view.west) / view.wide * width,
                                              (view.south + view.tall - latitude) / view.tall * height];
    const units = places.map(unit), spots = places.map(each => project(each.longitude, each.latitude));
    const crowd = new Map();
    const stands = places.map((each, number) => { // places that are the same stand around it
      const key = `${each.longitude} ${each.latitude}`, there = crowd.get(key) ?? 0;
      crowd.set(key, there + 1);
      const [far, turn] = [5 * Math.sqrt(there), 2.4 * there];
      return [spots[number][0] + far * Math.cos(turn), spots[number][1] + far * Math.sin(turn)];
    });
    function along(a, b, share) {
      const far = angle(units[a], units[b]);
      if (far < 1e-6 || far > Math.PI - 1e-6) return between(spots[a], spots[b], share);
      const [one, other] = [Math.sin((1 - share) * far) / Math.sin(far), Math.sin(share * far) / Math.sin(far)];
      const [x, y, z] = units[a].map((part, axis) => part * one + units[b][axis] * other);
      const latitude = Math.asin(Math.max(-1, Math.min(1, z))) / RADIANS;
      return project(Math.atan2(y, x) / RADIANS, Math.max(south + 0.5, Math.min(north - 0.5, latitude))); // over a pole: along the edge
    }
    function line(a, b) {
      const pieces = [[]], steps = 2 + Math.ceil(angle(units[a], units[b]) / RADIANS / 4);
      for (let step = 0; step <= steps; step++) {
        const spot = along(a, b, step / steps), piece = pieces[pieces.length - 1];
        if (piece.length && Math.abs(spot[0] - piece[piece.length - 1][0]) > jump) pieces.push([spot]);
        else piece.push(spot);
      }
      return pieces;
    }
    return { width, height, project, stands, along, line };
  }

  const between = (from, to, share) => [from[0] + (to[0] - from[0]) * share, from[1] + (to[1] - from[1]) * share];

  // The same for nodes without places: they stand in a circle, in a given order.
  function layCircle(order, width) {
    const height = Math.min(width, 620), radius = Math.min(width, height) / 2 - 24, stands = [];
    order.forEach((number, place) => {
      const turn = 2 * Math.PI * place / order.length - Math.PI / 2;
      stands[number] = [width / 2 + radius * Math.cos(turn), height / 2 + radius * Math.sin(turn)];
    });
    const along = (a, b, share) => between(stands[a], stands[b], share);
    return { width, height, project: null, stands, along, line: (a, b) => [[stands[a], stands[b]]] };
  }

  // Where names go beside their nodes without touching each other: those of `first`, and all of `order` if few.
  function placeNames(pen, { width, height, stands }, first, order, nameOf) {
    const taken = [], placed = [];
    for (const node of new Set([...first, ...(order.length <= MOST_NAMED && width > NAMED_FROM ? order : [])])) {
      const [x, y] = stands[node], text = nameOf(node), long = pen.measureText(text).width;
      for (const left of [x + 9, x - 9 - long]) {
        const box = [left, y - 8, left + long, y + 8];
        const isFree = box[0] >= 0 && box[2] <= width && box[1] >= 0 && box[3] <= height
          && !taken.some(other => box[0] < other[2] && box[2] > other[0] && box[1] < other[3] && box[3] > other[1]);
        if (!isFree) continue;
        taken.push(box);
        placed.push({ text, left, y });
        break;
      }
    }
    return placed;
  }

  function nearest(stands, x, y, isMeant) { // the node at a point of the map
    let [found, near] = [null, 18];
    stands.forEach(([right, down], node) => {
      const far = Math.hypot(x - right, y - down);
      if (far < near && isMeant(node)) [found, near] = [node, far];
    });
    return found;
  }

  return { FONT, many, element, niceStep, widthOf, layMap, layCircle, placeNames, nearest };
})();
