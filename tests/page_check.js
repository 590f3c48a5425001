// An axe-like check, run in a page by tests/browser.py: gives what is wrong, in words.
(() => {
  const wrong = [], all = (s, e = document) => [...e.querySelectorAll(s)];
  const say = (what, e) => wrong.push(what + ": " + (e ? (e.outerHTML || String(e)).slice(0, 160) : ""));
  all("details").forEach(d => d.open = true);

  // structure
  if (!document.documentElement.lang) say("no language", document.documentElement);
  if (!document.title) say("no title", document.head);
  if (all("h1").length !== 1) say("h1 " + all("h1").length);
  let level = 0;
  all("h1, h2, h3, h4, h5, h6").forEach(h => {
    const here = +h.tagName[1];
    if (here > level + 1) say("heading skips a level", h);
    if (!h.textContent.trim()) say("empty heading", h);
    level = here;
  });
  for (const s of ["main", "header", "footer", "nav"]) if (all(s).length !== 1) say("landmark " + s + " " + all(s).length);
  all("nav").forEach(n => n.getAttribute("aria-label") || say("nav without name", n));
  const ids = all("[id]").map(e => e.id);
  if (new Set(ids).size !== ids.length) say("ids twice: " + ids.filter((x, i) => ids.indexOf(x) !== i).slice(0, 5));
  all("a[href^='#']").forEach(a => document.getElementById(a.getAttribute("href").slice(1)) || say("link to nothing", a));
  all("[aria-labelledby]").forEach(e => e.getAttribute("aria-labelledby").split(" ").forEach(i => document.getElementById(i) || say("labelled by nothing", e)));
  all("img").forEach(i => i.alt || say("img without alt", i));
  all("table").forEach(t => {
    if (!t.caption || !t.caption.textContent.trim()) say("table without caption", t);
    if (!all("thead th[scope=col]", t).length) say("table without column headers", t);
    all("tbody tr", t).forEach(r => r.querySelector("th[scope=row]") || say("row without header", r));
    all("th", t).forEach(h => h.scope || say("th without scope", h));
  });
  all(".scroll").forEach(e => { if (e.tabIndex !== 0 || !e.getAttribute("aria-label")) say("scrolls but not by keyboard", e); });

  // drawings
  all("svg").forEach(s => {
    const box = s.getBoundingClientRect();
    if (!(box.width > 200 && box.height > 30)) say("svg not visible " + box.width + "x" + box.height, s);
    if (s.getAttribute("role") !== "img") say("svg without role", s);
    for (const t of ["title", "desc"]) if (!s.querySelector(":scope > " + t)?.textContent.trim()) say("svg without " + t, s);
    const scale = box.width / s.viewBox.baseVal.width, texts = all("text", s);
    const boxes = texts.map(t => t.getBoundingClientRect());
    texts.forEach((t, i) => {
      const b = boxes[i];
      if (parseFloat(getComputedStyle(t).fontSize) * scale < 9.2) say("text too small", t);
      if (b.left < box.left - 2 || b.right > box.right + 2 || b.top < box.top - 2 || b.bottom > box.bottom + 2) say("text outside its drawing", t);
      if (t.hasAttribute("transform")) return;
      for (let j = 0; j < i; j++) {
        const o = boxes[j];
        if (texts[j].hasAttribute("transform")) continue;
        if (Math.min(b.right, o.right) - Math.max(b.left, o.left) > 1.5 && Math.min(b.bottom, o.bottom) - Math.max(b.top, o.top) > 4)
          say("texts overlap: " + texts[j].textContent + " | " + t.textContent, t);
      }
    });
  });

  // nothing wider than the window
  const wide = document.documentElement.scrollWidth - innerWidth;
  if (wide > 0) say("page is " + wide + " px too wide");

  // contrast of every text with what is painted under it
  const parse = c => { const m = c.match(/[\d.]+/g).map(Number); return [m[0], m[1], m[2], m.length > 3 ? m[3] : 1]; };
  const over = (a, b) => { const k = a[3]; return [0, 1, 2].map(i => a[i] * k + b[i] * (1 - k)).concat(1); };
  const light = c => { const f = c.slice(0, 3).map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * f[0] + 0.7152 * f[1] + 0.0722 * f[2]; };
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const under = (e, x, y) => {
    const layers = [];
    for (const o of document.elementsFromPoint(x, y)) {
      const s = getComputedStyle(o);
      if (o === e || o.tagName === "text" || o.tagName === "tspan") continue;
      if (o instanceof SVGGraphicsElement && o.tagName !== "svg") {
        if (s.fill.startsWith("rgb")) { const c = parse(s.fill); c[3] *= +s.fillOpacity * +s.opacity; layers.push(c); }
      } else layers.push(parse(s.backgroundColor));
      if (layers.length && layers[layers.length - 1][3] === 1) break;
    }
    return layers.reverse().reduce((back, c) => over(c, back), [255, 255, 255, 1]);
  };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let checked = 0;
  for (let n; (n = walk.nextNode());) {
    const e = n.parentElement;
    if (!n.textContent.trim() || e.closest("title, desc, style, .skip")) continue;
    const r = document.createRange(); r.selectNodeContents(n);
    const box = [...r.getClientRects()].find(b => b.width > 0);
    if (!box) continue;
    const x = box.left + Math.min(box.width / 2, 20), y = box.top + box.height / 2;
    const clip = e.closest(".scroll, pre");
    if (clip) { const c = clip.getBoundingClientRect(); if (x < c.left || x > c.right || y < c.top || y > c.bottom) continue; }
    const s = getComputedStyle(e), ink = parse(e instanceof SVGElement ? s.fill : s.color), back = under(e, x, y);
    const found = ratio(over(ink, back), back);
    checked++;
    if (found < 4.5) say("contrast " + found.toFixed(2) + " of " + n.textContent.trim().slice(0, 30), e);
  }
  if (checked < 40) say("only " + checked + " texts were checked");
  return wrong;
})()
