// Searches, copies, opens what a link means, and keeps the choice of light or dark. The page reads well without it.
"use strict";

const root = document.documentElement;
const search = document.getElementById("search");
const theme = document.getElementById("theme");

const kept = (() => {
  try { return localStorage; } catch { return null; }
})();

if (kept?.theme) root.classList.add(kept.theme);
theme.hidden = false;
theme.addEventListener("click", () => {
  const isDark = root.classList.contains("dark") ||
    (!root.classList.contains("light") && matchMedia("(prefers-color-scheme: dark)").matches);
  const other = isDark ? "light" : "dark";
  root.classList.remove("light", "dark");
  root.classList.add(other);
  if (kept) kept.theme = other;
});

for (const origin of document.querySelectorAll(".origin")) origin.textContent = location.origin;

for (const pre of document.querySelectorAll("details > div > pre")) {
  const code = pre.firstElementChild;
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    // Without TLS a browser lets no page write the clipboard; then it is at least selected.
    getSelection().selectAllChildren(code);
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  pre.append(button);
}

const items = [...document.querySelectorAll("details, #errors dl > div")]
  .map((item) => ({ item, text: item.textContent.toLowerCase() + item.id }));
const sections = [...document.querySelectorAll("main > section")];

function find() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const { item, text } of items) item.hidden = !words.every((word) => text.includes(word));
  for (const section of sections) section.hidden = !items.some(({ item }) => !item.hidden && section.contains(item));
  document.getElementById("none").hidden = sections.some((section) => !section.hidden);
}

search.hidden = false;
search.addEventListener("input", find);
addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== search) {
    event.preventDefault();
    search.focus();
  } else if (event.key === "Escape" && document.activeElement === search) {
    search.value = "";
    find();
  }
});

function open() {
  const meant = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (meant?.tagName === "DETAILS") meant.open = true;
  meant?.scrollIntoView();
}
addEventListener("hashchange", open);
open();
