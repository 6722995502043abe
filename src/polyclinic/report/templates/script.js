"use strict";
// Tables sort by a click on, or Enter in, the head of a column; a third time restores their order.
const value = cell => {
  const text = cell.dataset.number ?? cell.firstChild?.textContent?.trim() ?? "";
  const number = parseFloat(text.replace(/[\u2009 ]/g, ""));
  return Number.isNaN(number) ? cell.textContent.trim() : number;
};
const compare = (one, other) => {
  const numbers = typeof one === "number" && typeof other === "number";
  if (numbers) return one - other;
  if (typeof one === "number") return -1;
  if (typeof other === "number") return 1;
  return one.localeCompare(other);
};
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0], heads = table.tHead?.rows[table.tHead.rows.length - 1];
  if (!heads || table.tBodies.length !== 1 || body.rows.length < 2) continue;
  const first = [...body.rows];
  [...heads.cells].forEach((head, place) => {
    head.tabIndex = 0;
    head.classList.add("sorts");
    const sort = () => {
      const next = { none: "descending", descending: "ascending", ascending: "none" };
      const order = next[head.getAttribute("aria-sort") ?? "none"];
      for (const other of heads.cells) other.removeAttribute("aria-sort");
      if (order !== "none") head.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const sorted = [...first];
      if (order !== "none") sorted.sort((one, other) => {
        const [a, b] = [one, other].map(row => value(row.cells[place]));
        const missing = [a, b].map(each => each === "–");
        if (missing[0] || missing[1]) return missing[0] - missing[1];
        return sign * compare(a, b);
      });
      body.append(...sorted);
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", event => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(); }
    });
  });
}
// Pictures open in a dialog; arrows go to the next one, Escape closes it.
const zoom = document.getElementById("zoom"), large = new Image();
zoom.prepend(large);
const pictures = [...document.querySelectorAll("main figure")];
pictures.forEach(figure => { figure.tabIndex = 0; });
let shown = 0;
const show = number => {
  shown = (number + pictures.length) % pictures.length;
  const image = pictures[shown].querySelector("img");
  large.src = image.src;
  large.alt = image.alt;
  zoom.querySelector("p").textContent = image.alt;
  if (!zoom.open) zoom.showModal();
};
pictures.forEach((figure, number) => {
  figure.addEventListener("click", () => show(number));
  figure.addEventListener("keydown", event => {
    if (event.key === "Enter") { event.preventDefault(); show(number); }
  });
});
zoom.addEventListener("click", () => zoom.close());
zoom.addEventListener("close", () => pictures[shown].focus());
zoom.addEventListener("keydown", event => {
  if (event.key === "ArrowRight") show(shown + 1);
  if (event.key === "ArrowLeft") show(shown - 1);
});
