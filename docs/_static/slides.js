// Slides: the button starts, arrow keys move by one slide, Escape ends.
const page = document.documentElement;
const slides = [...document.querySelectorAll("article > section > section")];

function move(step) {
  const now = slides.findLastIndex(slide => slide.getBoundingClientRect().top < innerHeight / 2);
  slides[Math.max(0, Math.min(slides.length - 1, now + step))].scrollIntoView();
}

document.querySelector(".present button").addEventListener("click", () => {
  page.classList.add("presenting");
  slides[0].scrollIntoView();
});
addEventListener("keydown", event => {  // before the theme's keys, which open the next page
  if (!page.classList.contains("presenting")) return;
  const step = { ArrowRight: 1, ArrowDown: 1, PageDown: 1, " ": 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -1 }[event.key];
  if (event.key === "Escape") page.classList.remove("presenting");
  else if (step) move(step);
  else return;
  event.preventDefault();
  event.stopImmediatePropagation();
}, true);
